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
        var values: [String: Any] = ["next": LocalPath(next).text, "name": name]
        if let words { values["words"] = words }
        if let provider = desk.provider { values["provider"] = Self.link(provider, to: next) }
        return desk.pages.page("signin", "Sign in", values, nil, status: status)
    }

    private func confirmation(
        _ visit: Visit,
        next: String?,
        words: String?,
        status: HTTPResponse.Status = .ok
    ) -> Response {
        var values: [String: Any] = ["next": LocalPath(next).text]
        if let words { values["words"] = words }
        if visit.me.byProvider, let provider = desk.provider { values["provider"] = Self.link(provider, to: next) }
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
        var shown = SignIn.Credentials(name: name, password: form["password"] ?? "", code: form["code"])
        shown.newPassword = form["new-password"]
        if let device = form["device"] {
            shown.newDevice = SecondFactor(spelled: device)
            guard shown.newDevice != nil else {
                throw ConsoleFault.refused(.badRequest, "The device's secret is none.")
            }
        }
        if let new = shown.newPassword, new != form["new-password-again"] {
            return enrolment(form, needs: [.password], "The two new passwords are not the same.")
        }
        switch try await attempt(shown, request, context) {
        case .way(.in(let token, let client)):
            // Whatever session the browser had is not kept beside the new one.
            if let old = Cookie.session(in: request) { try await desk.operators.signOut(old.digest) }
            let next = LocalPath(form["next"]).text
            var response = Self.leaving(
                to: next + (next.contains("?") ? "&" : "?") + "signed-in=1",
                Cookie.session.setting(token.text)
            )
            response.set(Cookie.client.setting(client.text))
            return response
        case .way(.needs(let needs)) where needs == [.code]:
            return self.form(
                next: form["next"],
                name: name,
                words: "Give the code of your second factor as well.",
                status: .unauthorized
            )
        case .way(.needs(let needs)): return enrolment(form, needs: needs, nil)
        case .words(let words):
            return shown.newPassword == nil && shown.newDevice == nil
                ? self.form(next: form["next"], name: name, words: words, status: .unauthorized)
                : enrolment(form, needs: [.password], words)
        }
    }

    private enum Attempt {
        enum Way {
            case `in`(SessionToken, ClientToken)
            case needs(Set<Operators.Need>)
        }
        case way(Way)
        /// What to say.
        case words(String)
    }

    private func attempt(
        _ shown: SignIn.Credentials,
        _ request: Request,
        _ context: AdminContext
    ) async throws -> Attempt {
        let address = desk.address(of: request, context)
        do {
            let signIn = SignIn(operators: desk.operators, kind: .console)
            let client = Cookie.client(in: request)
            // An operator who has to wait in any case takes no place in the gate.
            let (wait, isKnown) = try await signIn.wait(shown, from: address, client: client)
            let result =
                wait > .zero
                ? .not(.wait(wait))
                : try await gate.pass(from: isKnown ? "known " + shown.name : address, isKnown: isKnown) {
                    try await signIn.attempt(shown, from: address, client: client)
                }
            guard let result else {
                throw ConsoleFault.refused(
                    .serviceUnavailable,
                    "Many sign in at this moment; try again in a few seconds."
                )
            }
            switch result {
            case .signedIn(let token, let client): return .way(.in(token, client))
            case .not(.needs(let needs)): return .way(.needs(needs))
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
        var values: [String: Any] = ["next": LocalPath(form["next"]).text, "name": name]
        values["asks-password"] = needs.contains(.password) || form["new-password"] != nil
        if let device { values["device"] = ["spelled": device.spelled, "address": device.address(account: name)] }
        values["asks-code"] = device == nil && needs.contains(.code)
        if let words { values["words"] = words }
        return desk.pages.page("enrol", "Your first sign-in", values, nil, status: .unauthorized)
    }

    // MARK: Once more

    private func confirm(_ visit: Visit, _ form: Form, _ context: AdminContext) async throws -> Response {
        let shown = SignIn.Credentials(name: visit.me.name, password: form["password"] ?? "", code: form["code"])
        let next = LocalPath(form["next"])
        switch try await attempt(shown, visit.request, context) {
        case .way(.in(let token, let client)):
            try await desk.operators.signOut(visit.digest)
            var response = Self.leaving(
                to: next.text + (next.text.contains("?") ? "&" : "?") + "done=confirm",
                Cookie.session.setting(token.text)
            )
            response.set(Cookie.client.setting(client.text))
            return response
        case .way(.needs):
            return confirmation(visit, next: next.text, words: "Give the code as well.", status: .unauthorized)
        case .words(let words): return confirmation(visit, next: next.text, words: words, status: .unauthorized)
        }
    }

    private static func leaving(to path: String, _ cookie: String) -> Response {
        var response = Response.redirect(to: path, type: .normal)
        response.headers[.setCookie] = cookie
        return response
    }
}
