extension VariableReader {
    mutating func api(webhooks: APIConfig.Webhooks) -> APIConfig {
        let maxConnections = number(.httpMaxConnections, default: 10_000, in: 16...1_000_000)
        return APIConfig(
            perAddress: rate(.requestsPerMinutePerAddress, default: 600, most: 1_000_000),
            perUser: rate(.requestsPerMinutePerUser, default: 60, most: 1_000_000),
            trustedProxies: text(.httpTrustedProxies),
            allowedOrigins: origins(),
            maxConnections: maxConnections,
            // One address alone never holds so many that others find no place.
            maxConnectionsPerAddress: number(
                .httpMaxConnectionsPerAddress,
                default: min(500, maxConnections / 4),
                in: 1...1_000_000
            ),
            databaseWait: .seconds(number(.httpDatabaseWait, default: 25, in: 0...120)),
            firebase: firebase(),
            issuer: appIssuer(),
            messages: text(.messages),
            webhooks: webhooks
        )
    }

    private mutating func origins() -> [String] {
        parsed(
            .httpAllowedOrigins,
            fix:
                "Set at most \(Self.mostOrigins) origins such as https://app.example.com, separated by commas; http:// only for"
                + " a loopback host"
        ) { text in
            var origins: [String] = []
            for entry in text.split(separator: ",", omittingEmptySubsequences: false) {
                let origin = String(entry.drop { $0 == " " })
                do throws(WebAddress.Fault) {
                    origins.append(try WebAddress.origin(origin))
                } catch {
                    return .failure(Problem("holds \(quoted(origin)), which \(error.problem)"))
                }
            }
            return origins.count <= Self.mostOrigins
                ? .success(origins) : .failure(Problem("has more than \(Self.mostOrigins) entries"))
        } ?? []
    }

    private static let mostOrigins = 20

    private mutating func firebase() -> APIConfig.Firebase? {
        let keysURL = address(.firebaseKeysURL)
        let projectID = parsed(
            .firebaseProjectID,
            fix: "Set the project's id as Firebase shows it",
            else: "holds characters that no project's id has, or is too long"
        ) { text in
            let isID = text.utf8.allSatisfy { Self.isIdentifier($0) || $0 == 0x2E || $0 == 0x3A }
            return text.utf8.count <= 128 && isID ? text : nil
        }
        return projectID.map { APIConfig.Firebase(projectID: $0, keysURL: keysURL) }
    }

    private mutating func appIssuer() -> APIConfig.Issuer? {
        let issuer = issuer(.appTokenIssuer)
        let audience = text(.appTokenAudience)
        let keysURL = address(.appTokenKeysURL)
        let claim = text(.appTokenUserClaim)
        if let issuer, let audience {
            return APIConfig.Issuer(issuer: issuer, audience: audience, keysURL: keysURL, userClaim: claim ?? "sub")
        }
        let isMeant = issuer != nil || audience != nil || keysURL != nil || claim != nil
        if isMeant {
            let fix = "Set APP_TOKEN_ISSUER and APP_TOKEN_AUDIENCE, or none of APP_TOKEN_"
            if issuer == nil { missing(.appTokenIssuer, "others of APP_TOKEN_ are", fix: fix) }
            if audience == nil { missing(.appTokenAudience, "others of APP_TOKEN_ are", fix: fix) }
        }
        return nil
    }

    /// `nil`: no webhooks of RevenueCat are taken.
    mutating func revenueCatSender() -> APIConfig.RevenueCatSender? {
        let sender = APIConfig.RevenueCatSender(
            authorization: secret(.revenueCatWebhookAuthorization),
            secret: secret(.revenueCatWebhookSecret)
        )
        return sender.authorization == nil && sender.secret == nil ? nil : sender
    }

    /// A secret; how hard it is to guess is the sender's settings' business.
    private mutating func secret(_ variable: Variable) -> Secret? {
        let fix = "Set at most 4096 characters, best 32 random ones or more"
        return parsed(variable, fix: fix, else: "is too long") { $0.utf8.count <= 4_096 ? Secret($0) : nil }
    }

    /// `nil`: no pushes of Google Play are taken.
    mutating func push() -> APIConfig.Push? {
        let audience = text(.pubSubAudience)
        let serviceAccount = parsed(
            .pubSubServiceAccount,
            fix: "Set the address of the service account that the push subscription signs with",
            else: "is no address"
        ) { text in
            let sides = text.split(separator: "@", omittingEmptySubsequences: false)
            return sides.count == 2 && !sides.contains("") && text.utf8.count <= 320 ? text : nil
        }
        let keysURL = address(.googleKeysURL)
        // Read once more: what is wrong with it has been said.
        let packageName = text(.googlePlayPackageName)
        if let audience, let serviceAccount, let packageName {
            return APIConfig.Push(
                audience: audience,
                serviceAccount: serviceAccount,
                packageName: packageName,
                keysURL: keysURL
            )
        }
        let fix =
            "Set PUBSUB_AUDIENCE, PUBSUB_SERVICE_ACCOUNT and GOOGLE_PLAY_PACKAGE_NAME, or none of the first two to take no"
            + " pushes of Google Play"
        if packageName == nil, audience != nil { missing(.googlePlayPackageName, "PUBSUB_AUDIENCE is", fix: fix) }
        if audience == nil, serviceAccount != nil { missing(.pubSubAudience, "PUBSUB_SERVICE_ACCOUNT is", fix: fix) }
        if audience != nil, serviceAccount == nil { missing(.pubSubServiceAccount, "PUBSUB_AUDIENCE is", fix: fix) }
        return nil
    }

    // MARK: The console

    /// The roles that there are; what each may do stands in the database.
    private static let deskRoles: Set<String> = ["viewer", "agent", "approver", "senior", "auditor", "admin"]

    mutating func console() -> ConsoleConfig {
        let isSet = text(.consoleHost) != nil || text(.consolePort) != nil
        let listen = listenAddress(host: .consoleHost, port: .consolePort, default: 9091)
        let url = address(
            .consoleURL,
            fix:
                "Set the address that operators open, such as https://desk.example.com; http:// only for a loopback host"
        ) { text throws(WebAddress.Fault) in
            let base = try WebAddress.base(text)
            guard base.split(separator: "/").count == 2 else { throw WebAddress.Fault(problem: "has a path") }
            return base
        }
        return ConsoleConfig(address: isSet ? listen : nil, url: url, provider: provider(url: url))
    }

    private mutating func provider(url: String?) -> ConsoleConfig.Provider? {
        let issuer = issuer(.oidcIssuer)
        let clientID = text(.oidcClientID)
        let secret = text(.oidcClientSecret).map(Secret.init)
        let roles = parsed(
            .oidcRoles,
            fix:
                "Set role=group pairs separated by commas, such as approver=support-approvers,admin=support-admins, with the"
                + " roles viewer, agent, approver, senior, auditor and admin",
            Self.roles
        )
        let scopes = text(.oidcScopes) ?? "openid profile email"
        if !scopes.split(separator: " ").contains("openid"), isSound(.oidcScopes) {
            fault(.oidcScopes, "has no scope openid", fix: "Set scopes separated by spaces, with openid")
        }
        let minutes = number(.oidcSessionMinutes, default: 30, in: 5...720, unit: "minutes")
        let groups = text(.oidcGroupsClaim) ?? "groups"
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
        let needed = [
            (Variable.oidcIssuer, issuer != nil), (.oidcClientID, clientID != nil), (.oidcClientSecret, secret != nil),
            (.oidcRoles, roles != nil), (.consoleURL, url != nil),
        ]
        for (variable, isSet) in needed where isMeant && !isSet {
            missing(
                variable,
                "others of sign-in through an identity provider are",
                fix:
                    "Set OIDC_ISSUER, OIDC_CLIENT_ID, OIDC_CLIENT_SECRET, OIDC_ROLES and CONSOLE_URL, or none of the first"
                    + " four to have operators sign in here"
            )
        }
        return nil
    }

    private static func roles(
        _ text: String
    ) -> Result<[(role: String, group: String)], Problem> {
        var pairs: [(role: String, group: String)] = []
        for entry in text.split(separator: ",", omittingEmptySubsequences: false) {
            let sides = entry.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            let role = sides[0].filter { $0 != " " }
            guard sides.count == 2, deskRoles.contains(role), !sides[1].isEmpty else {
                return .failure(Problem("holds an entry that is no role and group"))
            }
            pairs.append((role, String(sides[1])))
        }
        return pairs.count <= 100 ? .success(pairs) : .failure(Problem("has more than 100 entries"))
    }

    /// Kept as it is: tokens have it byte for byte, with the slash at its end where there is one.
    private mutating func issuer(_ variable: Variable) -> String? {
        address(
            variable,
            fix: "Set the issuer as its tokens have it, an https:// address; http:// only for a loopback host"
        ) { text throws(WebAddress.Fault) in
            _ = try WebAddress.base(text)
            return text
        }
    }
}
