import Entitlements

/// The attributes of a receipt, or of one purchase in it, as they were written.
///
/// There are many that nobody describes; those are passed over.
struct AppReceiptAttributes {
    /// The attributes that are read, by the number of their type.
    enum Kind: Int64, CaseIterable {
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
    /// - Throws: `ASN1Fault`; `wrongType` also where something is said twice.
    init(_ written: ArraySlice<UInt8>) throws(ASN1Fault) {
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
            guard values.updateValue(try inner.next(), forKey: kind) == nil else { throw .wrongType }
            try inner.finish()
        }
    }

    /// A text; `nil` where there is none, or it is empty.
    ///
    /// - Throws: `ASN1Fault`.
    func text(_ kind: Kind) throws(ASN1Fault) -> String? {
        guard let text = try values[kind]?.text(), !text.isEmpty else { return nil }
        return text
    }

    /// A text that has to be there.
    ///
    /// - Throws: `ASN1Fault`.
    func requiredText(_ kind: Kind) throws(ASN1Fault) -> String {
        guard let text = try text(kind) else { throw .wrongType }
        return text
    }

    /// A number; `nil` where there is none.
    ///
    /// - Throws: `ASN1Fault`.
    func integer(_ kind: Kind) throws(ASN1Fault) -> Int64? { try values[kind]?.integer() }

    /// A number that is zero where it does not apply.
    ///
    /// - Throws: `ASN1Fault`.
    func identifier(_ kind: Kind) throws(ASN1Fault) -> Int64? {
        guard let number = try integer(kind), number != 0 else { return nil }
        return number
    }

    /// A date; `nil` where there is none, or it is empty.
    ///
    /// - Throws: `ASN1Fault`.
    func moment(_ kind: Kind) throws(ASN1Fault) -> Instant? {
        guard let text = try text(kind) else { return nil }
        guard let moment = Self.moment(text) else { throw .malformed }
        return moment
    }

    /// Reads a date as RFC 3339 writes it, or with an offset without colon, as Xcode does; `nil` where it is none.
    static func moment(_ text: String) -> Instant? {
        let pattern = Array("dddd-dd-ddTdd:dd:dd".utf8)
        let written = Array(text.utf8)
        guard written.count > pattern.count, written.count <= 40 else { return nil }
        for (byte, place) in zip(written, pattern) {
            guard place == UInt8(ascii: "d") ? isDigit(byte) : byte == place else { return nil }
        }
        var rest = written[pattern.count...]
        if rest.first == UInt8(ascii: ".") {
            let fraction = rest.dropFirst().prefix(while: isDigit)
            guard !fraction.isEmpty else { return nil }
            rest = rest[fraction.endIndex...]
        }
        guard let offset = minutes(rest) else { return nil }
        func number(_ range: Range<Int>) -> Int64 { value(written[range]) }
        let (year, month, day) = (number(0..<4), number(5..<7), number(8..<10))
        let (hour, minute, second) = (number(11..<13), number(14..<16), number(17..<19))
        let isLeap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
        let lengths: [Int64] = [31, isLeap ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
        guard (1970...9999).contains(year), (1...12).contains(month), (1...lengths[Int(month) - 1]).contains(day),
            hour < 24, minute < 60, second < 60
        else { return nil }
        let before = year - 1
        let leaps = before / 4 - before / 100 + before / 400 - 477
        let days = (year - 1970) * 365 + leaps + lengths.prefix(Int(month) - 1).reduce(0, +) + day - 1
        let seconds = ((days * 24 + hour) * 60 + minute - offset) * 60 + second
        return Instant(microseconds: seconds * 1_000_000)
    }

    /// How far a zone is ahead of UTC: `Z`, `+hh:mm` or `+hhmm`.
    private static func minutes(_ zone: ArraySlice<UInt8>) -> Int64? {
        if zone.elementsEqual("Z".utf8) { return 0 }
        guard let sign = zone.first, sign == UInt8(ascii: "+") || sign == UInt8(ascii: "-") else { return nil }
        var digits = Array(zone.dropFirst())
        if digits.count == 5, digits[2] == UInt8(ascii: ":") { digits.remove(at: 2) }
        guard digits.count == 4, digits.allSatisfy(isDigit) else { return nil }
        let (hours, minutes) = (value(digits[..<2]), value(digits[2...]))
        guard hours < 24, minutes < 60 else { return nil }
        return (sign == UInt8(ascii: "+") ? 1 : -1) * (hours * 60 + minutes)
    }

    private static func isDigit(_ byte: UInt8) -> Bool { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) }

    private static func value(_ digits: ArraySlice<UInt8>) -> Int64 {
        digits.reduce(0) { $0 * 10 + Int64($1 - UInt8(ascii: "0")) }
    }
}
