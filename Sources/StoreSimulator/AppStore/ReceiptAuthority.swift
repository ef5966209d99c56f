package import CryptoExtras
package import Foundation
import SwiftASN1
import X509

/// The simulator's own certificates and keys for app receipts, in the place of Apple's: a root, an authority, a signer.
///
/// Only the simulator and tests trust them.
package struct ReceiptAuthority: Sendable {
    /// How the certificates are signed (with SHA-1 until 2023, with SHA-256 since), and what the payload's digest is.
    ///
    /// Any digest stands under any certificates.
    package enum Digest: Sendable, CaseIterable {
        case sha1
        case sha256
    }

    /// The keys; making them takes long.
    package struct Keys: Sendable {
        package var root: _RSA.Signing.PrivateKey
        package var intermediate: _RSA.Signing.PrivateKey
        package var leaf: _RSA.Signing.PrivateKey

        /// Makes new ones.
        package init() throws {
            try self.init { _ in try _RSA.Signing.PrivateKey(keySize: .bits2048) }
        }

        private init(_ key: (String) throws -> _RSA.Signing.PrivateKey) rethrows {
            root = try key("receipt-root")
            intermediate = try key("receipt-intermediate")
            leaf = try key("receipt-leaf")
        }

        private static let made = Result { try Keys(KeyRing.key) }

        /// The same ones for the whole life of the process.
        package static func shared() throws -> Keys { try made.get() }
    }

    package let certificates: SigningCertificates
    package let keys: Keys

    private static let made = Result { try ReceiptAuthority() }

    /// The one whose root the simulator gives out.
    package static func shared() throws -> ReceiptAuthority { try made.get() }

    /// Makes new certificates for the keys, by default those of the process.
    ///
    /// The two moments are the leaf's; the others are valid from ten years before to ten years after it.
    package init(
        _ generation: Digest = .sha256,
        keys: Keys? = nil,
        validFrom: Date = Date() - 86_400 * 30,
        validUntil: Date = Date() + 86_400 * 700,
        flaws: SigningCertificates.Flaws = []
    ) throws {
        let keys = try keys ?? .shared()
        self.keys = keys
        certificates = try SigningCertificates(
            .init(root: .init(keys.root), intermediate: .init(keys.intermediate), leaf: .init(keys.leaf)),
            rootName: "Simulated Root CA",
            algorithm: generation == .sha1 ? .sha1WithRSAEncryption : .sha256WithRSAEncryption,
            validFrom: validFrom,
            validUntil: validUntil,
            flaws: flaws
        )
    }

    /// The base64 of a receipt, as the App Store makes it.
    package func receipt(_ description: ReceiptDescription, digest: Digest = .sha256) throws -> String {
        try sign(description.payload(), digest: digest).text()
    }

    /// Signs a payload: the set of attributes, or what is to stand in its place.
    ///
    /// - Returns: the parts of the container, which may be altered before they are written.
    package func sign(_ payload: [UInt8], digest: Digest = .sha256) throws -> ReceiptContainer {
        let leaf = certificates.leaf
        var name = DER.Serializer()
        try name.serialize(leaf.issuer)
        let serial = Array(leaf.serialNumber.bytes.drop { $0 == 0 })
        return try ReceiptContainer(
            payload: payload,
            certificates: try certificates.chain(),
            issuerAndSerial: name.serializedBytes + DERBytes.element(0x02, (serial[0] >= 0x80 ? [0] : []) + serial),
            digest: digest,
            key: keys.leaf
        )
    }
}

extension StoreSimulator {
    /// The root of the receipts that `ReceiptAuthority.shared()` makes, PEM: what `RECEIPT_ROOT_CERTIFICATES` may hold.
    package static func receiptRoot() throws -> String {
        try ReceiptAuthority.shared().certificates.rootPEM()
    }
}

extension AppStoreAccount {
    /// The base64 of the app receipt of the account's device.
    func receipt(bundleID: String, nowMs: Int64) throws -> String {
        func date(_ milliseconds: Int64) -> Date { Date(timeIntervalSince1970: Double(milliseconds) / 1000) }
        let kinds: [AppStoreTransactionScenario.Kind: Int64] = [
            .nonConsumable: 0, .consumable: 1, .nonRenewing: 2, .autoRenewable: 3,
        ]
        let items = purchases.map { purchase in
            var item = ReceiptDescription.Purchase(
                productID: purchase.product,
                transactionID: purchase.transaction,
                originalTransactionID: purchase.original,
                purchasedAt: date(purchase.purchasedMs),
                expiresAt: purchase.expiresMs.map(date),
                kind: kinds[purchase.kind] ?? 0
            )
            item.canceledAt = purchase.revokedMs.map(date)
            return item
        }
        let type = side == .production ? "Production" : "ProductionSandbox"
        return try ReceiptAuthority.shared()
            .receipt(.init(type: type, bundleID: bundleID, createdAt: date(nowMs), purchases: items))
    }
}
