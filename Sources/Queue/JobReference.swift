package import FoundationEssentials

/// A job's id as a person reads it out: thirty of its random bits as six signs, without I, L, O and U.
package enum JobReference {
    private static let signs = Array("0123456789ABCDEFGHJKMNPQRSTVWXYZ".utf8)

    /// Spells a reference, the same as `reference_of('R', id)` in the database, where it costs more than the read.
    package static func text(of id: UUID) -> String {
        let bytes = id.uuid
        let bits = [bytes.12, bytes.13, bytes.14, bytes.15].reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
        let spelled = (0..<6).map { signs[Int(bits >> (5 * (5 - $0)) & 31)] }
        return "R-" + String(decoding: spelled[..<4], as: UTF8.self) + "-"
            + String(decoding: spelled[4...], as: UTF8.self)
    }
}
