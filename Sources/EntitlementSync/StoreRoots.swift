import Configuring
import Foundation
import StoreClients
import X509

/// The certificates that what the App Store signs has to lead to: ours, or those of a file.
struct StoreRoots {
    private let settings: AppStoreSettings

    init(_ settings: AppStoreSettings) { self.settings = settings }

    /// For signed transactions.
    func transactions() throws -> [Certificate] {
        try read(settings.rootCertificates, "APP_STORE_ROOT_CERTIFICATES") ?? AppStoreRoots.shipped()
    }

    /// For app receipts.
    func receipts() throws -> [Certificate] {
        try read(settings.receiptRootCertificates, "RECEIPT_ROOT_CERTIFICATES") ?? AppStoreRoots.shippedForReceipts()
    }

    private func read(_ path: String?, _ name: String) throws -> [Certificate]? {
        guard let path else { return nil }
        do {
            return try AppStoreRoots.read(pem: String(contentsOfFile: path, encoding: .utf8))
        } catch {
            throw CommandFailure(
                .configuration,
                "\(name): no certificates can be read from the file; set the path of a PEM file"
            )
        }
    }
}
