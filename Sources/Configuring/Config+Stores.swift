import Foundation

extension Config {
    static func appStore(_ reader: inout VariableReader) -> AppStoreSettings {
        let bundleID = bundleID(.appStoreBundleID, &reader)
        let issuerID = identifier(.appStoreIssuerID, "Set the issuer id as App Store Connect shows it", &reader)
        let keyID = identifier(.appStoreKeyID, "Set the id of the In-App Purchase key", &reader)
        let privateKey = reader.parsed(
            .appStorePrivateKey,
            fix: "Set the In-App Purchase key (.p8), best as the path in APP_STORE_PRIVATE_KEY_FILE"
        ) { text -> Result<Secret, VariableReader.Problem> in
            guard text.contains("-----BEGIN PRIVATE KEY-----") else {
                return .failure(.init("is no private key in PEM (PKCS#8)"))
            }
            return text.contains("\\n")
                ? .failure(.init("holds \\n as two characters where lines have to end")) : .success(Secret(text))
        }
        let appID = reader.number(.appStoreAppID, default: 0, in: 0...Int.max)
        let requestsPerMinute = rate(.appStoreRequestsPerMinute, default: 3000, &reader)
        var settings = AppStoreSettings(
            bundleID: bundleID,
            appID: appID == 0 ? nil : Int64(appID),
            rootCertificates: reader.text(.appStoreRootCertificates),
            receiptRootCertificates: reader.text(.receiptRootCertificates),
            access: nil
        )
        let baseURL = baseURL(.appStoreBaseURL, &reader)
        let sandboxBaseURL = Self.baseURL(.appStoreSandboxBaseURL, &reader)
        // The bundle id alone lets proofs be verified.
        guard issuerID != nil || keyID != nil || privateKey != nil else { return settings }
        if let issuerID, let keyID, let privateKey, let bundleID {
            settings.access = AppStoreSettings.Access(
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
                "the App Store",
                &reader
            )
        }
        return settings
    }

    static func googlePlay(_ reader: inout VariableReader) -> GooglePlaySettings? {
        let account = reader.parsed(
            .googlePlayServiceAccount,
            fix: "Set the service account's key file, best as the path in GOOGLE_PLAY_SERVICE_ACCOUNT_FILE"
        ) { text in
            text.first == "{" && text.contains("private_key")
                ? .success(Secret(text)) : .failure(.init("is no service account's JSON"))
        }
        let package = bundleID(.googlePlayPackageName, &reader)
        let acknowledges = reader.choice(.googlePlayAcknowledge, default: Switch.true) == .true
        let requestsPerMinute = rate(.googlePlayRequestsPerMinute, default: 2400, &reader)
        let baseURL = baseURL(.googlePlayBaseURL, &reader)
        let oauthBaseURL = Self.baseURL(.googleOAuthBaseURL, &reader)
        // The name alone serves the door of the store's notifications.
        guard account != nil || package != nil && reader.text(.pubSubAudience) == nil else { return nil }
        guard let account, let package else {
            missing(
                [(.googlePlayServiceAccount, account != nil), (.googlePlayPackageName, package != nil)],
                "Google Play",
                &reader
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

    static func onside(_ reader: inout VariableReader) -> OnsideSettings? {
        let merchantID = identifier(.onsideMerchantID, "Set the Merchant ID that Onside gave you", &reader)
        let secret = reader.text(.onsideMerchantSecret).map(Secret.init)
        let encoding = reader.choice(.onsideMerchantSecretEncoding, default: SecretEncoding.text)
        let keyID = identifier(.onsideSecretKeyID, "Set the Secret Key ID that Onside gave you", &reader)
        let bundleID = bundleID(.onsideBundleID, &reader)
        let baseURL = baseURL(.onsideBaseURL, &reader)
        let requestsPerMinute = rate(.onsideRequestsPerMinute, default: 120, &reader)
        guard merchantID != nil || secret != nil || keyID != nil || bundleID != nil else { return nil }
        guard let merchantID, let secret, let keyID, let bundleID else {
            missing(
                [
                    (.onsideMerchantID, merchantID != nil), (.onsideMerchantSecret, secret != nil),
                    (.onsideSecretKeyID, keyID != nil), (.onsideBundleID, bundleID != nil),
                ],
                "Onside",
                &reader
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

    static func accounts(_ reader: inout VariableReader) -> AccountSettings {
        let keys =
            reader.parsed(.accountIDKeys, fix: "Set the keys, separated by commas") {
                text -> Result<[Secret], VariableReader.Problem> in
                let keys = text.split(separator: ",").map { Secret(String($0)) }
                return keys.isEmpty ? .failure(.init("holds no key")) : .success(keys)
            } ?? []
        let namespace = reader.parsed(.accountIDNamespace, fix: "Set the UUID of the namespace") { text in
            UUID(uuidString: text).map(Result.success) ?? .failure(.init("is no UUID"))
        }
        return AccountSettings(keys: keys, namespace: namespace)
    }

    private enum Switch: String, CaseIterable {
        case `true`, `false`
    }

    private enum SecretEncoding: String, CaseIterable {
        case text, base64
    }

    private static func rate(_ variable: Variable, default usual: Int, _ reader: inout VariableReader) -> Int {
        reader.number(variable, default: usual, in: 0...100_000, unit: "requests a minute, 0 for no limit")
    }

    private static func baseURL(_ variable: Variable, _ reader: inout VariableReader) -> String? {
        reader.parsed(
            variable,
            fix: "Set an https:// address; http:// only for a loopback host",
            address(WebAddress.base)
        )
    }

    static func bundleID(_ variable: Variable, _ reader: inout VariableReader) -> String? {
        reader.parsed(variable, fix: "Set the app's id in the store, like com.example.app") { text in
            text.utf8.count <= 255 && text.utf8.allSatisfy({ isIdentifierByte($0) || $0 == 0x2E })
                ? .success(text) : .failure(.init("holds characters that no app's id has, or is too long"))
        }
    }

    private static func identifier(_ variable: Variable, _ fix: String, _ reader: inout VariableReader) -> String? {
        reader.parsed(variable, fix: fix) { text in
            WebAddress.isVisibleASCII(text) && text.utf8.count <= 255
                ? .success(text) : .failure(.init("holds spaces or characters that no id has, or is too long"))
        }
    }

    /// A store is on with all of its credentials and off with none; anything between is a mistake.
    private static func missing(
        _ variables: [(variable: Variable, isSet: Bool)],
        _ store: String,
        _ reader: inout VariableReader
    ) {
        let present = variables.filter(\.isSet).map(\.variable.rawValue).joined(separator: ", ")
        for (variable, isSet) in variables where !isSet && reader.isSound(variable) {
            reader.fault(
                variable,
                "is not set, but \(present) \(present.contains(",") ? "are" : "is")",
                fix: "Set all of them, or none to switch \(store) off"
            )
        }
    }
}
