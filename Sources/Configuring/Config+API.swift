extension Config {
    static func api(_ reader: inout VariableReader) -> APIConfig {
        let maxConnections = reader.number(.httpMaxConnections, default: 10_000, in: 16...1_000_000)
        return APIConfig(
            perAddress: reader.number(
                .requestsPerMinutePerAddress,
                default: 600,
                in: 0...1_000_000,
                unit: "requests a minute, 0 for no limit"
            ),
            perUser: reader.number(
                .requestsPerMinutePerUser,
                default: 60,
                in: 0...1_000_000,
                unit: "requests a minute, 0 for no limit"
            ),
            trustedProxies: reader.text(.httpTrustedProxies),
            maxConnections: maxConnections,
            // One address alone never holds so many that others find no place.
            maxConnectionsPerAddress: reader.number(
                .httpMaxConnectionsPerAddress,
                default: min(500, maxConnections / 4),
                in: 1...1_000_000
            ),
            firebase: firebase(&reader),
            issuer: appIssuer(&reader),
            messages: reader.text(.messages),
            webhooks: webhooks(&reader)
        )
    }

    private static func firebase(_ reader: inout VariableReader) -> APIConfig.Firebase? {
        let keysURL = keysURL(.firebaseKeysURL, &reader)
        let projectID = reader.parsed(.firebaseProjectID, fix: "Set the project's id as Firebase shows it") { text in
            text.utf8.count <= 128 && text.utf8.allSatisfy({ isIdentifierByte($0) || $0 == 0x2E || $0 == 0x3A })
                ? .success(text) : .failure(.init("holds characters that no project's id has, or is too long"))
        }
        return projectID.map { APIConfig.Firebase(projectID: $0, keysURL: keysURL) }
    }

    private static func appIssuer(_ reader: inout VariableReader) -> APIConfig.Issuer? {
        let issuer = issuer(.appTokenIssuer, &reader)
        let audience = reader.text(.appTokenAudience)
        let keysURL = keysURL(.appTokenKeysURL, &reader)
        let claim = reader.text(.appTokenUserClaim)
        if let issuer, let audience {
            return APIConfig.Issuer(issuer: issuer, audience: audience, keysURL: keysURL, userClaim: claim ?? "sub")
        }
        let isMeant = issuer != nil || audience != nil || keysURL != nil || claim != nil
        for (variable, isMissing) in [
            (Variable.appTokenIssuer, issuer == nil), (.appTokenAudience, audience == nil),
        ] where isMeant && isMissing && reader.isSound(variable) {
            reader.fault(
                variable,
                "is not set, but others of APP_TOKEN_ are",
                fix: "Set APP_TOKEN_ISSUER and APP_TOKEN_AUDIENCE, or none of APP_TOKEN_"
            )
        }
        return nil
    }

    private static func webhooks(_ reader: inout VariableReader) -> APIConfig.Webhooks {
        APIConfig.Webhooks(
            revenueCatAuthorization: secret(.revenueCatWebhookAuthorization, &reader),
            revenueCatSecret: secret(.revenueCatWebhookSecret, &reader),
            push: push(&reader)
        )
    }

    /// A secret; how hard it is to guess is the sender's settings' business.
    private static func secret(_ variable: Variable, _ reader: inout VariableReader) -> Secret? {
        reader.parsed(variable, fix: "Set at most 4096 characters, best 32 random ones or more") { text in
            text.utf8.count <= 4_096 ? .success(Secret(text)) : .failure(.init("is too long"))
        }
    }

    private static func push(_ reader: inout VariableReader) -> APIConfig.Push? {
        let audience = reader.text(.pubSubAudience)
        let serviceAccount = reader.parsed(
            .pubSubServiceAccount,
            fix: "Set the address of the service account that the push subscription signs with"
        ) { text -> Result<String, VariableReader.Problem> in
            let sides = text.split(separator: "@", omittingEmptySubsequences: false)
            return sides.count == 2 && !sides.contains("") && text.utf8.count <= 320
                ? .success(text) : .failure(.init("is no address"))
        }
        let keysURL = keysURL(.googleKeysURL, &reader)
        // Read once more: what is wrong with it has been said.
        let packageName = reader.text(.googlePlayPackageName)
        if let audience, let serviceAccount, let packageName {
            return APIConfig.Push(
                audience: audience,
                serviceAccount: serviceAccount,
                packageName: packageName,
                keysURL: keysURL
            )
        }
        for (variable, other, isMissing) in [
            (Variable.googlePlayPackageName, Variable.pubSubAudience, packageName == nil && audience != nil),
            (.pubSubAudience, .pubSubServiceAccount, audience == nil && serviceAccount != nil),
            (.pubSubServiceAccount, .pubSubAudience, audience != nil && serviceAccount == nil),
        ] where isMissing && reader.isSound(variable) {
            reader.fault(
                variable,
                "is not set, but \(other.rawValue) is",
                fix:
                    "Set PUBSUB_AUDIENCE, PUBSUB_SERVICE_ACCOUNT and GOOGLE_PLAY_PACKAGE_NAME, or none of the first two to take no"
                    + " pushes of Google Play"
            )
        }
        return nil
    }

    private static func keysURL(_ variable: Variable, _ reader: inout VariableReader) -> String? {
        reader.parsed(
            variable,
            fix: "Set an https:// address; http:// only for a loopback host",
            address(WebAddress.base)
        )
    }
}
