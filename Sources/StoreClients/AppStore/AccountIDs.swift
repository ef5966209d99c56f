import Crypto
package import FoundationEssentials
import TextFormats

/// How apps turn our user ids into the ids that they give to stores.
///
/// A store may take no text of ours as it is: the App Store wants a UUID, Google Play at most 64 characters and no
/// personal data. Apps differ, and one app differs from its own past; an id that matches any of the ways is the user's,
/// and one that matches none proves nothing.
package struct AccountIDs: Sendable {
    private let keys: [SymmetricKey]
    private let namespace: [UInt8]?

    /// Creates the comparison.
    ///
    /// `keys` are secrets with which the app's server makes ids (HMAC-SHA256), present and former ones; in `namespace`
    /// the app makes UUIDs of version 5 from our ids.
    package init(keys: [String] = [], namespace: UUID? = nil) {
        self.keys = keys.map { SymmetricKey(data: Array($0.utf8)) }
        self.namespace = namespace.map { id in withUnsafeBytes(of: id.uuid) { Array($0) } }
    }

    /// Whether an id that an app gave a store stands for a user of ours.
    package func matches(_ accountID: String, userID: String) -> Bool {
        guard !accountID.isEmpty else { return false }
        let given = SHA256.hash(data: Self.folded(accountID))
        // Digests are compared in constant time, and every way is, so that the time says nothing about which one fits.
        return ways(userID).reduce(false) { found, way in SHA256.hash(data: Self.folded(way)) == given || found }
    }

    /// The UUID that an app gives the App Store for a user of ours; `nil`: it is unknown which one it would be.
    ///
    /// A user id that is a UUID stands for itself, and the namespace makes one of any other. Of a digest or an HMAC
    /// apps make UUIDs of several versions.
    package func token(for userID: String) -> UUID? {
        if userID.utf8.count == 36, let own = UUID(uuidString: userID) { return own }
        guard let namespace else { return nil }
        return UUID(uuidString: Self.uuid(Array(Insecure.SHA1.hash(data: namespace + Array(userID.utf8))), version: 5))
    }

    func ways(_ userID: String) -> [String] {
        var digests = digests(of: userID)
        let named = namespace == nil ? [] : digests.removeLast()
        return [userID] + digests.flatMap(Self.spellings) + (named.isEmpty ? [] : [Self.uuid(named, version: 5)])
    }

    /// The digests of a user's id: plain, by each key, and last that of the namespace, if there is one.
    func digests(of userID: String) -> [[UInt8]] {
        let id = Array(userID.utf8)
        var digests = [Array(SHA256.hash(data: id))]
        for key in keys { digests.append(Array(HMAC<SHA256>.authenticationCode(for: id, using: key))) }
        if let namespace { digests.append(Array(Insecure.SHA1.hash(data: namespace + id))) }
        return digests
    }

    /// A digest as apps write it: hexadecimal, base64 with and without padding, and its first half as a UUID.
    private static func spellings(of digest: [UInt8]) -> [String] {
        [
            Hex.encode(digest),
            Base64.encode(digest, .standard), Base64.encode(digest, .url),
            uuid(digest, version: nil), uuid(digest, version: 4), uuid(digest, version: 5), uuid(digest, version: 8),
        ]
    }

    private static func uuid(_ digest: [UInt8], version: UInt8?) -> String {
        var bytes = Array(digest.prefix(16))
        if let version {
            bytes[6] = bytes[6] & 0x0F | version << 4
            bytes[8] = bytes[8] & 0x3F | 0x80
        }
        var text = Hex.encode(bytes)
        for place in [20, 16, 12, 8] { text.insert("-", at: text.index(text.startIndex, offsetBy: place)) }
        return text
    }

    /// UUIDs and hexadecimal digests are one in capitals and small letters; anything else is compared as it is.
    private static func folded(_ id: String) -> [UInt8] {
        let isHex = id.utf8.allSatisfy { byte in
            byte == UInt8(ascii: "-") || Unicode.Scalar(byte).properties.isASCIIHexDigit
        }
        let length = id.utf8.count
        return Array((isHex && (length == 36 || length == 64) ? id.lowercased() : id).utf8)
    }
}

/// The keys (roots) of the index that leads from account ids at stores to users.
///
/// Every spelling of one digest has one root: its first eight bytes, less the four bits that UUIDs put their version
/// in. An index holds a row for each digest of a user in place of one for each spelling; what it finds is compared in
/// full.
extension AccountIDs {
    /// The roots of a user's derived ids.
    package func roots(of userID: String) -> [Int64] { digests(of: userID).map(Self.root) }

    /// The root of an account id that may be a derivation of a user's id; `nil`: it has the form of none.
    package func root(in accountID: String) -> Int64? {
        let bytes = Array(accountID.utf8)
        switch bytes.count {
        case 64: return Hex.decode(bytes).map(Self.root)
        case 36:
            guard [8, 13, 18, 23].allSatisfy({ bytes[$0] == UInt8(ascii: "-") }) else { return nil }
            return Hex.decode(bytes.filter { $0 != UInt8(ascii: "-") }).flatMap { $0.count == 16 ? Self.root($0) : nil }
        case 43, 44:
            guard bytes.count == 43 || bytes.last == UInt8(ascii: "=") else { return nil }
            return Self.base64(bytes.prefix(43)).map(Self.root)
        default: return nil
        }
    }

    /// Tells configurations apart whose roots differ, and reveals nothing of their keys.
    package var fingerprint: [UInt8] {
        let marks = keys.map { Array(HMAC<SHA256>.authenticationCode(for: Self.mark, using: $0)) }
        var hash = SHA256()
        for mark in marks.sorted(by: { $0.lexicographicallyPrecedes($1) }) { hash.update(data: mark) }
        hash.update(data: Self.mark + (namespace ?? []))
        return Array(hash.finalize().prefix(16))
    }

    private static let mark = Array("entitlement-sync account index".utf8)

    private static func root(_ digest: some Sequence<UInt8>) -> Int64 {
        var bits: UInt64 = 0
        for (place, byte) in digest.prefix(8).enumerated() {
            bits = bits << 8 | UInt64(place == 6 ? byte & 0x0F : byte)
        }
        return Int64(bitPattern: bits)
    }

    /// Either alphabet; with one character more, the bits behind the last whole byte may be any.
    private static func base64(_ characters: some Sequence<UInt8>) -> [UInt8]? {
        let (plus, minus, slash, line) = (UInt8(ascii: "+"), UInt8(ascii: "-"), UInt8(ascii: "/"), UInt8(ascii: "_"))
        let url = characters.map { $0 == plus ? minus : $0 == slash ? line : $0 }
        return Base64.decode(url + [UInt8(ascii: "A")], .url)
    }
}
