import TestSupport
import Testing

@testable import Postgres

struct TimerQueueTests {
    private let start = ContinuousClock.now

    @Test func `actions come due in order, cancelled ones never`() {
        var queue = TimerQueue<Int>()
        var random = SeededGenerator(seed: 1)
        var ids: [Int: UInt64] = [:]
        for due in (0..<500).shuffled(using: &random) { ids[due] = queue.add(at: start + .milliseconds(due), due) }
        for due in stride(from: 0, to: 500, by: 3) { ids[due].map { queue.remove($0) } }
        #expect(queue.takeDue(at: start - .milliseconds(1)) == [])
        #expect(queue.takeDue(at: start + .milliseconds(250)) == (0...250).filter { $0 % 3 != 0 })
        #expect(queue.takeDue(at: start + .seconds(1)) == (251..<500).filter { $0 % 3 != 0 })
        #expect(queue.count == 0 && queue.nextDue == nil)
    }

    @Test func `timers that are always cancelled leave nothing behind`() {
        var queue = TimerQueue<Int>()
        for round in 0..<10_000 {
            let id = queue.add(at: start + .seconds(1000 + round), round)
            queue.remove(id)
        }
        #expect(queue.count == 0)
        #expect(queue.entries <= 65)
    }
}

struct StatementCacheTests {
    private func key(_ number: Int) -> StatementCache.Key { StatementCache.Key("SELECT \(rawSQL: "\(number)")") }

    @Test func `the least recently used statement gives way`() {
        var cache = StatementCache(capacity: 2)
        for number in 1...2 { cache.insert(key(number), name: "s\(number)") }
        #expect(cache.name(for: key(1)) == "s1")
        cache.insert(key(3), name: "s3")
        #expect(cache.name(for: key(2)) == nil)
        #expect(cache.name(for: key(1)) == "s1")
        #expect(cache.count == 2)
        #expect(cache.takeDiscarded() == ["s2"])
        #expect(cache.takeDiscarded() == [])
    }

    @Test func `names are never used twice`() {
        var cache = StatementCache(capacity: 1)
        #expect(cache.freshName() != cache.freshName())
    }
}

struct BackoffTests {
    @Test(arguments: [
        (1, 0.0, 50), (1, 1.0, 100), (2, 1.0, 200), (5, 1.0, 1000), (1_000_000, 1.0, 1000), (0, 1.0, 100),
    ])
    func `waits double up to the cap`(failures: Int, spread: Double, milliseconds: Int) {
        let backoff = Backoff(base: .milliseconds(100), cap: .seconds(1))
        #expect(backoff.delay(afterFailures: failures, spread: spread) == .milliseconds(milliseconds))
    }
}

struct ServerAddressTests {
    private func list(_ string: String) throws -> [ServerAddress] {
        try ServerAddress.list(ConnectParameters(PostgresConfiguration(connectionString: string)))
    }

    @Test func `lists of hosts and ports are read as libpq reads them`() throws {
        #expect(
            try list("postgres://u@a:1,b:2/d") == [
                ServerAddress(host: "a", port: "1"), ServerAddress(host: "b", port: "2"),
            ]
        )
        #expect(
            try list("host=a,/run/pg,,d port=5") == [
                ServerAddress(host: "a", port: "5"), ServerAddress(host: "/run/pg", port: "5"),
                ServerAddress(host: nil, port: "5"), ServerAddress(host: "d", port: "5"),
            ]
        )
        #expect(
            try list("host=a,b hostaddr=127.0.0.1, port=,7") == [
                ServerAddress(host: "a", hostAddress: "127.0.0.1"), ServerAddress(host: "b", port: "7"),
            ]
        )
    }

    @Test(arguments: [
        ("a", nil, true), ("/run", nil, false), ("@x", nil, false), (nil, nil, false), ("a", "127.0.0.1", false),
    ])
    func `only names are looked up`(host: String?, address: String?, expected: Bool) {
        #expect(ServerAddress(host: host, hostAddress: address).needsLookup == expected)
    }

    @Test(arguments: [
        "postgres://user:pa/ss@host/db", "host=a,b hostaddr=127.0.0.1", "host=a,b port=1,2,3", "host=a port=secret",
        "host=a port=0",
        "secret", "postgres://u:secret@[::1/db", "host='secret",
    ])
    func `a wrong connection string is refused without quoting it`(string: String) throws {
        let error = try #require(throws: PostgresError.self) { try list(string) }
        #expect(error.code == .configuration)
        #expect(!String(reflecting: error).contains("secret") && !String(reflecting: error).contains("pa"))
    }

    @Test func `options keep what the connection string sets`() throws {
        var configuration = PostgresConfiguration(
            connectionString: "options='-c geqo=off'",
            sessionSettings: ["a.b": "x y\\z"]
        )
        configuration.statementTimeout = .seconds(1)
        let options = try #require(try ConnectParameters(configuration).values["options"])
        #expect(options.hasSuffix(#" -c geqo=off -c a.b=x\ y\\z -c statement_timeout=1000"#))
        #expect(options.hasPrefix("-c DateStyle=ISO,MDY -c IntervalStyle=postgres -c TimeZone=UTC -c array_nulls=on "))
        configuration.sessionState = false
        #expect(try ConnectParameters(configuration).values["options"] == "-c geqo=off")
    }
}
