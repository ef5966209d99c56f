package import Configuring
package import Entitlements
import Foundation
import StoreClients
import Transport
package import X509

/// The settings of every store that is on, in the form that its client takes.
package struct StoreSettings {
    private(set) var revenueCat: RevenueCatConfiguration?
    /// With the key that may move purchases.
    private(set) var revenueCatTransfers: RevenueCatConfiguration?
    private(set) var appStore: AppStoreConfiguration?
    private(set) var googlePlay: GooglePlayConfiguration?
    private(set) var onside: OnsideConfiguration?
    private(set) var transactionRoots: [Certificate] = []
    private(set) var receiptRoots: [Certificate] = []
    /// What each store that is on is asked with, for a digest that shows when it changes.
    package let credentials: [Store: [String]]
    private var faults: [ConfigurationFault] = []

    /// Checks the settings, as far as only making them shows what is wrong, and that there is anybody to ask.
    ///
    /// - Throws: `ConfigurationFaults`, of all stores at once; `CommandFailure` where no store is on.
    package init(_ config: Config) throws {
        credentials = Self.credentials(config)
        revenueCat = config.revenueCat.flatMap { revenueCat($0, key: $0.apiKey) }
        revenueCatTransfers = config.revenueCat.flatMap { access in
            access.transferKey.flatMap { revenueCat(access, key: $0) }
        }
        if config.appStore.bundleID != nil {
            let roots = StoreRoots(config.appStore)
            transactionRoots = try certificates(roots.transactions)
            receiptRoots = try certificates(roots.receipts)
        }
        appStore = config.appStore.access.flatMap { appStore($0) }
        googlePlay = config.googlePlay.flatMap { googlePlay($0) }
        onside = config.onside.flatMap { onside($0) }
        guard faults.isEmpty else { throw ConfigurationFaults(faults: faults) }
        guard revenueCat != nil || appStore != nil || googlePlay != nil || onside != nil else {
            throw CommandFailure(
                .configuration,
                "no store is configured; set REVENUECAT_API_KEY and REVENUECAT_PROJECT_ID, or the credentials of the App"
                    + " Store, Google Play or Onside"
            )
        }
    }

    private static func credentials(_ config: Config) -> [Store: [String]] {
        var credentials: [Store: [String]] = [:]
        if let access = config.revenueCat { credentials[.revenueCat] = [access.apiKey.reveal(), access.projectID] }
        if let access = config.appStore.access {
            credentials[.appStore] = [access.issuerID, access.keyID, access.privateKey.reveal(), access.bundleID]
        }
        if let access = config.googlePlay {
            credentials[.googlePlay] = [access.serviceAccount.reveal(), access.packageName]
        }
        if let access = config.onside {
            credentials[.onside] = [
                access.merchantID, access.merchantSecret.reveal(), access.secretKeyID, access.bundleID,
            ]
        }
        return credentials
    }

    private mutating func certificates(_ read: () throws -> [Certificate]) throws -> [Certificate] {
        do {
            return try read()
        } catch let error as ConfigurationFaults {
            faults += error.faults
            return []
        }
    }

    private mutating func revenueCat(_ access: RevenueCatSettings, key: Secret) -> RevenueCatConfiguration? {
        usable { () throws(SettingFaults<RevenueCatConfiguration.Fault>) in
            try RevenueCatConfiguration(apiKey: key.reveal(), projectID: access.projectID, baseURL: access.baseURL)
        }
    }

    private mutating func appStore(_ access: AppStoreSettings.Access) -> AppStoreConfiguration? {
        usable { () throws(SettingFaults<AppStoreConfiguration.Fault>) in
            try AppStoreConfiguration(
                issuerID: access.issuerID,
                keyID: access.keyID,
                privateKey: access.privateKey.reveal(),
                bundleID: access.bundleID,
                baseURL: access.baseURL ?? "https://api.storekit.apple.com",
                sandboxBaseURL: access.sandboxBaseURL ?? "https://api.storekit-sandbox.apple.com"
            )
        }
    }

    private mutating func googlePlay(_ access: GooglePlaySettings) -> GooglePlayConfiguration? {
        usable { () throws(SettingFaults<GooglePlayConfiguration.Fault>) in
            try GooglePlayConfiguration(
                serviceAccount: access.serviceAccount.reveal(),
                packageName: access.packageName,
                baseURL: access.baseURL ?? "https://androidpublisher.googleapis.com",
                oauthBaseURL: access.oauthBaseURL
            )
        }
    }

    private mutating func onside(_ access: OnsideSettings) -> OnsideConfiguration? {
        usable { () throws(SettingFaults<OnsideConfiguration.Fault>) in
            try OnsideConfiguration(
                merchantID: access.merchantID,
                merchantSecret: access.merchantSecret.reveal(),
                secretKeyID: access.secretKeyID,
                bundleID: access.bundleID,
                baseURL: access.baseURL ?? "https://onside.io",
                secretIsBase64: access.secretIsBase64
            )
        }
    }

    /// A store's settings; `nil`, and their faults noted, where its client can't use them.
    private mutating func usable<Settings, Fault: SettingFault>(
        _ make: () throws(SettingFaults<Fault>) -> Settings
    ) -> Settings? {
        do {
            return try make()
        } catch {
            faults += error.faults.map(\.configurationFault)
            return nil
        }
    }
}

/// Makes something of the configuration.
///
/// - Throws: `ConfigurationFaults` with what is wrong with its settings.
func configured<Made, Fault: SettingFault>(
    _ make: () throws(SettingFaults<Fault>) -> Made
) throws(ConfigurationFaults) -> Made {
    do {
        return try make()
    } catch {
        throw ConfigurationFaults(faults: error.faults.map(\.configurationFault))
    }
}

/// Something that only the store's client finds wrong with the settings, and the variable that holds it.
protocol SettingFault: RawRepresentable<String>, Hashable, Sendable {
    var variable: Variable { get }
}

extension SettingFault {
    /// What is wrong, and what to do about it.
    package var configurationFault: ConfigurationFault {
        ConfigurationFault(
            variable: variable.rawValue,
            problem: rawValue,
            fix: variable.isSecret ? "Set it, best as the path in \(variable.fileVariable)" : "Set it again"
        )
    }
}

extension RevenueCatConfiguration.Fault: SettingFault {
    package var variable: Variable {
        switch self {
        // There is no variable for the number of pages, and the usual one is sound.
        case .apiKey, .maxPages: .revenueCatAPIKey
        case .projectID: .revenueCatProjectID
        case .baseURL, .insecureBaseURL: .revenueCatBaseURL
        }
    }
}

extension AppStoreConfiguration.Fault: SettingFault {
    package var variable: Variable {
        switch self {
        case .issuerID: .appStoreIssuerID
        case .keyID: .appStoreKeyID
        case .bundleID: .appStoreBundleID
        case .privateKey: .appStorePrivateKey
        case .baseURL, .insecureBaseURL: .appStoreBaseURL
        case .sandboxBaseURL, .insecureSandboxBaseURL: .appStoreSandboxBaseURL
        }
    }
}

extension GooglePlayConfiguration.Fault: SettingFault {
    package var variable: Variable {
        switch self {
        case .serviceAccount, .privateKey, .tokenURI: .googlePlayServiceAccount
        case .packageName: .googlePlayPackageName
        case .baseURL, .insecureBaseURL: .googlePlayBaseURL
        case .oauthBaseURL, .insecureOAuthBaseURL: .googleOAuthBaseURL
        }
    }
}

extension OnsideConfiguration.Fault: SettingFault {
    package var variable: Variable {
        switch self {
        case .merchantID: .onsideMerchantID
        case .merchantSecret, .encodedSecret: .onsideMerchantSecret
        case .secretKeyID: .onsideSecretKeyID
        case .bundleID: .onsideBundleID
        case .baseURL, .insecureBaseURL: .onsideBaseURL
        }
    }
}

/// The certificates that what the App Store signs has to lead to: ours, or those of a file.
package struct StoreRoots {
    private let settings: AppStoreSettings

    package init(_ settings: AppStoreSettings) { self.settings = settings }

    /// - Throws: `ConfigurationFaults`.
    package func transactions() throws -> [Certificate] {
        try read(settings.rootCertificates, .appStoreRootCertificates) ?? AppStoreRoots.shipped()
    }

    /// - Throws: `ConfigurationFaults`.
    package func receipts() throws -> [Certificate] {
        try read(settings.receiptRootCertificates, .receiptRootCertificates) ?? AppStoreRoots.shippedForReceipts()
    }

    private func read(_ path: String?, _ variable: Variable) throws -> [Certificate]? {
        guard let path else { return nil }
        do {
            return try AppStoreRoots.read(pem: String(contentsOfFile: path, encoding: .utf8))
        } catch {
            let problem = "no certificates can be read from the file"
            let fix = "Set the path of a PEM file"
            throw ConfigurationFaults(faults: [.init(variable: variable.rawValue, problem: problem, fix: fix)])
        }
    }
}
