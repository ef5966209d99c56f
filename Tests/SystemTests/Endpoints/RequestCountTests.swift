import Logging
import Postgres
import TestSupport
import Testing
import UserRequests

/// Requests that are counted over all processes.
@Suite struct RequestCountTests {
    private static let key = PostgresBytes(Array("somebody".utf8))

    @Test func `Twenty who take at the same time get together what a minute has, and not one more`() async throws {
        try await World.with { world in
            let configuration = PostgresConfiguration(connectionString: world.database.url, maxConnections: 8)
            let given = try await withPool(configuration) { pool in
                let counts = RequestCounts(pool: pool)
                return try await withThrowingTaskGroup(of: RequestCounts.Given.self) { group in
                    for _ in 1...20 {
                        group.addTask { try await counts.take(3, of: 25, for: Self.key) }
                    }
                    return try await group.reduce(into: []) { $0.append($1) }
                }
            }
            let requests = given.map(\.requests).sorted()
            let fair = [Int](repeating: 0, count: 11) + [1] + [Int](repeating: 3, count: 8)
            #expect(requests == fair, "twenty-five of a minute")
            let isWithin = given.allSatisfy { $0.wait > .seconds(30) && $0.wait <= .seconds(61) }
            #expect(isWithin, "a minute lasts a minute")
        }
    }

    @Test func `A minute begins with its first request; once it is over the next one begins another`() async throws {
        try await World.with { world in
            let counts = RequestCounts(pool: world.pool)
            #expect(try await counts.take(4, of: 5, for: Self.key).requests == 4)
            let rest = try await counts.take(4, of: 5, for: Self.key)
            #expect(rest.requests == 1)
            // Who is refused again and again does not make the minute longer.
            for _ in 1...3 { #expect(try await counts.take(1, of: 5, for: Self.key).requests == 0) }
            try await Self.age("50 seconds", in: world)
            let last = try await counts.take(1, of: 5, for: Self.key)
            #expect(last.requests == 0 && last.wait <= .seconds(10))
            try await Self.age("10 seconds", in: world)
            let first = try await counts.take(4, of: 5, for: Self.key)
            #expect(first.requests == 4 && first.wait > .seconds(50) && first.wait <= .seconds(60))
            #expect(try await counts.take(4, of: 5, for: Self.key).requests == 1)
        }
    }

    @Test func `Each is counted apart, and nobody is given more at once than a minute has`() async throws {
        try await World.with { world in
            let counts = RequestCounts(pool: world.pool)
            let whole = try await counts.take(100, of: 7, for: Self.key)
            let more = try await counts.take(1, of: 7, for: Self.key)
            #expect(whole.requests == 7 && more.requests == 0)
            let other = try await counts.take(1, of: 7, for: PostgresBytes(Array("somebody else".utf8)))
            #expect(other.requests == 1)
            // A limit that was raised gives what it has more, but for what was refused before.
            let raised = try await counts.take(100, of: 9, for: Self.key)
            #expect(raised.requests == 1)
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.request_count") == 2)
        }
    }

    /// Lets time have passed since the minute began.
    private static func age(_ span: String, in world: World) async throws {
        try await world.pool.query("UPDATE entitlement_sync.request_count SET began = began - \(span)::interval")
    }
}
