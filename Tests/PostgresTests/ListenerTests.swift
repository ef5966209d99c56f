import Postgres
import TestSupport
import Testing

@Suite(.database) struct ListenerTests {
    /// Runs a listener beside a closure, and ends it afterwards.
    private func listening(
        to channels: [String],
        events: Recorder<String>,
        onNotification: @escaping @Sendable (PostgresNotification) async -> Void = { _ in },
        _ body: (PostgresConnection) async throws -> Void
    ) async throws {
        let listener = PostgresListener(configuration: try configuration())
        let task = Task {
            try await listener.run(channels: channels) { notification in
                events.record("\(notification.channel)=\(notification.payload)")
                await onNotification(notification)
            } onConnected: {
                events.record("connected")
            } onInterrupted: {
                events.record("interrupted")
            }
        }
        try await run {
            try await withConnection { try await body($0) }
        } finally: {
            task.cancel()
        }
        // Returns: the end was asked for.
        try await task.value
    }

    @Test func `notifications arrive in order, from all channels`() async throws {
        let events = Recorder<String>()
        try await listening(to: ["one", "Two \"quoted\""], events: events) { sender in
            try await eventually { events.values == ["connected"] }
            for number in 0..<50 { try await sender.query("SELECT pg_notify('one', \("\(number)"))") }
            try await sender.query("SELECT pg_notify('Two \"quoted\"', 'é'), pg_notify('other', '')")
            try await eventually { events.values.count == 52 }
            #expect(events.values == ["connected"] + (0..<50).map { "one=\($0)" } + ["Two \"quoted\"=é"])
        }
    }

    @Test func `a listener comes back after its connection was killed, and says so`() async throws {
        let events = Recorder<String>()
        try await listening(to: ["hints"], events: events) { sender in
            for round in 1...3 {
                try await eventually { events.values.count(where: { $0 == "connected" }) == round }
                try await sender.query("SELECT pg_notify('hints', \("\(round)"))")
                try await eventually { events.values.last == "hints=\(round)" }
                try await sender.query(
                    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()"
                )
            }
            try await eventually { events.values.count(where: { $0 == "interrupted" }) == 3 }
        }
    }

    @Test func `a listener waits for a server that is away`() async throws {
        let server = try await PrivatePostgres.start()
        let listener = PostgresListener(
            configuration: PostgresConfiguration(connectionString: server.url(database: "postgres"))
        )
        let events = Recorder<String>()
        try await server.stop()
        let task = Task {
            try await listener.run(
                channels: ["x"],
                onNotification: { _ in },
                onConnected: { events.record("connected") }
            )
        }
        try await server.start()
        try await eventually { events.values == ["connected"] }
        task.cancel()
        try await task.value
        try await server.stop(immediately: true)
    }

    @Test func `a slow handler loses hints, not the connection, and is told of the gap`() async throws {
        let events = Recorder<String>()
        let gate = OneGate()
        try await listening(to: ["flood"], events: events, onNotification: { _ in await gate.pass() }) { sender in
            try await eventually { events.values == ["connected"] }
            // How much was read behind a closed gate cannot be seen: it stays closed for a while, each round for longer,
            // until something was lost.
            for round in 1...20 where events.values.count(where: { $0 == "connected" }) < 2 {
                await gate.close()
                let seen = events.values.count
                try await sender.query("SELECT count(pg_notify('flood', n::text)) FROM generate_series(1, 5000) AS n")
                try await eventually { events.values.count > seen }
                try await Task.sleep(for: .milliseconds(50 * round))
                // What is sent now proves, once it arrives, that all before it was read or dropped.
                let last = "last of \(round)"
                try await sender.query("SELECT pg_notify('flood', \(last))")
                await gate.open()
                try await eventually { events.values.last == "flood=\(last)" }
            }
            #expect(events.values.count(where: { $0 == "connected" }) >= 2)
        }
    }

    @Test func `a wrong configuration ends the listener`() async throws {
        let listener = PostgresListener(configuration: PostgresConfiguration(connectionString: "nonsense"))
        let error = try await failure {
            try await listener.run(channels: ["x"], onNotification: { _ in }, onConnected: {})
        }
        #expect(error.code == .configuration)
    }
}

/// Holds tasks until it is opened, then lets everybody pass.
private actor OneGate {
    private var isOpen = false
    private var waiters: [CheckedContinuation<Void, Never>] = []

    func pass() async {
        guard !isOpen else { return }
        await withCheckedContinuation { waiters.append($0) }
    }

    func close() { isOpen = false }

    func open() {
        isOpen = true
        for waiter in waiters { waiter.resume() }
        waiters = []
    }
}
