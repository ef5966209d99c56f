package import Foundation

/// What an app receipt says.
package struct ReceiptDescription: Sendable {
    /// One attribute, as it is written.
    package struct Attribute: Sendable {
        package var type: Int64
        package var value: [UInt8]

        package init(_ type: Int64, _ value: [UInt8]) {
            self.type = type
            self.value = value
        }

        /// A UTF8String.
        package static func text(_ type: Int64, _ text: String) -> Attribute {
            Attribute(type, DERBytes.element(0x0C, Array(text.utf8)))
        }

        /// An INTEGER.
        package static func integer(_ type: Int64, _ value: Int64) -> Attribute {
            Attribute(type, DERBytes.integer(value))
        }

        /// An IA5String with a date; empty where there is none.
        package static func date(_ type: Int64, _ date: Date?) -> Attribute {
            Attribute(type, DERBytes.element(0x16, Array((date?.ISO8601Format() ?? "").utf8)))
        }

        /// A set of attributes.
        package static func set(_ attributes: [Attribute]) -> [UInt8] {
            let written = attributes.flatMap {
                DERBytes.element(
                    0x30,
                    DERBytes.integer($0.type) + DERBytes.integer(1) + DERBytes.element(0x04, $0.value)
                )
            }
            return DERBytes.element(0x31, written)
        }
    }

    /// One purchase in the app.
    package struct Purchase: Sendable {
        package var quantity: Int64 = 1
        package var productID: String
        package var transactionID: String
        package var originalTransactionID: String?
        package var purchasedAt: Date
        package var expiresAt: Date?
        package var canceledAt: Date?
        /// 0 non-consumable, 1 consumable, 2 non-renewing, 3 auto-renewable.
        package var kind: Int64
        package var webOrderLineItemID: Int64 = 0
        package var isTrial = false
        package var isIntroOffer = false
        package var promotionalOfferID: String?

        package init(
            productID: String,
            transactionID: String,
            originalTransactionID: String? = nil,
            purchasedAt: Date = Date(),
            expiresAt: Date? = nil,
            kind: Int64 = 3
        ) {
            self.productID = productID
            self.transactionID = transactionID
            self.originalTransactionID = originalTransactionID
            self.purchasedAt = purchasedAt
            self.expiresAt = expiresAt
            self.kind = kind
        }

        /// Its attributes, with some that are not documented.
        package var attributes: [Attribute] {
            var attributes: [Attribute] = [
                .text(1709, ""), .integer(1701, quantity), .text(1702, productID), .text(1703, transactionID),
                .date(1704, purchasedAt), .text(1705, originalTransactionID ?? transactionID),
                .date(1706, purchasedAt), .integer(1707, kind), .date(1708, expiresAt),
                .integer(1711, webOrderLineItemID), .date(1712, canceledAt), .integer(1713, isTrial ? 1 : 0),
                .integer(1719, isIntroOffer ? 1 : 0), .integer(1718, 0),
            ]
            if let promotionalOfferID { attributes.append(.text(1721, promotionalOfferID)) }
            return attributes
        }
    }

    /// `Production`, `ProductionSandbox`, `ProductionVPP`, `ProductionVPPSandbox`, `Xcode`.
    package var type: String
    package var bundleID: String
    package var appVersion = "42"
    package var originalAppVersion = "1.0"
    package var createdAt: Date
    package var expiresAt: Date?
    package var appID: Int64 = 0
    package var purchases: [Purchase]

    package init(
        type: String = "Production",
        bundleID: String = "com.example.app",
        createdAt: Date = Date(),
        purchases: [Purchase] = []
    ) {
        self.type = type
        self.bundleID = bundleID
        self.createdAt = createdAt
        self.purchases = purchases
    }

    /// Its attributes, with some that are not documented.
    package var attributes: [Attribute] {
        var attributes: [Attribute] = [
            .date(8, nil), .integer(14, 189), .text(0, type), .integer(1, appID), .text(2, bundleID),
            .text(3, appVersion), Attribute(4, Array(repeating: 0xA5, count: 16)),
            Attribute(5, Array(repeating: 0x5A, count: 20)), .date(12, createdAt), .date(18, createdAt),
            .text(19, originalAppVersion),
        ]
        if let expiresAt { attributes.append(.date(21, expiresAt)) }
        return attributes + purchases.map { Attribute(17, Attribute.set($0.attributes)) }
    }

    /// What is signed.
    package func payload() -> [UInt8] { Attribute.set(attributes) }
}
