package import Entitlements
import TextFormats

/// The attributes of a receipt, or of one purchase in it, as they were written.
///
/// Apple does not document many of them; those are passed over.
package struct AppReceiptAttributes {
    /// The attributes that are read, by the number of their type.
    package enum Kind: Int64, CaseIterable {
        case environment = 0
        case appID = 1
        case bundleID = 2
        case appVersion = 3
        case createdAt = 12
        case purchase = 17
        case originalAppVersion = 19
        case expiresAt = 21
        case quantity = 1701
        case productID = 1702
        case transactionID = 1703
        case purchasedAt = 1704
        case originalTransactionID = 1705
        case originallyPurchasedAt = 1706
        case productKind = 1707
        case subscriptionExpiresAt = 1708
        case webOrderLineItemID = 1711
        case canceledAt = 1712
        case isTrial = 1713
        case isIntroOffer = 1719
        case promotionalOfferID = 1721
    }

    /// What may stand in one receipt more than once.
    private(set) var purchases: [ArraySlice<UInt8>] = []
    private var values: [Kind: ASN1Reader.Element] = [:]

    /// Reads a set of attributes.
    ///
    /// - Throws: `ASN1Fault`; `wrongType` also where something is said twice, and not alike: types may repeat.
    package init(_ written: ArraySlice<UInt8>) throws(ASN1Fault) {
        typealias Tag = ASN1Reader.Tag
        var payload = ASN1Reader(written)
        var set = try payload.next(Tag.set).elements()
        try payload.finish()
        while !set.isAtEnd {
            var attribute = try set.next(Tag.sequence).elements()
            let type = try attribute.next().integer()
            _ = try attribute.next().integer()
            let value = try attribute.next(Tag.octetString).content
            try attribute.finish()
            guard let kind = Kind(rawValue: type) else { continue }
            if kind == .purchase {
                purchases.append(value)
                continue
            }
            var inner = ASN1Reader(value)
            let said = try inner.next()
            try inner.finish()
            guard values[kind].map({ $0.whole == said.whole }) ?? true else { throw .wrongType }
            values[kind] = said
        }
    }

    /// A text; `nil` where there is none, or it is empty.
    package func text(_ kind: Kind) throws(ASN1Fault) -> String? {
        guard let text = try values[kind]?.text(), !text.isEmpty else { return nil }
        return text
    }

    /// A text that has to be there.
    package func requiredText(_ kind: Kind) throws(ASN1Fault) -> String {
        guard let text = try text(kind) else { throw .wrongType }
        return text
    }

    /// A number; `nil` where there is none.
    package func integer(_ kind: Kind) throws(ASN1Fault) -> Int64? { try values[kind]?.integer() }

    /// A number that is zero where it does not apply.
    package func identifier(_ kind: Kind) throws(ASN1Fault) -> Int64? {
        guard let number = try integer(kind), number != 0 else { return nil }
        return number
    }

    /// A date; `nil` where there is none, or it is empty.
    package func moment(_ kind: Kind) throws(ASN1Fault) -> Instant? {
        guard let text = try text(kind) else { return nil }
        guard let moment = RFC3339.receiptInstant(text) else { throw .malformed }
        return moment
    }
}
