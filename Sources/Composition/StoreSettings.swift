package import Configuring
import Entitlements
import Foundation
package import RateLimits
import StoreClients
import Transport
package import X509

/// The settings of every store that is on, in the form that its clients take: one for each app of it.
package struct StoreSettings {
    private(set) var revenueCat: [RevenueCatConfiguration] = []
    /// With the keys that may move purchases.
    private(set) var revenueCatTransfers: [RevenueCatConfiguration] = []
    private(set) var appStore: [AppStoreConfiguration] = []
    private(set) var googlePlay: [GooglePlayConfiguration] = []
    private(set) var onside: OnsideConfiguration?
    private(set) var transactionRoots: [Certificate] = []
    private(set) var receiptRoots: [Certificate] = []
    /// What each app of each store that is on is asked with, for a digest that shows when it changes.
    package let credentials: [StoreCredential]
    private let config: Config
    private var faults: [ConfigurationFault] = []

    /// Checks the settings, as far as only making them shows what is wrong, and that there is anybody to ask.
    ///
    /// - Throws: `ConfigurationFaults`, of all stores at once; `CommandFailure` where no store is on.
    package init(_ config: Config) throws {
        self.config = config
        credentials = Self.credentials(config)
        for access in config.revenueCat {
            if let made = revenueCat(access, key: access.apiKey) { revenueCat.append(made) }
            guard let key = access.transferKey, let made = revenueCat(access, key: key) else { continue }
            revenueCatTransfers.append(made)
        }
        if !config.appStore.apps.isEmpty {
            let roots = StoreRoots(config.appStore)
            transactionRoots = try certificates(roots.transactions)
            receiptRoots = try certificates(roots.receipts)
        }
        appStore = config.appStore.apps.compactMap(\.access).compactMap { appStore($0) }
        googlePlay = config.googlePlay.compactMap { googlePlay($0) }
        onside = config.onside.flatMap { onside($0) }
        guard faults.isEmpty else { throw ConfigurationFaults(faults: faults) }
        guard !revenueCat.isEmpty || !appStore.isEmpty || !googlePlay.isEmpty || onside != nil else {
            throw CommandFailure(
                .configuration,
                "no store is configured; set REVENUECAT_API_KEY and REVENUECAT_PROJECT_ID, or the credentials of the App"
                    + " Store, Google Play or Onside"
            )
        }
    }

    private static func credentials(_ config: Config) -> [StoreCredential] {
        var credentials = config.revenueCat.map {
            StoreCredential(.revenueCat, app: $0.projectID, [$0.apiKey.reveal(), $0.projectID])
        }
        credentials += config.appStore.apps.compactMap(\.access).map {
            StoreCredential(.appStore, app: $0.bundleID, [$0.issuerID, $0.keyID, $0.privateKey.reveal(), $0.bundleID])
        }
        credentials += config.googlePlay.map {
            StoreCredential(.googlePlay, app: $0.packageName, [$0.serviceAccount.reveal(), $0.packageName])
        }
        if let access = config.onside {
            let values = [access.merchantID, access.merchantSecret.reveal(), access.secretKeyID, access.bundleID]
            credentials.append(StoreCredential(.onside, app: nil, values))
        }
        let counts = Dictionary(grouping: credentials, by: \.store).mapValues(\.count)
        for place in credentials.indices where counts[credentials[place].store] == 1 { credentials[place].app = nil }
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
        usable(.revenueCat, access.projectID) { () throws(SettingFaults<RevenueCatConfiguration.Fault>) in
            try RevenueCatConfiguration(apiKey: key.reveal(), projectID: access.projectID, baseURL: access.baseURL)
        }
    }

    private mutating func appStore(_ access: AppStoreSettings.Access) -> AppStoreConfiguration? {
        usable(.appStore, access.bundleID) { () throws(SettingFaults<AppStoreConfiguration.Fault>) in
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
        usable(.googlePlay, access.packageName) { () throws(SettingFaults<GooglePlayConfiguration.Fault>) in
            try GooglePlayConfiguration(
                serviceAccount: access.serviceAccount.reveal(),
                packageName: access.packageName,
                baseURL: access.baseURL ?? "https://androidpublisher.googleapis.com",
                oauthBaseURL: access.oauthBaseURL
            )
        }
    }

    private mutating func onside(_ access: OnsideSettings) -> OnsideConfiguration? {
        usable(.onside, access.bundleID) { () throws(SettingFaults<OnsideConfiguration.Fault>) in
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

    /// An app's settings; `nil`, and their faults noted, where its client can't use them.
    private mutating func usable<Settings, Fault: SettingFault>(
        _ store: Store,
        _ app: String,
        _ make: () throws(SettingFaults<Fault>) -> Settings
    ) -> Settings? {
        do {
            return try make()
        } catch {
            faults += error.faults.map { config.named($0.configurationFault, of: app, in: store) }
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

extension FirebaseConfiguration.Fault: SettingFault {
    package var variable: Variable {
        switch self {
        case .serviceAccount, .privateKey, .tokenURI: .firebaseServiceAccount
        case .projectID: .firebaseProjectID
        case .baseURL, .insecureBaseURL: .firebaseBaseURL
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
        try settings.rootCertificates.flatMap { path in
            try read(path, .appStoreRootCertificates) ?? AppStoreRoots.shipped()
        }
    }

    /// - Throws: `ConfigurationFaults`.
    package func receipts() throws -> [Certificate] {
        try settings.receiptRootCertificates.flatMap { path in
            try read(path, .receiptRootCertificates) ?? AppStoreRoots.shippedForReceipts()
        }
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
