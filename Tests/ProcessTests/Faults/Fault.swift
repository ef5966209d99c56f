import Foundation
import Glibc
import Postgres
import TestSupport
import Testing

/// Something that happens to workers and the world around them while they work, and passes.
struct Fault: Sendable, CustomTestStringConvertible {
    var name: String
    var ground = Stage.Ground.shared
    /// The workers' further settings.
    var settings: @Sendable () async throws -> [String: String] = { [:] }
    /// Begins, lasts and ends.
    var happen: @Sendable (Stage) async throws -> Void
    /// Whether it lies between the workers and the store.
    var troublesStore = false
    /// Whether the workers' logs tell of it; asked where nobody was killed.
    var leftTrace: @Sendable (String) -> Bool = { _ in true }

    var testDescription: String { name }

    /// How long most of them last.
    private static let lasting = Duration.milliseconds(2500)

    static let all = [
        nothing, standstill, restart, terminations, promotion, databaseCut, databaseSilent, databaseSlow, storeCut,
        storeSilent, storeSlow, pinnedHorizon, clockAhead, clockBehind,
    ]

    /// Those to run: all, or the ones whose name contains `ENTITLEMENT_SYNC_TEST_FAULT`.
    static func chosen(_ faults: some Sequence<Fault>) -> [Fault] {
        guard let text = ProcessInfo.processInfo.environment["ENTITLEMENT_SYNC_TEST_FAULT"] else {
            return Array(faults)
        }
        return faults.filter { $0.name.contains(text) }
    }

    /// For kills alone.
    static let nothing = Fault(name: "nothing else") { _ in try await Task.sleep(for: lasting) }

    static let standstill = Fault(
        name: "a worker stands still beyond its lease",
        happen: { stage in
            await stage.crew.signal(SIGSTOP, to: 0)
            // Twice the lease.
            try await Task.sleep(for: .seconds(4))
            await stage.crew.signal(SIGCONT, to: 0)
        },
        leftTrace: { $0.contains("the lease has ended") }
    )

    static let restart = Fault(name: "PostgreSQL crashes twice and is started again", ground: .own) { stage in
        for pause in [Duration.zero, .seconds(1)] {
            try await stage.server.stop(immediately: true)
            // The server is away meanwhile.
            try await Task.sleep(for: pause)
            try await stage.server.start()
        }
    }

    static let terminations = Fault(name: "all sessions are terminated, ten times") { stage in
        for _ in 0..<10 {
            // Workers that were just killed have no session for a moment; those that lost theirs while starting have
            // exited and are started again.
            try await eventually("nobody has a session") {
                guard await stage.crew.isAtWork else {
                    try await stage.crew.tend()
                    return false
                }
                return try await stage.site.number(
                    """
                    SELECT count(pg_terminate_backend(a.pid)) FROM pg_stat_activity AS a
                     WHERE a.datname = current_database() AND a.application_name = 'entitlement-sync'
                    """
                ) > 0
            }
            // Workers come back, and work, before the next time.
            try await Task.sleep(for: .milliseconds(250))
        }
    }

    static let promotion = Fault(name: "167: the primary dies and its standby is promoted", ground: .replicated) {
        stage in
        let standby = try #require(stage.standby)
        try await stage.server.stop(immediately: true)
        // There is no primary meanwhile.
        try await Task.sleep(for: .seconds(1))
        try await standby.promote()
    }

    static let databaseCut = broken("the way to the database is cut", \.database, .cut)
    static let databaseSilent = broken("the way to the database goes silent", \.database, .silent)
    static let databaseSlow = broken(
        "the way to the database is slow",
        \.database,
        .slow(pause: .milliseconds(10), bytes: 4096)
    )
    static let storeCut = broken("the way to the store is cut", \.store, .cut)
    static let storeSilent = broken("the way to the store goes silent", \.store, .silent)
    static let storeSlow = broken("the way to the store is slow", \.store, .slow(pause: .milliseconds(20), bytes: 300))

    private static func broken(
        _ name: String,
        _ relay: @escaping @Sendable (Stage) -> Relay,
        _ weather: Relay.Weather
    ) -> Fault {
        Fault(
            name: name,
            happen: { stage in
                relay(stage).turn(weather)
                try await Task.sleep(for: lasting)
                relay(stage).turn(.fair)
            },
            troublesStore: name.contains("store")
        )
    }

    static let pinnedHorizon = Fault(name: "an idle transaction holds a snapshot") { stage in
        let pin = try PostgresConnection(configuration: .init(connectionString: stage.site.database.tcpURL))
        try await pin.open()
        try await pin.execute(script: "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_xact_id()")
        try await Task.sleep(for: Profile.isFull ? .seconds(120) : lasting)
        await pin.close()
    }

    // MARK: Clocks

    static let clockAhead = clock("an hour ahead", 3600)
    static let clockBehind = clock("an hour behind", -3600)

    private static func clock(_ name: String, _ shift: Int) -> Fault {
        Fault(
            name: "109: the workers' clock is \(name)",
            settings: { try await WrongClock.settings(seconds: shift) },
            happen: { _ in try await Task.sleep(for: lasting) },
            leftTrace: { log in WrongClock.shift(in: log).map { abs($0 - Double(shift)) < 600 } ?? false }
        )
    }

    // MARK: Disks

    static let disks = [fullTables, fullLog]

    static let fullTables = Fault(name: "the tables' disk is full", ground: .smallTables) { stage in
        let disk = try #require(stage.disk)
        try disk.fill()
        try await eventually("nobody noticed") { await stage.crew.log.contains("53100") }
        try await Task.sleep(for: lasting)
        disk.free()
    }

    static let fullLog = Fault(name: "the log's disk is full", ground: .smallLog) { stage in
        let disk = try #require(stage.disk)
        try disk.fill()
        // Every new segment is one too many: it dies, and may not even come up again.
        try await eventually("the server lives on") {
            (try? await stage.server.administer("SELECT pg_switch_wal(), pg_current_xact_id()")) == nil
        }
        try await Task.sleep(for: lasting)
        disk.free()
        try await eventually("the server stays away") {
            if !stage.server.isRunning { try? await stage.server.start() }
            return (try? await stage.server.administer("SELECT 1")) != nil
        }
    }
}
