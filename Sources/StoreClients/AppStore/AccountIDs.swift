import Crypto
package import FoundationEssentials
import TextFormats

/// How apps turn our user ids into the ids that they give to stores.
///
/// A store may take no text of ours as it is: the App Store wants a UUID, Google Play at most 64 characters and no personal
/// data. Apps differ, and one app differs from its own past; an id that matches any of the ways is the user's, and one
/// that matches none proves nothing.
package struct AccountIDs: Sendable {
    let keys: [SymmetricKey]
    let namespace: [UInt8]?

    /// Creates the comparison.
    ///
    /// - Parameters:
    ///   - keys: secrets with which the app's server makes ids (HMAC-SHA256), present and former ones.
    ///   - namespace: in which the app makes UUIDs of version 5 from our ids.
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
    /// A user id that is a UUID stands for itself, and the namespace makes one of any other. Of a digest or an HMAC apps make
    /// UUIDs of several versions.
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
        let hex = Hex.encode(bytes)
        var parts: [Substring] = []
        var rest = hex[...]
        for length in [8, 4, 4, 4, 12] {
            parts.append(rest.prefix(length))
            rest = rest.dropFirst(length)
        }
        return parts.joined(separator: "-")
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
