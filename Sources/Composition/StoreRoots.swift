package import Configuring
import Foundation
import StoreClients
package import X509

/// The certificates that what the App Store signs has to lead to: ours, or those of a file.
package struct StoreRoots {
    private let settings: AppStoreSettings

    package init(_ settings: AppStoreSettings) { self.settings = settings }

    /// For signed transactions.
    ///
    /// - Throws: `ConfigurationFaults`.
    package func transactions() throws -> [Certificate] {
        try read(settings.rootCertificates, .appStoreRootCertificates) ?? AppStoreRoots.shipped()
    }

    /// For app receipts.
    ///
    /// - Throws: `ConfigurationFaults`.
    package func receipts() throws -> [Certificate] {
        try read(settings.receiptRootCertificates, .receiptRootCertificates) ?? AppStoreRoots.shippedForReceipts()
    }

    private func read(_ path: String?, _ variable: Variable) throws -> [Certificate]? {
        guard let path else { return nil }
        do {
            return try AppStoreRoots.read(pem: String(contentsOfFile: path, encoding: .utf8))
        } catch {
            throw ConfigurationFaults(faults: [
                ConfigurationFault(
                    variable: variable.rawValue,
                    problem: "no certificates can be read from the file",
                    fix: "Set the path of a PEM file"
                )
            ])
        }
    }
}
