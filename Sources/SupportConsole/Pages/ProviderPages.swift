import Entitlements
import Foundation
import HTTPServing
import HTTPTypes
import Hummingbird
import Logging
import SignedTokens
import SupportDesk

/// Signing in through the team's identity provider: there, and back again.
struct ProviderPages: Sendable {
    let desk: Desk
    private let provider: ProviderSignIn
    /// Each may cost requests to the provider.
    private let turns = ClientCounts(most: 8)

    init?(desk: Desk) {
        guard let provider = desk.provider else { return nil }
        self.desk = desk
        self.provider = provider
    }

    func add(to routes: RouterGroup<AdminContext>) {
        routes.get("sign-in/provider") { request, context in
            // A page elsewhere could begin a sign-in that its visitor never asked for.
            if let site = HTTPField.Name("Sec-Fetch-Site").flatMap({ request.headers[$0] }),
                !["same-origin", "none"].contains(site)
            {
                throw ConsoleFault.crossSite
            }
            return try await turn(request, context) { try await begin(request) }
        }
        routes.get("sign-in/return") { request, context in
            try await turn(request, context) { try await finish(request) }
        }
    }

    private func turn(
        _ request: Request,
        _ context: AdminContext,
        _ body: () async throws -> Response
    ) async throws -> Response {
        let address = desk.address(of: request, context)
        guard turns.take(address) else {
            throw ConsoleFault.refused(.serviceUnavailable, "Many sign in from your address; try again in a moment.")
        }
        defer { turns.giveBack(address) }
        return try await body()
    }

    /// Sends the browser to the provider.
    private func begin(_ request: Request) async throws -> Response {
        let query = try Form(queryOf: request)
        let asked = SignInProvider.Request()
        let begun = ProviderSignIn.Begun(
            state: asked.state,
            nonce: asked.nonce,
            verifier: asked.verifier,
            next: LocalPath(query["next"]).text,
            previous: Cookie.session(in: request)?.digest,
            at: Int64(Date().timeIntervalSince1970)
        )
        let address: String
        do throws(SignInProvider.Failure) {
            address = try await provider.provider.address(for: asked, again: query["again"] != nil)
        } catch { throw refusal(error) }
        var response = Response.redirect(to: address, type: .normal)
        response.set(Cookie.begun.setting(try provider.seal(begun)))
        return response
    }

    /// Takes the browser that comes back from the provider.
    private func finish(_ request: Request) async throws -> Response {
        let query = try Form(queryOf: request)
        guard let begun = Cookie.begun.text(in: request).flatMap({ provider.open($0) }),
            query["state"] == begun.state, query["iss"] ?? provider.provider.issuer == provider.provider.issuer
        else {
            desk.security.refused("console", "provider_state", desk.logger)
            throw ConsoleFault.refused(
                .badRequest,
                "This sign-in was not begun in this browser, or too long ago. Sign in again."
            )
        }
        guard let code = query["code"], code.utf8.count <= 4_096 else {
            desk.security.refused("console", "provider_denied", desk.logger)
            throw ConsoleFault.refused(.forbidden, "The identity provider did not sign you in. Sign in again.")
        }
        let person: SignInProvider.Person
        do throws(SignInProvider.Failure) {
            person = try await provider.provider.person(code: code, begun.request)
        } catch { throw refusal(error) }
        let token = SessionToken()
        let arrival = try await desk.operators.signIn(
            Operators.Identity(
                issuer: provider.provider.issuer,
                subject: person.subject,
                names: person.names,
                role: provider.role(of: person.groups),
                provedAgo: person.provedAgo
            ),
            session: token.digest,
            for: provider.lifetime
        )
        if let words = Self.words(arrival) {
            desk.security.refused("console", arrival.rawValue, desk.logger)
            throw ConsoleFault.refused(.forbidden, words)
        }
        if let previous = begun.previous { try await desk.operators.signOut(previous) }
        // A redirect would be part of the way from the provider, on which browsers do not show the session.
        var response = desk.pages.page(
            "arrive",
            "You are signed in",
            ["refresh": LocalPath(begun.next).adding("signed-in=1")],
            nil
        )
        response.set(Cookie.session.setting(token.text))
        response.set(Cookie.begun.ending)
        if let hint = try provider.seal(idToken: person.idToken) { response.set(Cookie.hint.setting(hint)) }
        return response
    }

    /// Why a person is not signed in; `nil`: they are.
    private static func words(_ arrival: Operators.Arrival) -> String? {
        switch arrival {
        case .signedIn: nil
        case .noRole:
            "None of your groups at the identity provider has a role at this desk. Ask an administrator of the provider."
        case .nameTaken:
            "Another account has your name. An admin says whose it is: entitlement-sync operator identify NAME --subject SUBJECT."
        case .disabled: "Your account is disabled. An admin may let you in again."
        case .otherProvider:
            "This console's identity provider is not the one that the desk has in use. Try again in a moment; if it stays so,"
                + " another console is set up otherwise."
        }
    }

    private func refusal(_ failure: SignInProvider.Failure) -> ConsoleFault {
        switch failure {
        case .unavailable(let code):
            desk.logger.warning("the identity provider does not answer", metadata: ["error.code": "\(code.rawValue)"])
            return .refused(
                .serviceUnavailable,
                "The identity provider does not answer. Try again in a moment; meanwhile admins who are marked for it sign in with a"
                    + " password."
            )
        case .refused(let word):
            desk.logger.warning("the identity provider refused a code", metadata: ["error.code": "\(word)"])
            return .refused(.forbidden, "The identity provider did not confirm the sign-in. Sign in again.")
        case .token(let refusal):
            desk.security.refused("console", refusal.rawValue, desk.logger)
            return .refused(
                .forbidden,
                refusal == .expired || refusal == .fromTheFuture
                    ? "What the identity provider says is of another time: its clock and this machine's differ by more than five"
                        + " minutes."
                    : "What the identity provider says is not meant for this console."
            )
        }
    }
}
