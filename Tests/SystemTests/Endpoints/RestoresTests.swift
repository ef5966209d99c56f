import Entitlements
import Foundation
import Postgres
import TestSupport
import Testing
import UserRequests

/// Many restores asked for in one transaction.
@Suite struct RestoresTests {
    private static let claim = #"[{"store":"google_play","kind":"purchase_token","value":"token-of-ann"}]"#

    @Test func `Each is taken as it would be alone, and whoever is refused spoils nothing for the others`() async throws
    {
        try await World.with { world in
            for user in ["ann", "bob", "cy"] { try await world.add(user) }
            let wishes = [
                RestoreWish(
                    userID: "cy",
                    productIDs: ["premium", #"a "b",c"#],
                    idempotencyKey: "k",
                    origin: "paywall"
                ),
                RestoreWish(userID: "nobody"), RestoreWish(userID: "ann", proofs: Self.claim),
                RestoreWish(userID: "bob", proofs: #"[{"store":"moon","kind":"purchase_token","value":"x"}]"#),
                RestoreWish(userID: "bob", clientError: "7102"), RestoreWish(userID: "cy", idempotencyKey: "k"),
                RestoreWish(userID: "ann"), RestoreWish(userID: "bob", origin: "moon"),
            ]
            let answers = try await world.app.restores(wishes)
            #expect(answers.map(Self.word) == ["new", "ES001", "new", "ES002", "new", "ES004", "joined", "22023"])
            #expect(try answers[6].get().id == answers[2].get().id)
            #expect(Self.failure(answers[3])?.message.hasPrefix("proofs[0]") == true)
            #expect(Self.failure(answers[3])?.hint != nil)
            #expect(
                Set(try await world.texts("SELECT s.user_id FROM entitlement_sync.job_status AS s")) == [
                    "ann", "bob", "cy",
                ]
            )
            #expect(
                try await world.texts(
                    "SELECT array_to_string(r.product_ids, '|') FROM entitlement_sync.job_request AS r WHERE r.origin = 'paywall'"
                )
                    == [#"premium|a "b",c"#]
            )
        }
    }

    @Test func `Whom somebody holds is refused after a moment, and nobody waits for more than four of them`()
        async throws
    {
        try await World.with { world in
            let users = (1...8).map { "user-\($0)" } + ["ann"]
            for user in users {
                try await world.add(user)
                _ = try await world.meet(user)
            }
            let refused = try await world.pool.withTransaction { host in
                for user in users.dropLast() {
                    try await host.query("SELECT entitlement_sync.request_restore(\(user))")
                }
                return try await world.app.restores(users.reversed().map { RestoreWish(userID: $0) }).map(Self.word)
            }
            // Ann, whom nobody holds, stands behind the fourth of them.
            #expect(refused == Array(repeating: SQLState.lockNotAvailable, count: 9))
            let later = try await world.app.restores(users.map { RestoreWish(userID: $0) })
            #expect(later.map(Self.word) == Array(repeating: "joined", count: 8) + ["new"])
        }
    }

    @Test func `Two that ask for the same users in other orders end without a deadlock`() async throws {
        try await World.with { world in
            let users = (1...20).map { "user-\($0)" }
            for user in users { try await world.add(user) }
            for _ in 1...10 {
                async let some = world.app.restores(users.map { RestoreWish(userID: $0) })
                async let others = world.app.restores(users.reversed().map { RestoreWish(userID: $0) })
                for answer in try await some + others {
                    #expect([SQLState.lockNotAvailable, "new", "joined"].contains(Self.word(answer)))
                }
                let again = try await world.app.restores(users.map { RestoreWish(userID: $0) })
                #expect(Set(again.map(Self.word)).isSubset(of: ["new", "joined"]))
                try await world.pool.query("DELETE FROM entitlement_sync.queue")
            }
        }
    }

    private static func failure(_ answer: Result<AppRequests.Accepted, PostgresError>) -> PostgresError? {
        guard case .failure(let error) = answer else { return nil }
        return error
    }

    private static func word(_ answer: Result<AppRequests.Accepted, PostgresError>) -> String {
        switch answer {
        case .success(let accepted): accepted.isNew ? "new" : "joined"
        case .failure(let error): error.sqlState ?? error.code.rawValue
        }
    }
}
