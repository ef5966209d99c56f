import Entitlements

/// The support desk's pages: where they listen, and how operators sign in.
package struct ConsoleConfig: Sendable {
    /// `nil`: the admin address serves the console.
    package var address: Config.ListenAddress?
    /// How browsers reach it, without a slash at the end: `https://desk.example.com`.
    package var url: String?
    /// `nil`: operators have passwords and devices of their own here.
    package var provider: Provider?

    /// The team's identity provider.
    package struct Provider: Sendable {
        package var issuer: String
        package var clientID: String
        package var clientSecret: Secret
        package var scopes: String
        package var groupsClaim: String
        /// The first whose group a person is in is theirs.
        package var roles: [(role: String, group: String)]
        /// How long a sign-in is good for: in this time the provider's word is asked for again.
        package var session: Duration
    }
}

extension Config {
    /// The roles that there are; what each may do stands in the database.
    private static let deskRoles: Set<String> = ["viewer", "agent", "approver", "senior", "auditor", "admin"]

    static func console(_ reader: inout VariableReader) -> ConsoleConfig {
        let isSet = reader.text(.consoleHost) != nil || reader.text(.consolePort) != nil
        let address = listenAddress(&reader, host: .consoleHost, port: .consolePort, defaultPort: 9091)
        let url = reader.parsed(
            .consoleURL,
            fix:
                "Set the address that operators open, such as https://desk.example.com; http:// only for a loopback host"
        ) { text -> Result<String, VariableReader.Problem> in
            switch Config.address(WebAddress.base)(text) {
            case .success(let base) where base.split(separator: "/").count == 2: return .success(base)
            case .success: return .failure(.init("has a path"))
            case .failure(let problem): return .failure(problem)
            }
        }
        return ConsoleConfig(address: isSet ? address : nil, url: url, provider: provider(&reader, url: url))
    }

    private static func provider(_ reader: inout VariableReader, url: String?) -> ConsoleConfig.Provider? {
        let issuer = issuer(.oidcIssuer, &reader)
        let clientID = reader.text(.oidcClientID)
        let secret = reader.text(.oidcClientSecret).map(Secret.init)
        let roles = reader.parsed(
            .oidcRoles,
            fix:
                "Set role=group pairs separated by commas, such as approver=support-approvers,admin=support-admins, with the"
                + " roles viewer, agent, approver, senior, auditor and admin",
            roles
        )
        let scopes = reader.text(.oidcScopes) ?? "openid profile email"
        if !scopes.split(separator: " ").contains("openid"), reader.isSound(.oidcScopes) {
            reader.fault(.oidcScopes, "has no scope openid", fix: "Set scopes separated by spaces, with openid")
        }
        let minutes = reader.number(.oidcSessionMinutes, default: 30, in: 5...720, unit: "minutes")
        let groups = reader.text(.oidcGroupsClaim) ?? "groups"
        if let issuer, let clientID, let secret, let roles, url != nil {
            return ConsoleConfig.Provider(
                issuer: issuer,
                clientID: clientID,
                clientSecret: secret,
                scopes: scopes,
                groupsClaim: groups,
                roles: roles,
                session: .seconds(60 * minutes)
            )
        }
        let isMeant = issuer != nil || clientID != nil || secret != nil || roles != nil
        for (variable, isMissing) in [
            (Variable.oidcIssuer, issuer == nil), (.oidcClientID, clientID == nil), (.oidcClientSecret, secret == nil),
            (.oidcRoles, roles == nil), (.consoleURL, url == nil),
        ] where isMeant && isMissing && reader.isSound(variable) {
            reader.fault(
                variable,
                "is not set, but others of sign-in through an identity provider are",
                fix:
                    "Set OIDC_ISSUER, OIDC_CLIENT_ID, OIDC_CLIENT_SECRET, OIDC_ROLES and CONSOLE_URL, or none of the first"
                    + " four to have operators sign in here"
            )
        }
        return nil
    }

    private static func roles(
        _ text: String
    ) -> Result<[(role: String, group: String)], VariableReader.Problem> {
        var pairs: [(role: String, group: String)] = []
        for entry in text.split(separator: ",", omittingEmptySubsequences: false) {
            let sides = entry.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            let role = sides[0].filter { $0 != " " }
            guard sides.count == 2, deskRoles.contains(role), !sides[1].isEmpty else {
                return .failure(.init("holds an entry that is no role and group"))
            }
            pairs.append((role, String(sides[1])))
        }
        return pairs.count <= 100 ? .success(pairs) : .failure(.init("has more than 100 entries"))
    }

    /// Kept as it is: tokens have it byte for byte, with the slash at its end where there is one.
    static func issuer(_ variable: Variable, _ reader: inout VariableReader) -> String? {
        reader.parsed(
            variable,
            fix: "Set the issuer as its tokens have it, an https:// address; http:// only for a loopback host"
        ) { text in address(WebAddress.base)(text).map { _ in text } }
    }
}
