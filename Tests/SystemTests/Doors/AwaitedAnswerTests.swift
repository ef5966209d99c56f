import Entitlements
import Foundation
import Storage
import Synchronization
import Testing

/// Answers that a worker gives to whoever waits in its own process.
@Suite struct AwaitedAnswerTests {
    private final class Told: Sendable {
        let answers = Mutex<[UUID: RestoreAnswer]>([:])
    }

    private static let customers = [
        "{id: claimant, state: none}",
        "{id: paid, state: active}", "{id: again, state: active}", "{id: bare, state: none}",
        "{id: lapsed, state: expired}", "{id: particular, state: active}", "{id: unwatched, state: active}",
    ]

    @Test func `They are what the database answers afterwards, for every way in which a restore is decided`()
        async throws
    {
        try await World.with(customers: Self.customers) { world in
            let told = Told()
            var jobs: [String: UUID] = [:]
            for user in ["paid", "bare", "lapsed", "particular", "unwatched"] { try await world.add(user) }
            try await world.add("again", .subscriber)
            try await world.add("banned", status: "banned")
            try await world.add("claimant")
            for user in ["paid", "again", "bare", "lapsed", "unwatched"] {
                jobs[user] = try await world.restore(user)
            }
            jobs["banned"] = try await world.restore("banned")
            jobs["claimant"] = try await world.restore("claimant", clientError: "7")
            jobs["particular"] = try await world.restore("particular", productIDs: ["of-another-app"])
            let unwatched = try #require(jobs["unwatched"])
            var setup = WorkerSetup()
            setup.isAwaited = { $0 != unwatched }
            setup.tell = { answers in
                told.answers.withLock { for answer in answers { $0[answer.id] = answer } }
            }
            try await world.work(setup)
            var outcomes: Set<String> = []
            for (user, job) in jobs where user != "unwatched" {
                var read = try #require(try await world.app.answers([job]).first)
                let answer = try #require(told.answers.withLock { $0[job] }, "\(user)")
                #expect(answer.age >= 0 && answer.age <= read.age, "\(user)")
                read.age = answer.age
                #expect(answer == read, "\(user)")
                outcomes.insert(answer.outcome ?? "")
            }
            #expect(
                outcomes == [
                    "restored", "already_subscriber", "nothing_to_restore", "not_eligible", "store_account_mismatch",
                ]
            )
            #expect(told.answers.withLock { $0[unwatched] } == nil, "nobody waits for it here")
            let paid = try #require(jobs["paid"])
            #expect(told.answers.withLock { $0[paid]?.products.count } == 1)
            let particular = try #require(jobs["particular"])
            #expect(told.answers.withLock { $0[particular]?.products.isEmpty } == true)
        }
    }
}
