import HTTPServing
import HTTPTypes
import Hummingbird
import Logging
import SignedTokens
import SupportDesk

/// Signing in and out, and showing again that it is still the same person.
struct SignInPages: Sendable {
    let desk: Desk
    private let gate = SignInGate()

    init(desk: Desk) { self.desk = desk }

    func add(to routes: RouterGroup<AdminContext>) {
        routes.get("sign-in") { request, _ -> Response in
            // An operator who is signed in has no business here.
            if (try? await Visit(request, desk: desk)) != nil { return .redirect(to: "/console", type: .normal) }
            let query = try Form(queryOf: request)
            return form(
                next: query["next"],
                words: query["lost"] == nil
                    ? nil
                    : "Your browser did not keep the session: it takes it over https, or from this machine alone. Open the console"
                        + " under such an address."
            )
        }
        routes.post("sign-in") { request, context in try await signIn(request, context) }
        desk.get("confirm", on: routes) { visit, request, _ in
            confirmation(visit, next: try Form(queryOf: request)["next"], words: nil)
        }
        desk.post("confirm", on: routes) { visit, form, context in try await confirm(visit, form, context) }
        desk.post("sign-out", on: routes) { visit, _, _ in
            try await desk.operators.signOut(visit.digest)
            var response: Response
            if visit.me.byProvider, let provider = desk.provider,
                let address = await provider.provider.signOutAddress(
                    Cookie.hint.text(in: visit.request).flatMap { provider.idToken($0) },
                    returningTo: provider.home
                )
            {
                // Not by a redirect: the console's forms lead nowhere else.
                response = desk.pages.page("arrive", "You are signed out", ["refresh": address], nil)
                response.set(Cookie.session.ending)
                response.set(Cookie.hint.ending)
            } else {
                response = Self.leaving(to: "/console/sign-in", Cookie.session.ending)
            }
            // Pages are never stored; those that the browser keeps in memory for its back button are given up with this.
            if let name = HTTPField.Name("Clear-Site-Data") { response.headers[name] = "\"cache\"" }
            return response
        }
    }

    private func form(
        next: String?,
        name: String = "",
        words: String?,
        status: HTTPResponse.Status = .ok
    ) -> Response {
        let values = shown([
            "next": LocalPath(next).text, "name": name, "words": words,
            "provider": desk.provider.map { Self.link($0, to: next) },
        ])
        return desk.pages.page("signin", "Sign in", values, nil, status: status)
    }

    private func confirmation(
        _ visit: Visit,
        next: String?,
        words: String?,
        status: HTTPResponse.Status = .ok
    ) -> Response {
        let provider = visit.me.byProvider ? desk.provider.map { Self.link($0, to: next) } : nil
        let values = shown(["next": LocalPath(next).text, "words": words, "provider": provider])
        return desk.pages.page("confirm", "Is it still you?", values, visit, status: status)
    }

    private static func link(_ provider: ProviderSignIn, to next: String?) -> [String: Any] {
        let parts = provider.provider.issuer.split(separator: "/")
        return ["escaped": LocalPath(next).escaped, "host": parts.count > 1 ? String(parts[1]) : "the provider"]
    }

    // MARK: Signing in

    private func signIn(_ request: Request, _ context: AdminContext) async throws -> Response {
        let form = try await Form(request)
        let name = form["name"]?.filter { $0 != " " } ?? ""
        var typed = SignIn.Credentials(name: name, password: form["password"] ?? "", code: form["code"])
        typed.newPassword = form["new-password"]
        if let device = form["device"] {
            typed.newDevice = SecondFactor(spelled: device)
            guard typed.newDevice != nil else {
                throw ConsoleFault.refused(.badRequest, "The device's secret is none.")
            }
        }
        if let new = typed.newPassword, new != form["new-password-again"] {
            return enrolment(form, needs: [.password], "The two new passwords are not the same.")
        }
        switch try await attempt(typed, request, context) {
        case .signedIn(let token, let client):
            // Whatever session the browser had is not kept beside the new one.
            if let old = Cookie.session(in: request) { try await desk.operators.signOut(old.digest) }
            return Self.entering(LocalPath(form["next"]), saying: "signed-in=1", token, client)
        case .needs(let needs) where needs == [.code]:
            return self.form(
                next: form["next"],
                name: name,
                words: "Give the code of your second factor as well.",
                status: .unauthorized
            )
        case .needs(let needs): return enrolment(form, needs: needs, nil)
        case .words(let words):
            return typed.newPassword == nil && typed.newDevice == nil
                ? self.form(next: form["next"], name: name, words: words, status: .unauthorized)
                : enrolment(form, needs: [.password], words)
        }
    }

    private enum Attempt {
        case signedIn(SessionToken, ClientToken)
        case needs(Set<Operators.Need>)
        /// What to say.
        case words(String)
    }

    private func attempt(
        _ typed: SignIn.Credentials,
        _ request: Request,
        _ context: AdminContext
    ) async throws -> Attempt {
        let address = desk.address(of: request, context)
        do {
            let signIn = SignIn(operators: desk.operators, kind: .console)
            let client = Cookie.client(in: request)
            // An operator who has to wait in any case takes no place in the gate.
            let (wait, isKnown) = try await signIn.wait(typed, from: address, client: client)
            let result =
                wait > .zero
                ? .not(.wait(wait))
                : try await gate.pass(from: isKnown ? "known " + typed.name : address, isKnown: isKnown) {
                    try await signIn.attempt(typed, from: address, client: client)
                }
            guard let result else {
                throw ConsoleFault.refused(
                    .serviceUnavailable,
                    "Many sign in at this moment; try again in a few seconds."
                )
            }
            switch result {
            case .signedIn(let token, let client): return .signedIn(token, client)
            case .not(.needs(let needs)): return .needs(needs)
            case .not(.wait(let wait)):
                desk.security.refused("console", "sign_in_put_off", desk.logger)
                return .words("Too many sign-ins have failed; try again in \(wait.components.seconds + 1) s.")
            case .not(.provider): return .words("Operators sign in through the identity provider.")
            case .not(.samePassword): return .words(Self.sentence(.same))
            case .not(.locked):
                desk.security.refused("console", "codes_locked", desk.logger)
                return .words("Not now: \(Operators.lockedWords).")
            case .not(.refused), .not(.signedIn):
                desk.security.refused("console", "sign_in", desk.logger)
                return .words("The name, the password or the code is wrong.")
            }
        } catch let fault as PasswordKey.Fault { return .words(Self.sentence(fault)) }
    }

    private static func sentence(_ fault: PasswordKey.Fault) -> String {
        fault.rawValue.prefix(1).uppercased() + fault.rawValue.dropFirst() + "; choose another one."
    }

    /// What a first sign-in asks for besides; the device's secret is kept by the form until it is confirmed.
    private func enrolment(_ form: Form, needs: Set<Operators.Need>, _ words: String?) -> Response {
        let device =
            needs.contains(.device) || form["device"] != nil
            ? form["device"].flatMap { SecondFactor(spelled: $0) } ?? SecondFactor() : nil
        let name = form["name"] ?? ""
        let values = shown([
            "next": LocalPath(form["next"]).text, "name": name, "words": words,
            "asks-password": needs.contains(.password) || form["new-password"] != nil,
            "device": device.map { device in
                let address = device.address(account: name)
                return shown(["spelled": device.spelled, "address": address, "picture": QRCode(address)?.path])
            },
            "asks-code": device == nil && needs.contains(.code),
        ])
        return desk.pages.page("enrol", "Your first sign-in", values, nil, status: .unauthorized)
    }

    // MARK: Once more

    private func confirm(_ visit: Visit, _ form: Form, _ context: AdminContext) async throws -> Response {
        let typed = SignIn.Credentials(name: visit.me.name, password: form["password"] ?? "", code: form["code"])
        let next = LocalPath(form["next"])
        switch try await attempt(typed, visit.request, context) {
        case .signedIn(let token, let client):
            try await desk.operators.signOut(visit.digest)
            return Self.entering(next, saying: "done=confirm", token, client)
        case .needs: return confirmation(visit, next: next.text, words: "Give the code as well.", status: .unauthorized)
        case .words(let words): return confirmation(visit, next: next.text, words: words, status: .unauthorized)
        }
    }

    /// Goes on to a page with a new session.
    private static func entering(
        _ next: LocalPath,
        saying word: String,
        _ token: SessionToken,
        _ client: ClientToken
    ) -> Response {
        var response = leaving(to: next.adding(word), Cookie.session.setting(token.text))
        response.set(Cookie.client.setting(client.text))
        return response
    }

    private static func leaving(to path: String, _ cookie: String) -> Response {
        var response = Response.redirect(to: path, type: .normal)
        response.headers[.setCookie] = cookie
        return response
    }
}
