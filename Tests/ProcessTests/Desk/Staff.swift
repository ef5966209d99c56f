import Foundation
import Postgres
import SupportDesk
import Synchronization
import TestSupport
import Testing

/// Who works at the desk of a test's site, signed in at terminals of their own: two admins, and two who may approve.
///
/// They enrol once a run, with the program's own commands; each site begins as a copy of the place where they did. Codes that
/// they have used there are used everywhere.
struct Staff: Sendable {
    let root: Operator
    let bea: Operator
    let cid: Operator
    /// Holds what they have, each in a folder of their name.
    let folder: String

    /// What everybody has since they enrolled, by the port of the server and by name.
    private static let enrolled = Mutex<[UInt16: [String: Operator.Belongings]]>([:])

    /// Lets them come to a site that was made from `.staffed`; they stay until `leave()`.
    init(at site: Site) async throws {
        let folder = FileManager.default.temporaryDirectory.path + "/staff-\(UUID().uuidString)"
        let port = try site.database.server.port
        let belongings = try #require(Self.enrolled.withLock { $0[port] }, "the site was not made from the template")
        func arrive(_ name: String) throws -> Operator {
            try Operator(try #require(belongings[name]), folder: "\(folder)/\(name)", at: site)
        }
        self.folder = folder
        do {
            root = try arrive("root")
            bea = try arrive("bea")
            cid = try arrive("cid")
            // As if they had just signed in: sessions end, and a run may take longer than they last.
            try await site.execute(
                """
                UPDATE entitlement_sync.operator_session
                   SET started_at = clock_timestamp(), proved_at = clock_timestamp(), seen_at = clock_timestamp()
                """
            )
        } catch {
            try? FileManager.default.removeItem(atPath: folder)
            throw error
        }
    }

    /// Removes what they have.
    func leave() { try? FileManager.default.removeItem(atPath: folder) }

    /// Lets everybody enrol.
    ///
    /// - Parameter url: a migrated database.
    /// - Throws: what is refused.
    fileprivate static func enrol(at url: String) async throws {
        let folder = FileManager.default.temporaryDirectory.path + "/staff-\(UUID().uuidString)"
        defer { try? FileManager.default.removeItem(atPath: folder) }
        let settings = Site.settings(url)
        let root = try await admin("root", folder, settings)
        let second = try await admin("second", folder, settings)
        let bea = try await root.add("bea", "approver")
        let cid = try await root.add("cid", "senior")
        for name in ["bea", "cid"] {
            let confirmed = try await second.run("operator", "confirm", name)
            try #require(confirmed.code == 0, "\(confirmed)")
        }
        for person in [root, second, bea, cid] {
            // From now on, what a password shows costs next to nothing: a debug build takes seconds for the usual cost, for
            // which enrolling has asked often enough.
            let key = try PasswordKey(new: Operator.password, for: "", cost: .least)
            try await DatabaseTemplate.fill(
                url,
                """
                UPDATE entitlement_sync.operator_secret AS s
                   SET cost = '\(key.cost.text)', salt = '\(hex(key.salt))', verifier = sha256('\(hex(key.bytes))'::bytea)
                  FROM entitlement_sync.operator AS o WHERE o.id = s.operator_id AND o.name = '\(person.name)'
                """
            )
        }
        let all = try [root, second, bea, cid].map { ($0.name, try $0.belongings()) }
        let port = try #require(url.firstMatch(of: /port=(\d+)/).flatMap { UInt16($0.1) })
        enrolled.withLock { $0[port] = Dictionary(all) { $1 } }
    }

    private static func admin(_ name: String, _ folder: String, _ settings: [String: String]) async throws -> Operator {
        let words = ["operator", "add", name, "--role", "admin", "--output", "json"]
        let added = try await Site.run(words, settings: settings)
        try #require(added.code == 0, "\(added)")
        return try await Operator(
            name,
            initial: try Operator.password(added.out),
            folder: "\(folder)/\(name)",
            settings: settings
        )
    }

    private static func hex(_ bytes: [UInt8]) -> String {
        "\\x" + bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }
}

extension DatabaseTemplate {
    /// A migrated site at whose desk `Staff` works.
    static let staffed = DatabaseTemplate(name: "staffed_site") { url in
        try await Self.selling.prepare(url)
        try await Staff.enrol(at: url)
    }
}
