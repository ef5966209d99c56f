import Crypto
import TextFormats

/// The keys (roots) of the index that leads from account ids at stores to users.
///
/// Every spelling of one digest has one root: its first eight bytes, less the four bits that UUIDs put their version in. An
/// index holds a row for each digest of a user in place of one for each spelling; what it finds is compared in full.
extension AccountIDs {
    /// The roots of a user's derived ids.
    package func roots(of userID: String) -> [Int64] { digests(of: userID).map(Self.root) }

    /// The root of an account id that may be a derivation of a user's id; `nil`: it has the form of none.
    package func root(in accountID: String) -> Int64? {
        let bytes = Array(accountID.utf8)
        switch bytes.count {
        case 64: return Self.hex(bytes).map(Self.root)
        case 36:
            guard [8, 13, 18, 23].allSatisfy({ bytes[$0] == UInt8(ascii: "-") }) else { return nil }
            return Self.hex(bytes.filter { $0 != UInt8(ascii: "-") }).flatMap { $0.count == 16 ? Self.root($0) : nil }
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

    private static func hex(_ digits: [UInt8]) -> [UInt8]? {
        var bytes: [UInt8] = []
        for place in stride(from: 0, to: digits.count - 1, by: 2) {
            guard let high = Hex.value(of: digits[place]), let low = Hex.value(of: digits[place + 1]) else {
                return nil
            }
            bytes.append(high << 4 | low)
        }
        return bytes
    }

    /// Either alphabet; the bits behind the last whole byte are left out.
    private static func base64(_ characters: some Sequence<UInt8>) -> [UInt8]? {
        var bytes: [UInt8] = []
        var bits: UInt32 = 0
        var count = 0
        for character in characters {
            let value: UInt8
            switch character {
            case UInt8(ascii: "A")...UInt8(ascii: "Z"): value = character - UInt8(ascii: "A")
            case UInt8(ascii: "a")...UInt8(ascii: "z"): value = character - UInt8(ascii: "a") + 26
            case UInt8(ascii: "0")...UInt8(ascii: "9"): value = character - UInt8(ascii: "0") + 52
            case UInt8(ascii: "+"), UInt8(ascii: "-"): value = 62
            case UInt8(ascii: "/"), UInt8(ascii: "_"): value = 63
            default: return nil
            }
            bits = bits << 6 | UInt32(value)
            count += 6
            if count >= 8 {
                count -= 8
                bytes.append(UInt8(truncatingIfNeeded: bits >> UInt32(count)))
            }
        }
        return bytes
    }
}
