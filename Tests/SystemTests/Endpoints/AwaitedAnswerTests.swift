import Entitlements
import Foundation
import Postgres
import Reconciliation
import Synchronization
import TestSupport
import Testing
import UserRequests

/// Answers that a worker gives to whoever waits in its own process.
@Suite struct AwaitedAnswerTests {
    private final class Audience: RestoreAudience {
        let told = Mutex<[RestoreAnswer]>([])
        private let ignored: Set<UUID>

        init(ignoring ignored: Set<UUID> = []) { self.ignored = ignored }

        func awaits(_ id: UUID) -> Bool { !ignored.contains(id) }

        func take(_ answers: [RestoreAnswer]) -> Set<UUID> {
            told.withLock { $0 += answers }
            return Set(answers.map(\.id))
        }

        /// Ends are final: nobody is told twice.
        func answer(_ id: UUID) throws -> RestoreAnswer? {
            let answers = told.withLock { $0.filter { $0.id == id } }
            try #require(answers.count <= 1)
            return answers.first
        }
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
            let audience = Audience(ignoring: [unwatched])
            setup.audience = audience
            try await world.work(setup)
            var outcomes: Set<String> = []
            for (user, job) in jobs where user != "unwatched" {
                var read = try #require(try await world.app.answers([job]).first)
                let answer = try #require(try audience.answer(job), "\(user)")
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
            #expect(try audience.answer(unwatched) == nil, "nobody waits for it here")
            let paid = try #require(jobs["paid"])
            #expect(try audience.answer(paid)?.products.count == 1)
            let particular = try #require(jobs["particular"])
            #expect(try audience.answer(particular)?.products.isEmpty == true)
        }
    }

    @Test func `Nobody is told before it is committed`() async throws {
        try await World.with(customers: Self.customers) { world in
            try await world.add("paid")
            let job = try await world.restore("paid")
            // The first commit is refused as one that ran into another.
            try await world.pool.withConnection { connection in
                try await connection.execute(
                    script: """
                        CREATE SEQUENCE commits;
                        CREATE FUNCTION refuse_first() RETURNS trigger LANGUAGE plpgsql AS $$
                        BEGIN
                            IF nextval('commits') = 1 THEN
                                RAISE EXCEPTION 'refused' USING ERRCODE = 'serialization_failure';
                            END IF;
                            RETURN NULL;
                        END $$;
                        CREATE CONSTRAINT TRIGGER refuse_first AFTER UPDATE ON users
                            DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse_first();
                        """
                )
            }
            let audience = Audience()
            var setup = WorkerSetup()
            setup.audience = audience
            try await world.work(setup)
            #expect(try await world.number("SELECT last_value FROM commits") == 2, "one commit was refused")
            #expect(try audience.answer(job)?.outcome == "restored")
        }
    }
}
