internal import Foundation

/// Places in a list, as they are handed out: opaque, and of no use with other filters.
struct AppStoreRevision: Sendable {
    /// Items of a page.
    static let pageSize = 20

    private let fingerprint: UInt64

    /// The list of a request; the filters are what has to be the same for all its pages.
    init(_ path: AppStorePath, _ filters: String) {
        fingerprint = Identifiers.fingerprint("\(path.template) \(filters)")
    }

    func write(_ place: Int64) -> String {
        Data("\(place).\(fingerprint)".utf8).base64EncodedString().replacing("=", with: "_")
    }

    /// - Returns: `nil` for a text that was handed out for another list, or never.
    func read(_ text: String) -> Int64? {
        guard let data = Data(base64Encoded: text.replacing("_", with: "=")) else { return nil }
        let parts = String(decoding: data, as: UTF8.self).split(separator: ".")
        guard parts.count == 2, parts[1] == "\(fingerprint)" else { return nil }
        return Int64(parts[0])
    }
}
