import TextFormats
package import Transport

/// Where the accounts of a Firebase project are kept, and in whose name their custom claims are changed.
package struct FirebaseConfiguration: Sendable {
    /// The project's id, not its number.
    package let projectID: String
    let access: GoogleAccess
    let base: BaseURL

    /// Checks and keeps the settings; throws every fault at once.
    ///
    /// The service account is the JSON text of its key file, and names the project where `projectID` does not. The base URL is what
    /// stands before `/v1/projects`, that of OAuth what stands before `/token`; by default the key file's `token_uri` is used, which
    /// has to be Google's. Plain http is taken for loopback hosts only.
    package init(
        serviceAccount: String,
        projectID: String? = nil,
        baseURL: String = "https://identitytoolkit.googleapis.com",
        oauthBaseURL: String? = nil
    ) throws(SettingFaults<Fault>) {
        var faults: [Fault] = []
        let access = GoogleAccess(
            serviceAccount: serviceAccount,
            scope: "https://www.googleapis.com/auth/identitytoolkit",
            oauthBaseURL: oauthBaseURL,
            &faults
        )
        let base = BaseURL.read(baseURL, malformed: .baseURL, insecure: .insecureBaseURL, &faults)
        let project = projectID ?? access?.account.projectID
        if access != nil, project.map(Self.isProjectID) != true { faults.append(.projectID) }
        guard faults.isEmpty, let access, let base, let project else {
            throw SettingFaults(faults: Fault.allCases.filter(faults.contains))
        }
        self.projectID = project
        self.access = access
        self.base = base
    }

    /// It stands in paths as it is.
    private static func isProjectID(_ text: String) -> Bool {
        (1...128).contains(text.utf8.count) && text.utf8.allSatisfy { $0.isLetterOrDigit || "-:.".utf8.contains($0) }
            && text != "." && text != ".."
    }

    /// What may be wrong with the settings.
    package enum Fault: String, Sendable, CaseIterable, GoogleAccessFault {
        case serviceAccount = "the service account is not the JSON text of a service account's key file"
        case privateKey = "the service account's private key is no RSA key of 2048 bits or more in PEM"
        case tokenURI = "the service account's token_uri is not https://oauth2.googleapis.com/token"
        case projectID = "no project is named, neither by itself nor in the service account's key file"
        case baseURL = "the base URL is not of the form https://host[:port][/path]"
        case insecureBaseURL = "the base URL is plain http to a host other than loopback"
        case oauthBaseURL = "the OAuth base URL is not of the form https://host[:port][/path]"
        case insecureOAuthBaseURL = "the OAuth base URL is plain http to a host other than loopback"
    }
}

extension FirebaseConfiguration: RedactedSettings {
    /// The settings without the account.
    package var description: String { "FirebaseConfiguration(\(base.text), \(projectID), account redacted)" }
}
