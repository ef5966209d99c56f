import TextFormats
package import Transport

/// Where RevenueCat is, and with which key we ask it.
package struct RevenueCatConfiguration: Sendable {
    /// The secret key of the version-2 kind, which is never described.
    package let apiKey: String
    package let projectID: String
    /// The most pages read of one list; a customer with more is never read fully.
    package let maxPages: Int
    let base: BaseURL

    /// Checks and keeps the settings, such as `sk_…` and `proj0a1b2c3d`; throws every fault at once.
    ///
    /// `/v2` is appended where the base URL's path does not end in it; plain http is taken for loopback hosts only.
    package init(
        apiKey: String,
        projectID: String,
        baseURL: String = "https://api.revenuecat.com/v2",
        maxPages: Int = 50
    ) throws(SettingFaults<Fault>) {
        var faults: [Fault] = []
        // Whatever is not visible ASCII would be refused or cut on its way into the header.
        if apiKey.isEmpty || !apiKey.utf8.allSatisfy(\.isVisible) { faults.append(.apiKey) }
        if projectID.isEmpty || PathSegment(projectID) == nil { faults.append(.projectID) }
        if maxPages < 1 { faults.append(.maxPages) }
        let base = BaseURL.read(baseURL, endingIn: "v2", malformed: .baseURL, insecure: .insecureBaseURL, &faults)
        guard let base, faults.isEmpty else { throw SettingFaults(faults: faults) }
        self.apiKey = apiKey
        self.projectID = projectID
        self.maxPages = maxPages
        self.base = base
    }
}

extension RevenueCatConfiguration: RedactedSettings {
    /// The settings without the key.
    package var description: String {
        "RevenueCatConfiguration(\(base.text), key redacted)"
    }
}

extension RevenueCatConfiguration {
    /// What may be wrong with the settings.
    package enum Fault: String, Sendable, CaseIterable {
        case apiKey = "the API key is empty or holds characters other than visible ASCII"
        case projectID = "the project id is empty or no path segment"
        case maxPages = "the page limit is below 1"
        case baseURL = "the base URL is not of the form https://host[:port][/path]"
        case insecureBaseURL = "the base URL is plain http to a host other than loopback"
    }
}
