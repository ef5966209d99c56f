import Entitlements
import Postgres
import RateLimits
@testable import StoreClients
import TestSupport
import Testing

/// The shared budget, from its first request on.
struct BudgetTests {
    private func budget(
        _ world: World,
        _ perMinute: Int,
        reserves: (Double, Double) = (25, 5),
        credential: String = "revenuecat"
    ) -> RateBudget {
        RateBudget(
            pool: world.pool,
            credential: credential,
            perMinute: perMinute,
            restoreReservePercent: reserves.0,
            supportReservePercent: reserves.1
        )
    }

    @Test(
        "A store that never told its limit is asked as fast as ours allows, and everybody is served at once",
        arguments: [480, 60, 12, 8, 3, 1]
    )
    func firstRequest(perMinute: Int) async throws {
        try await World.with { world in
            for share in RateBudget.Share.allCases {
                for reserves in [(25.0, 5.0), (90.0, 5.0), (0.0, 0.0)] {
                    // Each has a bucket of its own.
                    let budget = budget(world, perMinute, reserves: reserves, credential: "\(share) \(reserves)")
                    let level = try await budget.level().tokens
                    let given = try await budget.take(1, for: share).tokens
                    #expect(level >= 1 && given == 1, "\(share) \(reserves)")
                }
            }
        }
    }

    @Test(
        "93: a store that says it is asked too often is left alone, whatever status it says so with",
        arguments: [429, 403]
    )
    func throttled(status: Int) async throws {
        try await World.with { world in
            let gate = StoreRateLimiter(.googlePlay, budget: budget(world, 0), logger: .quiet).permit
            try await gate.admit(.restore)
            gate.report(StoreAnswer(status: status, failure: .throttled, retryAfter: .seconds(90)))
            let refusal = await #expect(throws: ReadFailure.self) { try await gate.admit(.restore) }
            #expect(refusal?.code == .budgetExhausted)
            let wait = try #require(refusal?.retryAfter)
            #expect(wait > .seconds(60) && wait <= .seconds(90))
        }
    }

    @Test("Whoever is cancelled at the gate leaves it at once, and the others are served")
    func cancelled() async throws {
        try await World.with { world in
            let budget = budget(world, 480)
            while try await budget.take(1000, for: .sweep).tokens > 0 {}
            let gate = StoreRateLimiter(budget: budget, logger: .quiet).permit
            let waiting = Task { try await gate.admit(.sweep) }
            waiting.cancel()
            // Without an end of its own this would last as long as the gate's patience.
            let refusal = await #expect(throws: ReadFailure.self) { try await waiting.value }
            #expect(refusal?.code == .interrupted)
            try await gate.admit(.support)
        }
    }

    @Test("173: sweeps leave what is kept for restores, and restores what is kept for support")
    func reserves() async throws {
        try await World.with { world in
            let budget = budget(world, 480)
            // An eighth of a minute's requests is 60: 42, then a quarter more, then the rest.
            let sweep = try await budget.take(1000, for: .sweep).tokens
            let more = try await budget.take(1000, for: .sweep).tokens
            let restore = try await budget.take(1000, for: .restore).tokens
            let support = try await budget.take(1000, for: .support).tokens
            #expect((41...43).contains(sweep) && more <= 2)
            #expect((13...19).contains(restore) && (2...7).contains(support))
        }
    }

    @Test(
        "The store's own limit lowers ours, raises nothing, and is told to be lower by doctor",
        arguments: [0, 24, 9999]
    )
    func seenLimit(limit: Int) async throws {
        try await World.with { world in
            let budget = budget(world, 480)
            _ = try await budget.take(1, for: .restore)
            try await budget.note(limit: limit, usage: 1, wait: nil)
            try await world.pool.query(
                "UPDATE entitlement_sync.rate_budget AS b SET refilled_at = now() - interval '1 hour'"
            )
            let most = Double(min(max(limit, 1), 480)) / 8
            let level = try await budget.level().tokens
            #expect(level <= max(most, 1.5) && level >= min(most, 1))
            let given = try await budget.take(1000, for: .support).tokens
            #expect(Double(given) <= level + 1)
        }
    }
}
