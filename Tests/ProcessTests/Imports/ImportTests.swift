import Foundation
import Glibc
import Postgres
import TestSupport
import Testing

/// `entitlement-sync import`, as operators use it.
@Suite struct ImportTests {
    private static let scenario = """
        app_store:
          customers:
            - {id: apple, transactions: [{original: "3000000000000001", product: premium_monthly, state: active}]}
            - {id: box, environment: Sandbox, transactions: [{original: "3000000000000002", product: premium_monthly, state: active}]}
            - id: token
              transactions:
                - {original: "3000000000000003", product: premium_monthly, state: active, account_token: 5b0d6f1e-2c77-4c1b-8f9a-0e6a7c1d2b10}
            - {id: ended, transactions: [{original: "3000000000000004", product: premium_monthly, state: expired, expires: -9d}]}
        google_play:
          purchases:
            - {token: tok-a, order_id: GPA.1, state: active}
            - {token: tok-b, state: active, account: other}
            - {token: tok-c, state: active}
            - {token: tok-d, state: active, account: named}
        """

    private static let users = """
        INSERT INTO users (id, status) VALUES ('apple', 'active'), ('play', 'active'), ('other', 'active'), ('named', 'active'),
            ('banned', 'banned'), ('5b0d6f1e-2c77-4c1b-8f9a-0e6a7c1d2b10', 'active'), ('ended', 'active');
        """

    private static let file = """
        user_id,store,kind,value
        apple,app_store,original_transaction_id,3000000000000001
        "play",google_play,order_id,GPA.1\r
        play,google_play,purchase_token,tok-a
        play,google_play,purchase_token,tok-b
        named,google_play,purchase_token,tok-d
        other,google_play,purchase_token,tok-nowhere
        stranger,google_play,purchase_token,tok-c
        banned,google_play,purchase_token,tok-c
        other,app_store,original_transaction_id,3000000000000002
        apple,app_store,original_transaction_id,3000000000000003
        ended,app_store,original_transaction_id,3000000000000004
        other,onside,order_id,5b0d6f1e-2c77-4c1b-8f9a-0e6a7c1d2b10
        other,play_store,order_id,GPA.1
        other,google_play,original_transaction_id,1
        other,google_play,purchase_token,a b
        other,google_play
        \(String(repeating: "x", count: 4097)),google_play,order_id,GPA.1

        other,google_play,"order_id,GPA.1
        """

    private static let results = [
        "2 imported", "3 imported", "4 repeated", "5 names_another", "6 imported", "7 not_found", "8 unknown_user",
        "9 not_eligible", "10 sandbox", "11 names_another", "12 imported", "13 store_off", "14 malformed",
        "15 malformed",
        "16 malformed", "17 malformed", "18 malformed", "20 malformed",
    ]

    /// A folder for files.
    private static func within(_ body: (String) async throws -> Void) async throws {
        let folder = try Files.makeTemporaryDirectory()
        defer { try? FileManager.default.removeItem(atPath: folder) }
        try await body(folder)
    }

    private static func write(_ text: String, in folder: String) throws -> String {
        let path = folder + "/purchases-\(UUID().uuidString).csv"
        try text.write(toFile: path, atomically: true, encoding: .utf8)
        return path
    }

    @Test func `Every line has its result and its reason, and only what is approved is written`() async throws {
        try await StoreSite.with(
            scenario: Self.scenario,
            settings: [
                "ONSIDE_MERCHANT_ID": "", "ONSIDE_MERCHANT_SECRET": "", "ONSIDE_SECRET_KEY_ID": "",
                "ONSIDE_BUNDLE_ID": "", "ONSIDE_BASE_URL": "",
            ]
        ) { stores in
            let site = stores.site
            try await site.execute(Self.users)
            let worker = try await site.start("worker")
            try await Self.within { folder in
                let file = try Self.write(Self.file, in: folder)
                let dry = try await site.run("import", "--file", file, "--dry-run", "--output", "json")
                let summary = try ImportSummary(dry)
                #expect(dry.code == 0 && summary.state == "done" && summary.results["planned"] == 4, "\(dry)")
                #expect(summary.conflicts == 2 && summary.gives_access == 3, "\(dry)")
                let undry = try await site.run("import", "release", "1", "--hash", try #require(summary.hash))
                #expect(undry.code == 65 && undry.err.contains("dry run"), "\(undry)")

                let asked = try await site.run("import", "--file", file)
                #expect(asked.code == 0 && asked.out.contains("import 2 is ready"), "\(asked)")
                #expect(try await site.number("SELECT count(*) FROM entitlement_sync.purchase") == 0)
                let wrong = try await site.run("import", "release", "2", "--hash", String(repeating: "0", count: 12))
                #expect(wrong.code == 65 && wrong.err.contains("hash: it is not that"), "\(wrong)")

                // A pause keeps everything from being written, and a later end of it does not.
                _ = try await site.run("pause", "all")
                let hash = try #require(summary.hash)
                let paused = try await site.run("import", "release", "2", "--hash", hash, "--wait", "2")
                #expect(paused.code == 75, "\(paused)")
                #expect(try await site.number("SELECT count(*) FROM entitlement_sync.purchase") == 0)
                _ = try await site.run("resume", "all")
                try await site.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.import AS i WHERE i.id = 2 AND i.state = 'done'"
                )

                let answers = folder + "/answers.csv"
                let shown = try await site.run("import", "show", "2", "--result", answers)
                #expect(shown.code == 0 && shown.out.contains("import 2 is done"), "\(shown)")
                let lines = try String(contentsOfFile: answers, encoding: .utf8).split(separator: "\r\n").map(
                    String.init
                )
                #expect(lines.first == "line,user_id,store,kind,result,gives_access,reason")
                #expect(
                    lines.dropFirst().map { line in
                        let fields = line.split(separator: ",", omittingEmptySubsequences: false)
                        return "\(fields[0]) \(fields[4])"
                    } == Self.results
                )
                #expect(
                    lines.allSatisfy { !$0.hasSuffix(",") && !$0.contains("tok-") },
                    "each has a reason, none a token"
                )
                let again = try await site.run("import", "show", "2", "--result", answers)
                #expect(again.code == 65 && again.err.contains("--result"), "a file is never overwritten: \(again)")
            }
            try await site.waitUntil("SELECT (count(*) = 0)::integer::bigint FROM entitlement_sync.queue")
            #expect(
                try await site.texts(
                    """
                    SELECT concat_ws(' ', u.user_id, p.owner_rule, h.type) FROM entitlement_sync.purchase AS p
                      JOIN entitlement_sync.user_sync AS u ON u.user_key = p.owner_key JOIN users AS h ON h.id = u.user_id
                     ORDER BY 1
                    """
                ) == [
                    "apple imported_by_operator subscriber", "ended imported_by_operator free",
                    "named account_id subscriber",
                    "play imported_by_operator subscriber",
                ]
            )
            #expect(try await site.number("SELECT count(*) FROM entitlement_sync.ticket") == 0)
            let explained = try await site.run("explain", "apple")
            #expect(explained.out.contains("imported_by_operator"), "\(explained)")
            let doctor = try await site.run("doctor", "--output", "json")
            let laws = try JSONDecoder().decode(Findings.self, from: Data(doctor.out.utf8)).checks
                .filter { $0.name.hasPrefix("law.") }
            #expect(!laws.isEmpty && laws.allSatisfy(\.ok), "\(doctor)")
            // Once more, the users own it all already.
            try await Self.within { folder in
                let file = try Self.write(Self.file, in: folder)
                let repeated = try ImportSummary(try await site.run("import", "--file", file, "--output", "json"))
                #expect(repeated.results["already_owned"] == 5 && repeated.results["planned"] == nil)
            }
            // An erased user's lines say nothing any more.
            let erased = try await site.run("erase", "play", "--yes")
            #expect(erased.code == 0, "\(erased)")
            #expect(
                try await site.number(
                    "SELECT count(*) FROM entitlement_sync.import_line AS l WHERE l.result = 'erased' AND l.value IS NULL"
                ) > 0
            )
            // Whom the file names is erased from it, known or not.
            let stranger = try await site.run("erase", "stranger", "--yes")
            #expect(stranger.code == 0, "\(stranger)")
            #expect(
                try await site.number(
                    "SELECT count(*) FROM entitlement_sync.import_line AS l WHERE l.user_id = 'stranger'"
                ) == 0
            )
            try await worker.stop()
        }
    }

    /// What `doctor` prints as JSON.
    private struct Findings: Decodable {
        struct Check: Decodable {
            var name: String
            var ok: Bool
        }
        var checks: [Check]
    }

    @Test func `A file that is too large, or has another header, is refused`() async throws {
        try await Site.with { site in
            try await Self.within { folder in
                let many = "user_id,store,kind,value\n" + String(repeating: "\n", count: 1_000_001)
                let large = "user_id,store,kind,value\n" + String(repeating: "x", count: 64 * 1024 * 1024)
                for (text, fault) in [
                    ("user,store,kind,value\nu,app_store,order_id,1\n", "header"), ("", "header"), (many, "1,000,000"),
                    (large, "64 MiB"),
                ] {
                    let ending = try await site.run("import", "--file", try Self.write(text, in: folder))
                    #expect(ending.code == 65 && ending.err.contains(fault), "\(ending)")
                }
                let none = try await site.run("import", "--file", folder + "/none.csv")
                #expect(none.code == 65 && none.err.contains("can't be read"), "\(none)")
                #expect(try await site.number("SELECT count(*) FROM entitlement_sync.import") == 0)
            }
        }
    }

    @Test func `Who imports does not approve it, and another operator does`() async throws {
        let simulator = try await Simulator(scenario: "customers: []")
        try await Site.with(.staffed, store: simulator.url) { site in
            let staff = try await Staff(at: site)
            defer { staff.leave() }
            let worker = try await site.start("worker")
            try await Self.within { folder in
                let file = try Self.write("user_id,store,kind,value\nu,app_store,order_id,1\n", in: folder)
                let asked = try await staff.bea.run("import", "--file", file, "--output", "json")
                let hash = try #require(try ImportSummary(asked).hash, "\(asked)")
                let own = try await staff.bea.run("import", "release", "1", "--hash", hash)
                #expect(own.code == 77 && own.err.contains("does not approve it"), "\(own)")
                let admin = try await staff.root.run("import", "release", "1", "--hash", hash)
                #expect(admin.code == 77, "an admin moves no purchases: \(admin)")
                let other = try await staff.cid.run("import", "release", "1", "--hash", hash)
                #expect(other.code == 0 && other.out.contains("import 1 is done"), "\(other)")
                #expect(
                    try await site.texts(
                        """
                        SELECT i.asked_by || ' ' || i.approved_by || ' ' || o.name FROM entitlement_sync.import AS i, entitlement_sync.operator_event AS e
                          JOIN entitlement_sync.operator AS o ON o.id = e.operator_id WHERE e.kind = 'import_approved'
                        """
                    ) == ["bea cid cid"]
                )
            }
            try await worker.stop()
        }
    }
}
