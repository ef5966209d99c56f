import TextFormats
package import Transport

/// Where Google Play is, whose purchases we ask for, and in whose name.
package struct GooglePlayConfiguration: Sendable {
    /// The app's package name, such as `com.example.app`.
    package let packageName: String
    let access: GoogleAccess
    let base: BaseURL

    /// Checks and keeps the settings; throws every fault at once.
    ///
    /// The service account is the JSON text of its key file. The base URL is what stands before `/androidpublisher/v3`,
    /// that of OAuth what stands before `/token`; by default the key file's `token_uri` is used, which has to be
    /// Google's. Plain http is taken for loopback hosts only.
    package init(
        serviceAccount: String,
        packageName: String,
        baseURL: String = "https://androidpublisher.googleapis.com",
        oauthBaseURL: String? = nil
    ) throws(SettingFaults<Fault>) {
        var faults: [Fault] = []
        let access = GoogleAccess(
            serviceAccount: serviceAccount,
            scope: "https://www.googleapis.com/auth/androidpublisher",
            oauthBaseURL: oauthBaseURL,
            &faults
        )
        if !Self.isPackageName(packageName) { faults.append(.packageName) }
        let base = BaseURL.read(baseURL, malformed: .baseURL, insecure: .insecureBaseURL, &faults)
        guard faults.isEmpty, let access, let base else {
            throw SettingFaults(faults: Fault.allCases.filter(faults.contains))
        }
        self.access = access
        self.packageName = packageName
        self.base = base
    }

    private static func isPackageName(_ text: String) -> Bool {
        let parts = text.split(separator: ".", omittingEmptySubsequences: false)
        return text.utf8.count <= 255 && parts.count >= 2
            && parts.allSatisfy { part in
                !part.isEmpty && part.utf8.allSatisfy { $0 == UInt8(ascii: "_") || $0.isLetterOrDigit }
            }
    }
}

extension GooglePlayConfiguration: RedactedSettings {
    /// The settings without the account.
    package var description: String {
        "GooglePlayConfiguration(\(base.text), \(packageName), account redacted)"
    }
}

extension GooglePlayConfiguration {
    /// What may be wrong with the settings.
    package enum Fault: String, Sendable, CaseIterable, GoogleAccessFault {
        case serviceAccount = "the service account is not the JSON text of a service account's key file"
        case privateKey = "the service account's private key is no RSA key of 2048 bits or more in PEM"
        case tokenURI = "the service account's token_uri is not https://oauth2.googleapis.com/token"
        case packageName = "the package name is not of the form com.example.app"
        case baseURL = "the base URL is not of the form https://host[:port][/path]"
        case insecureBaseURL = "the base URL is plain http to a host other than loopback"
        case oauthBaseURL = "the OAuth base URL is not of the form https://host[:port][/path]"
        case insecureOAuthBaseURL = "the OAuth base URL is plain http to a host other than loopback"
    }
}
