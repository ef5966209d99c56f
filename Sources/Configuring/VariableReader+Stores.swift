import Foundation

extension VariableReader {
    mutating func revenueCat() -> RevenueCatSettings? {
        let apiKey = secretKey(.revenueCatAPIKey, "Set a secret API key (v2) as RevenueCat shows it")
        let transferKey = secretKey(
            .revenueCatTransferAPIKey,
            "Set a secret API key (v2) that may write customer information"
        )
        let projectID = parsed(
            .revenueCatProjectID,
            fix: "Set the project's id as RevenueCat shows it",
            else: "holds characters that no project id has, or is too long"
        ) { $0.utf8.count <= 128 && $0.utf8.allSatisfy(Self.isIdentifier) ? $0 : nil }
        let baseURL = address(
            .revenueCatBaseURL,
            fix: "Set an https:// address without user, query and fragment; http:// serves loopback hosts alone"
        )
        let rate = rate(.revenueCatRequestsPerMinute, default: 480)
        if let apiKey, let projectID {
            return RevenueCatSettings(
                apiKey: apiKey,
                projectID: projectID,
                baseURL: baseURL ?? "https://api.revenuecat.com/v2",
                requestsPerMinute: rate,
                transferKey: transferKey
            )
        }
        if transferKey != nil, apiKey == nil {
            let fix = "Set both: what is moved has to be read as well"
            missing(.revenueCatAPIKey, "REVENUECAT_TRANSFER_API_KEY is", fix: fix)
        }
        let fix = "Set both, or neither to switch RevenueCat off"
        if apiKey != nil { missing(.revenueCatProjectID, "REVENUECAT_API_KEY is", fix: fix) }
        if projectID != nil { missing(.revenueCatAPIKey, "REVENUECAT_PROJECT_ID is", fix: fix) }
        return nil
    }

    private mutating func secretKey(_ variable: Variable, _ fix: String) -> Secret? {
        parsed(variable, fix: fix) { text in
            guard WebAddress.isVisibleASCII(text) && text.utf8.count <= 512 else {
                return .failure(Problem("holds spaces or characters that no API key has, or is too long"))
            }
            let publicPrefixes = ["appl_", "goog_", "amzn_", "mac_", "strp_", "rcb_"]
            return publicPrefixes.contains(where: text.hasPrefix)
                ? .failure(Problem("is a public key of the SDK, which may not read customers"))
                : .success(Secret(text))
        }
    }

    mutating func appStore() -> AppStoreSettings {
        let bundleID = bundleID(.appStoreBundleID)
        let issuerID = identifier(.appStoreIssuerID, "Set the issuer id as App Store Connect shows it")
        let keyID = identifier(.appStoreKeyID, "Set the id of the In-App Purchase key")
        let privateKey = parsed(
            .appStorePrivateKey,
            fix: "Set the In-App Purchase key (.p8), best as the path in APP_STORE_PRIVATE_KEY_FILE"
        ) { text -> Result<Secret, Problem> in
            guard text.contains("-----BEGIN PRIVATE KEY-----") else {
                return .failure(Problem("is no private key in PEM (PKCS#8)"))
            }
            return text.contains("\\n")
                ? .failure(Problem("holds \\n as two characters where lines have to end")) : .success(Secret(text))
        }
        let appID = number(.appStoreAppID, default: 0, in: 0...Int.max)
        let requestsPerMinute = rate(.appStoreRequestsPerMinute, default: 3000)
        var settings = AppStoreSettings(
            rootCertificates: [text(.appStoreRootCertificates)],
            receiptRootCertificates: [text(.receiptRootCertificates)]
        )
        if let bundleID { settings.apps = [.init(bundleID: bundleID, appID: appID == 0 ? nil : Int64(appID))] }
        let baseURL = address(.appStoreBaseURL)
        let sandboxBaseURL = address(.appStoreSandboxBaseURL)
        // The bundle id alone lets proofs be verified.
        guard issuerID != nil || keyID != nil || privateKey != nil else { return settings }
        if let issuerID, let keyID, let privateKey, let bundleID {
            settings.apps[0].access = AppStoreSettings.Access(
                issuerID: issuerID,
                keyID: keyID,
                privateKey: privateKey,
                bundleID: bundleID,
                baseURL: baseURL,
                sandboxBaseURL: sandboxBaseURL,
                requestsPerMinute: requestsPerMinute
            )
        } else {
            missing(
                [
                    (.appStoreIssuerID, issuerID != nil), (.appStoreKeyID, keyID != nil),
                    (.appStorePrivateKey, privateKey != nil), (.appStoreBundleID, bundleID != nil),
                ],
                "the App Store"
            )
        }
        return settings
    }

    mutating func googlePlay() -> GooglePlaySettings? {
        let account = serviceAccount(.googlePlayServiceAccount)
        let package = bundleID(.googlePlayPackageName)
        let acknowledges = choice(.googlePlayAcknowledge, default: Switch.true) == .true
        let requestsPerMinute = rate(.googlePlayRequestsPerMinute, default: 2400)
        let baseURL = address(.googlePlayBaseURL)
        let oauthBaseURL = address(.googleOAuthBaseURL)
        // The name alone serves the door of the store's notifications.
        guard account != nil || package != nil && text(.pubSubAudience) == nil else { return nil }
        guard let account, let package else {
            missing(
                [(.googlePlayServiceAccount, account != nil), (.googlePlayPackageName, package != nil)],
                "Google Play"
            )
            return nil
        }
        return GooglePlaySettings(
            serviceAccount: account,
            packageName: package,
            baseURL: baseURL,
            oauthBaseURL: oauthBaseURL,
            acknowledges: acknowledges,
            requestsPerMinute: requestsPerMinute
        )
    }

    private mutating func serviceAccount(_ variable: Variable) -> Secret? {
        parsed(
            variable,
            fix: "Set the service account's key file, best as the path in \(variable.fileVariable)",
            else: "is no service account's JSON"
        ) { $0.first == "{" && $0.contains("private_key") ? Secret($0) : nil }
    }

    /// `nil`: custom claims are not kept.
    mutating func firebaseClaims(projectID: String?) -> FirebaseClaimsSettings? {
        let baseURL = address(.firebaseBaseURL)
        guard let account = serviceAccount(.firebaseServiceAccount) else { return nil }
        return FirebaseClaimsSettings(
            serviceAccount: account,
            projectID: projectID,
            baseURL: baseURL,
            // What is wrong with it has been said with Google Play's settings.
            oauthBaseURL: isSound(.googleOAuthBaseURL) ? address(.googleOAuthBaseURL) : nil
        )
    }

    mutating func onside() -> OnsideSettings? {
        let merchantID = identifier(.onsideMerchantID, "Set the Merchant ID that Onside gave you")
        let secret = text(.onsideMerchantSecret).map(Secret.init)
        let encoding = choice(.onsideMerchantSecretEncoding, default: SecretEncoding.text)
        let keyID = identifier(.onsideSecretKeyID, "Set the Secret Key ID that Onside gave you")
        let bundleID = bundleID(.onsideBundleID)
        let baseURL = address(.onsideBaseURL)
        let requestsPerMinute = rate(.onsideRequestsPerMinute, default: 120)
        guard merchantID != nil || secret != nil || keyID != nil || bundleID != nil else { return nil }
        guard let merchantID, let secret, let keyID, let bundleID else {
            missing(
                [
                    (.onsideMerchantID, merchantID != nil), (.onsideMerchantSecret, secret != nil),
                    (.onsideSecretKeyID, keyID != nil), (.onsideBundleID, bundleID != nil),
                ],
                "Onside"
            )
            return nil
        }
        return OnsideSettings(
            merchantID: merchantID,
            merchantSecret: secret,
            secretIsBase64: encoding == .base64,
            secretKeyID: keyID,
            bundleID: bundleID,
            baseURL: baseURL,
            requestsPerMinute: requestsPerMinute
        )
    }

    mutating func accounts() -> AccountSettings {
        let keys = parsed(.accountIDKeys, fix: "Set the keys, separated by commas", else: "holds no key") { text in
            let keys = text.split(separator: ",").map { Secret(String($0)) }
            return keys.isEmpty ? nil : keys
        }
        let namespace = parsed(.accountIDNamespace, fix: "Set the UUID of the namespace", else: "is no UUID") {
            UUID(uuidString: $0)
        }
        return AccountSettings(keys: keys ?? [], namespace: namespace)
    }

    private enum Switch: String, CaseIterable {
        case `true`, `false`
    }

    private enum SecretEncoding: String, CaseIterable {
        case text, base64
    }

    private mutating func bundleID(_ variable: Variable) -> String? {
        parsed(
            variable,
            fix: "Set the app's id in the store, like com.example.app",
            else: "holds characters that no app's id has, or is too long"
        ) { $0.utf8.count <= 255 && $0.utf8.allSatisfy { Self.isIdentifier($0) || $0 == 0x2E } ? $0 : nil }
    }

    private mutating func identifier(_ variable: Variable, _ fix: String) -> String? {
        parsed(variable, fix: fix, else: "holds spaces or characters that no id has, or is too long") {
            WebAddress.isVisibleASCII($0) && $0.utf8.count <= 255 ? $0 : nil
        }
    }

    /// A store is on with all of its credentials and off with none; anything between is a mistake.
    private mutating func missing(_ variables: [(variable: Variable, isSet: Bool)], _ store: String) {
        let present = variables.filter(\.isSet).map(\.variable.rawValue).joined(separator: ", ")
        for (variable, isSet) in variables where !isSet {
            missing(
                variable,
                "\(present) \(present.contains(",") ? "are" : "is")",
                fix: "Set all of them, or none to switch \(store) off"
            )
        }
    }
}
