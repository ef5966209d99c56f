import Foundation
import Glibc
import HTTPTypes
import Postgres
import Synchronization
import TestSupport
import Testing

/// An app's database goes to another server while its users are served.
@Suite(.timeLimit(.minutes(20)))
struct MoveTests {
    /// Who is on record; and those of them who ask meanwhile.
    private static let (users, callers) = Profile.isFull ? (100_000, 2_000) : (1_000, 300)
    private static let rate = 50.0

    @Test func `No accepted restore is lost when an app moves, and nothing reaches the old place any more`()
        async throws
    {
        let names = (1...Self.users).map { "user-\($0)" }
        let target = try await PrivatePostgres.start()
        try await AppsSite.with(["games", "golf"], users: names) { site in
            let old = try site.record("games")
            // Each is known, with a job that has ended.
            try await old.execute("SELECT entitlement_sync.request_reconcile(u.id) FROM users AS u")
            let read = try await site.run("worker", "--until-idle", within: .seconds(600))
            #expect(read.code == 0, "\(read)")
            let endpoint = try await site.open(settings: ["HTTP_DATABASE_WAIT_SECONDS": "60"])
            try await site.untilAllReady(endpoint)
            let new = target.url(database: "games", overTCP: true)
            let traffic = Traffic(site, endpoint, names.prefix(Self.callers).map(\.self))
            async let sent: Void = traffic.send(at: Self.rate)
            try await eventually("nothing is accepted") { traffic.accepted.count > 20 }
            try site.write("games", as: ".games", changing: ["DATABASE_URL": new])
            let before = try old.database.tcpURL
            let moved = try await Program(
                [
                    Paths.folder + "/deploy/move.sh", before, new, "mv", "\(site.folder)/.games.env",
                    "\(site.folder)/games.env",
                ],
                environment: Site.environment([:])
            ).ending(within: .seconds(300))
            #expect(moved.code == 0, "\(moved)")
            traffic.endSoon()
            try await sent
            report("\(moved.err.split(separator: "\n").last ?? "")")
            report("\(traffic.accepted.count) accepted; the longest without one: \(traffic.longestPause)")
            try await Site.with(nil, at: new) { record in
                let missing: PostgresQuery = """
                    SELECT count(*) FROM unnest(\(traffic.accepted)) AS x
                     WHERE NOT EXISTS (SELECT 1 FROM entitlement_sync.job_status AS s WHERE s.id = x::uuid AND s.state = 'done')
                    """
                try await eventually("restores are missing") { try await record.number(missing) == 0 }
                #expect(try await record.number("SELECT count(*) FROM users") == Int64(Self.users))
                #expect(try await record.texts("SELECT name FROM entitlement_sync.alarm") == [])
            }
            await #expect(throws: PostgresError.self) { _ = try await old.number("SELECT 1") }
            try await site.untilAllReady(endpoint)
            try await endpoint.close()
        }
        try await target.stop(immediately: true)
    }

    /// What becomes of a move whose copy fails, or is stopped.
    @Test(arguments: Profile.cases([("pg_restore", "exit 1"), ("pg_dump", "exec sleep 60")]))
    func `A move that does not come to its end opens the old place again, and leaves nothing at the new one`(
        _ program: String,
        _ act: String
    ) async throws {
        let folder = try Files.makeTemporaryDirectory()
        defer { try? FileManager.default.removeItem(atPath: folder) }
        try Data("#!/bin/sh\n\(act)\n".utf8).write(to: URL(fileURLWithPath: "\(folder)/\(program)"))
        try FileManager.default.setAttributes([.posixPermissions: 0o755], ofItemAtPath: "\(folder)/\(program)")
        let target = try await PrivatePostgres.start()
        try await Site.with { site in
            var environment = Site.environment([:])
            environment["PATH"] = folder + ":" + (environment["PATH"] ?? "")
            let new = target.url(database: "games", overTCP: true)
            let move = try await Program(
                [Paths.folder + "/deploy/move.sh", try site.database.tcpURL, new, "touch", "\(folder)/switched"],
                environment: environment
            )
            if program == "pg_dump" {
                try await move.find("move: copying")
                move.signal(SIGTERM)
            }
            let ending = try await move.ending()
            #expect(ending.code == (program == "pg_dump" ? 143 : 1), "\(ending)")
            #expect(ending.err.contains("failed; the old place is open again"), "\(ending)")
            #expect(try await site.number("SELECT 1") == 1)
            #expect(!FileManager.default.fileExists(atPath: "\(folder)/switched"))
            try await target.administer("CREATE DATABASE games")
        }
        try await target.stop(immediately: true)
    }

    /// Users of the app who tap Restore, one after the other.
    private final class Traffic: Sendable {
        private struct State {
            var accepted: [String] = []
            var last = ContinuousClock.now
            var longestPause = Duration.zero
            var ends: ContinuousClock.Instant?
        }

        private let site: AppsSite
        private let endpoint: Endpoint
        private let users: [String]
        private let state = Mutex(State())

        init(_ site: AppsSite, _ endpoint: Endpoint, _ users: [String]) {
            (self.site, self.endpoint, self.users) = (site, endpoint, users)
        }

        var accepted: [String] { state.withLock(\.accepted) }
        var longestPause: Duration { state.withLock(\.longestPause) }

        /// Goes on for a moment, in which something has to be accepted again.
        func endSoon() { state.withLock { $0.ends = .now + .seconds(5) } }

        func send(at rate: Double) async throws {
            try await withThrowingDiscardingTaskGroup { group in
                var number = 0
                while state.withLock({ $0.ends.map { $0 > .now } ?? true }) {
                    let user = users[number % users.count]
                    number += 1
                    group.addTask { try await self.tap(user) }
                    try await Task.sleep(for: .seconds(1 / rate))
                }
            }
        }

        private func tap(_ user: String) async throws {
            let caller = try await site.caller(user, of: "games", at: endpoint)
            // Who is refused or cut off would tap again; only what is accepted counts.
            guard let answer = try? await caller.ask(.post, "/v1/apps/games/restores", body: "{}"), answer.status == 202
            else { return }
            let restore: SeenRestore = try answer.decode()
            state.withLock { state in
                state.accepted.append(restore.id)
                state.longestPause = max(state.longestPause, .now - state.last)
                state.last = .now
            }
        }
    }
}
