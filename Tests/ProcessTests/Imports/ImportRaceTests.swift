import Foundation
import Postgres
import TestSupport
import Testing

/// Imports whose lines dispute a purchase, and what happens while their lines are with a worker.
@Suite struct ImportRaceTests {
    private static let scenario = """
        google_play:
          purchases:
            - {token: tok-a, state: active}
            - {token: tok-b, order_id: GPA.b, state: active}
            - {token: tok-c, state: active}
            - {token: tok-d, state: active}

        """

    private static let users = """
        INSERT INTO users (id, status) VALUES ('x', 'active'), ('y', 'active'), ('z', 'active'), ('banned', 'banned');
        """

    /// Computes the import of these lines.
    private static func compute(_ lines: [String], at site: Site) async throws -> ImportSummary {
        let folder = try Files.makeTemporaryDirectory()
        defer { try? FileManager.default.removeItem(atPath: folder) }
        let (file, answers) = (folder + "/purchases.csv", folder + "/answers.csv")
        try ("user_id,store,kind,value\n" + lines.joined(separator: "\n")).write(
            toFile: file,
            atomically: true,
            encoding: .utf8
        )
        // As an earlier try that failed leaves it.
        try "".write(toFile: answers, atomically: true, encoding: .utf8)
        let ending = try await site.run("import", "--file", file, "--result", answers, "--output", "json")
        let written = try String(contentsOfFile: answers, encoding: .utf8).split(separator: "\r\n").count
        #expect(written == lines.count + 1, "\(ending)")
        return try ImportSummary(ending)
    }

    private static func release(_ summary: ImportSummary, at site: Site) async throws {
        let hash = try #require(summary.hash)
        let ending = try await site.run("import", "release", "\(summary.id)", "--hash", hash, "--wait", "0")
        try #require(ending.code == 0, "\(ending)")
    }

    private static func results(at site: Site) async throws -> [String] {
        try await site.texts(
            """
            SELECT concat_ws(' ', l.number, l.result, l.detail) FROM entitlement_sync.import_line AS l ORDER BY l.import_id, l.number
            """
        )
    }

    @Test func `What a file names for two users becomes neither's, whatever became of the other line`() async throws {
        try await StoreSite.with(scenario: Self.scenario) { stores in
            let site = stores.site
            try await site.execute(Self.users)
            let worker = try await site.start("worker")
            let summary = try await Self.compute(
                [
                    "x,google_play,purchase_token,tok-a", "banned,google_play,purchase_token,tok-a",
                    // The order's line is of the purchase that the token's line disputes.
                    "y,google_play,order_id,GPA.b", "y,google_play,purchase_token,tok-b",
                    "stranger,google_play,purchase_token,tok-b",
                    "z,google_play,purchase_token,tok-c", "z,google_play,purchase_token,tok-c",
                ],
                at: site
            )
            #expect(summary.state == "ready" && summary.results["planned"] == 1, "\(summary)")
            try await Self.release(summary, at: site)
            try await site.waitUntil("SELECT count(*) FROM entitlement_sync.import AS i WHERE i.state = 'done'")
            #expect(
                try await Self.results(at: site) == [
                    "2 named_for_several", "3 not_eligible", "4 named_for_several", "5 named_for_several",
                    "6 unknown_user", "7 imported", "8 repeated 7",
                ]
            )
            let owners: PostgresQuery = """
                SELECT u.user_id FROM entitlement_sync.purchase AS p
                  JOIN entitlement_sync.user_sync AS u ON u.user_key = p.owner_key ORDER BY 1
                """
            #expect(try await site.texts(owners) == ["z"])
            let values: PostgresQuery =
                "SELECT count(*) FROM entitlement_sync.import_line AS l WHERE l.value IS NOT NULL"
            #expect(try await site.number(values) == 0, "what has ended keeps no token")
            try await worker.stop()
        }
    }

    @Test func `A cancel stops the lines that a worker is about to write`() async throws {
        try await StoreSite.with(scenario: Self.scenario) { stores in
            let site = stores.site
            try await site.execute(Self.users)
            let worker = try await site.start("worker")
            let lines = ["x,google_play,purchase_token,tok-a", "y,google_play,purchase_token,tok-c"]
            let summary = try await Self.compute(lines, at: site)
            try await site.pool.withTransaction { connection in
                // So long as it is locked, the worker has the line and can't write it.
                try await connection.query("SELECT u.id FROM users AS u FOR UPDATE")
                try await Self.release(summary, at: site)
                try await site.waitUntil("SELECT count(*) FROM entitlement_sync.import_line AS l WHERE l.turn = 2")
                let canceled = try await site.run("import", "cancel", "\(summary.id)")
                #expect(canceled.code == 0, "\(canceled)")
            }
            try await site.waitUntil(
                "SELECT (count(*) = 0)::integer::bigint FROM entitlement_sync.import_line AS l WHERE l.epoch IS NOT NULL"
            )
            #expect(try await site.number("SELECT count(*) FROM entitlement_sync.purchase") == 0)
            #expect(try await Self.results(at: site) == ["2 planned", "3 planned"])
            try await worker.stop()
        }
    }

    @Test func `A user who is gone or locked ends the line alone`() async throws {
        try await StoreSite.with(scenario: Self.scenario) { stores in
            let site = stores.site
            try await site.execute(Self.users)
            let worker = try await site.start("worker")
            let summary = try await Self.compute(
                [
                    "x,google_play,purchase_token,tok-a", "y,google_play,purchase_token,tok-b",
                    "z,google_play,purchase_token,tok-c",
                ],
                at: site
            )
            try await site.execute("DELETE FROM users WHERE id = 'y'")
            try await site.pool.withTransaction { connection in
                try await connection.query("SELECT u.id FROM users AS u WHERE u.id = 'z' FOR UPDATE")
                try await Self.release(summary, at: site)
                try await site.waitUntil("SELECT count(*) FROM entitlement_sync.import AS i WHERE i.state = 'done'")
            }
            #expect(
                try await Self.results(at: site) == [
                    "2 imported", "3 unknown_user", "4 unread locked",
                ]
            )
            try await worker.stop()
        }
    }

    @Test func `A store that one of the workers asks is not off`() async throws {
        try await StoreSite.with(scenario: Self.scenario) { stores in
            let site = stores.site
            try await site.execute(Self.users)
            var poor = site
            for name in ["MERCHANT_ID", "MERCHANT_SECRET", "SECRET_KEY_ID", "BUNDLE_ID", "BASE_URL"] {
                poor.settings["ONSIDE_\(name)"] = ""
            }
            let first = try await poor.start("worker")
            let second = try await site.start("worker")
            try await site.waitUntil("SELECT (count(*) = 2)::integer::bigint FROM entitlement_sync.worker")
            let orders = (0..<120).map { "x,onside,order_id,5b0d6f1e-2c77-4c1b-8f9a-\(100_000_000_000 + $0)" }
            let summary = try await Self.compute(orders, at: site)
            #expect(summary.results == ["not_found": 120], "\(summary)")
            try await second.stop()
            let alone = try await Self.compute(["x,onside,order_id,5b0d6f1e-2c77-4c1b-8f9a-000000000000"], at: site)
            #expect(alone.results == ["store_off": 1], "\(alone)")
            try await first.stop()
        }
    }
}
