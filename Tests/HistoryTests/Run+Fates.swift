import Entitlements
import Foundation
import Postgres
import Queue
import UserRequests

extension Run {
    mutating func fallDue(_ user: Int) async throws {
        guard model.people[user].isKnown else { return }
        try await lane.host.query(
            "UPDATE entitlement_sync.user_sync SET next_check_at = '2001-01-01 UTC' WHERE user_id = \(userID(user))"
        )
        model.people[user].look = Instant(microseconds: 978_307_200_000_000)
    }

    mutating func erase(_ user: Int) async throws {
        let erased = try await Erasure(pool: lane.host).erase(userID(user))
        let isKnown = model.people[user].isKnown
        try expect((erased != nil) == isKnown, "an erasure found \(erased == nil ? "nobody" : "somebody")")
        guard let ghost = model.erase(user) else { return }
        let owned = model.purchases.count { $0.mergedInto == nil && $0.facts.ownerKey == Int64(ghost + 1) }
        try expect(erased?.purchases == Int64(owned), "an erasure found other purchases")
        keys = keys.filter { !$0.key.hasPrefix("\(user)/") }
        past[user] = nil
        notified[user] = nil
        for side in Side.allCases {
            func move(_ hands: inout [Hand]) {
                for place in hands.indices where hands[place].user == user { hands[place].user = ghost }
            }
            if workers[side]?.hands.contains(where: { $0.user == user }) == true {
                model.note("erased with a job in hand")
            }
            if var worker = workers[side] {
                move(&worker.hands)
                move(&worker.last)
                workers[side] = worker
            }
        }
    }

    /// A transfer that was allowed and confirmed is settled; RevenueCat has moved all that the former owner has.
    mutating func transfer(_ item: Int, to: Int, echoes: Bool) async throws {
        let row = truth.items[item].identifiers.compactMap { model.names[$0.key] }.first
        guard let row, let number = model.purchases[row].number, let toKey = model.people[to].key,
            model.people[to].exists, let owner = model.purchases[row].facts.ownerKey.map({ Int($0) - 1 }), owner != to
        else { return }
        let customer = truth.items[item].customer
        let moves = truth.items.filter { $0.customer == customer && $0.isListed }.compactMap(\.names.first)
        let rows = model.moved(Set(moves.map(plain)), with: row, from: owner, to: to)
        if rows.count > 1 { model.note("a transfer moves several purchases") }
        let fromKey = model.people[owner].key
        // Tickets are made of what was agreed to before; the step itself is the product's.
        let ids = try await lane.host.withTransaction { host -> Int32? in
            try await host.query("SET LOCAL session_replication_role = replica")
            let transfer = try await host.query(
                "SELECT hist.transfer(\(number), \(fromKey), \(toKey), \(moves))"
            ).first?.decode(Int64.self)
            try await host.query("SET LOCAL session_replication_role = origin")
            return try await host.query("SELECT entitlement_sync.settle_transfer(\(transfer))").first?.decode(
                Int32?.self,
                at: 0
            )
        }
        try expect(ids == Int32(rows.count), "a transfer moved \(ids.map { "\($0)" } ?? "nothing"), not \(rows.count)")
        if model.sweeps.contains(where: { $0.goesOn && $0.parts.contains { $0.isOpen && $0.users.contains(owner) } }) {
            model.note("transferred in a run")
        }
        model.transfer(rows, from: owner, to: to)
        if !echoes {
            for place in truth.items.indices where moves.contains(where: truth.items[place].has) {
                if truth.items[place].customer == customer { truth.items[place].customer = to }
            }
        } else {
            model.note("a store echoes what was transferred")
        }
        for row in rows {
            guard let number = model.purchases[row].number else { continue }
            let times = try await lane.host.query(
                """
                SELECT p.owner_since, p.transferred_at, p.observed_at
                  FROM entitlement_sync.purchase AS p WHERE p.id = \(number)
                """
            ).first?.decode(PostgresTimestamp.self, PostgresTimestamp.self, PostgresTimestamp.self)
            guard let (since, moved, observed) = times else { continue }
            model.purchases[row].facts.ownerSince = Instant(since)
            model.purchases[row].facts.transferredAt = Instant(moved)
            model.purchases[row].facts.observedAt = Instant(observed)
            model.purchases[row].isAhead = false
        }
        let gave = rows.contains { row in
            let facts = model.purchases[row].facts
            return !facts.entitlements.isEmpty && facts.givesAccess ?? (facts.status.raw == "owned")
        }
        if gave, let key = fromKey {
            let at = try await lane.host.query(
                "SELECT u.moved_away_at FROM entitlement_sync.user_sync AS u WHERE u.user_key = \(key)"
            ).first?.decode(PostgresTimestamp.self)
            model.people[owner].movedAwayAt = at.map(Instant.init)
        }
        // A burst of events is over at once here.
        try await wait()
    }
}
