@testable import Entitlements

extension Model {
    /// An account is erased: its record goes on without a name, and whoever has the id is met anew.
    ///
    /// - Returns: the place of the record from now on; `nil`: there was none.
    mutating func erase(_ user: Int) -> Int? {
        people[user].sandbox = .none
        guard people[user].isKnown else { return nil }
        note("erased")
        let isRead = sweeps.contains { $0.goesOn && $0.parts.contains { $0.isOpen && $0.users.contains(user) } }
        if isRead { note("erased in a run") }
        if sweeps.contains(where: { $0.changes[user]?.state == .held }) { note("erased while a run held it") }
        let ghost = people.count
        var record = people[user]
        record.exists = false
        record.isErased = true
        record.run = nil
        record.look = nil
        people.append(record)
        var fresh = Person(type: record.type, status: record.status)
        fresh.exists = people[user].exists
        people[user] = fresh
        func moved(_ place: Int) -> Int { place == user ? ghost : place }
        func moved(_ key: TicketKey) -> TicketKey {
            TicketKey(claimant: moved(key.claimant), purchase: key.purchase)
        }
        for row in purchases.indices {
            purchases[row].facts.ownerKey = purchases[row].facts.ownerKey.map { Int64(moved(Int($0) - 1) + 1) }
            purchases[row].facts.accountKey = purchases[row].facts.accountKey.map { Int64(moved(Int($0) - 1) + 1) }
            purchases[row].facts.formerOwnerKey = purchases[row].facts.formerOwnerKey
                .map { Int64(moved(Int($0) - 1) + 1) }
        }
        for job in jobs.indices {
            jobs[job].ticket = jobs[job].ticket.map(moved)
            guard jobs[job].user == user else { continue }
            jobs[job].user = ghost
            jobs[job].proofs = []
            jobs[job].clientError = nil
        }
        tickets = Dictionary(
            tickets.map { key, ticket in
                var same = ticket
                same.owner = ticket.owner.map { moved($0) }
                if same.owner == ghost || moved(key).claimant == ghost { same.forgetTypedIDs() }
                return (moved(key), same)
            }
        ) { first, _ in first }
        for place in sweeps.indices {
            sweeps[place].late = sweeps[place].late.map(moved)
            for part in sweeps[place].parts.indices {
                sweeps[place].parts[part].users = sweeps[place].parts[part].users.map(moved)
            }
            if let change = sweeps[place].changes.removeValue(forKey: user) { sweeps[place].changes[ghost] = change }
        }
        return ghost
    }

    /// The rows that a transfer moves: what one of the two has, or nobody.
    func moved(_ names: Set<String>, with purchase: Int, from: Int?, to: Int) -> [Int] {
        let keys = self.names.filter { names.contains(plain($0.key.value)) }.map(\.value)
        return Set(keys + [purchase]).filter { row in
            guard purchases[row].mergedInto == nil else { return false }
            let owner = purchases[row].facts.ownerKey.map { Int($0) - 1 }
            return owner == nil || owner == from || owner == to
        }.sorted()
    }

    /// Support has moved rows: what is on record about them is of the past, and their tickets are closed.
    mutating func transfer(_ rows: [Int], from: Int?, to: Int) {
        note("transferred")
        enqueue(to, .reconcile)
        if let from, from != to { enqueue(from, .reconcile) }
        for row in rows {
            purchases[row].facts.ownerKey = Int64(to + 1)
            purchases[row].facts.formerOwnerKey = nil
        }
        func root(_ row: Int) -> Int { purchases[row].mergedInto.map(root) ?? row }
        for key in tickets.keys where key.purchase.map({ rows.contains(root($0)) }) == true {
            note("a transfer closes a ticket")
            tickets[key] = nil
        }
    }
}
