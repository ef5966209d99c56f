@testable import Entitlements
import Foundation
import Queue

extension Model {
    /// The state as sorted lines, in the words in which the database's state is read.
    var lines: [String] {
        var lines: [String] = []
        for (index, person) in people.enumerated() {
            let name = name(index)
            if person.exists { lines.append("user|\(userID(index))|\(person.type.rawValue)|\(person.status.rawValue)") }
            if person.isKnown {
                lines.append(
                    "known|\(name)|\(person.epoch)|\(text(person.readAt))|\(text(person.absentSince))"
                        + "|\(text(person.movedAwayAt))|\(person.everObserved)|\(text(person.look))"
                )
            }
            if let run = person.run {
                lines.append("run|\(name)|\(run.epoch)|\(run.freezes ? "freeze" : "unfreeze")")
            }
            if let row = person.row { lines.append(line(row, of: index)) }
        }
        for (id, asset) in assets {
            let isFrozen = asset.isMysterious || !asset.reasons.isEmpty
            lines.append("asset|\(id)|\(userID(asset.owner))|\(asset.reasons.joined(separator: ","))|\(isFrozen)")
        }
        lines += purchases.indices.map(purchaseLine)
        lines += sweeps.indices.flatMap(sweepLines)
        lines += tickets.map(ticketLine)
        lines += jobs.map(jobLine)
        for decision in decisions {
            let job = id(of: decision.job)
            lines.append(
                "decision|\(job)|\(decision.rule.rawValue)|\(decision.outcome.rawValue)|\(text(decision.before?.rawValue))"
                    + "|\(text(decision.after?.rawValue))|\(decision.assets)|\(decision.isBraked)"
            )
            if decision.observations > 0 { lines.append("observed|\(job)|\(decision.observations)") }
        }
        lines += alarms.map { "alarm|\($0)" }
        return lines.map(plain).sorted()
    }

    private func line(_ row: Row, of user: Int) -> String {
        let slots = [
            row.jobs[.restore], row.jobs[.reconcile], row.successors[.restore], row.successors[.reconcile],
        ]
        let isHeld = row.owner != nil || row.isCanceling
        return "queue|\(name(user))|" + slots.map { $0.map(id(of:)) ?? "-" }.joined(separator: "|")
            + "|\(text(row.owner))|\(isHeld ? text(row.active?.rawValue) : "-")|\(row.isCanceling)|\(row.crashes)"
    }

    private func purchaseLine(_ index: Int) -> String {
        let row = purchases[index]
        let facts = row.facts
        let held = names.filter { $0.value == index }.map { "\($0.key.value)/\($0.key.store)" }.inByteOrder
        return "purchase|\(index)|\(facts.ownerKey.map { name(Int($0) - 1) } ?? "-")|\(text(row.mergedInto))"
            + "|\(text(facts.formerOwnerKey.map { name(Int($0) - 1) }))|\(text(facts.transferredAt))"
            + "|\(facts.status.raw)|\(text(facts.givesAccess))|\(facts.endAnnounced)|\(text(facts.observedAt))"
            + "|\(text(facts.periodEndsAt))|\(facts.entitlements.joined(separator: ","))|\(held.joined(separator: ","))"
    }

    private func ticketLine(_ key: TicketKey, _ ticket: Ticket) -> String {
        "ticket|\(label(key))|\(ticket.kind.rawValue)|\(text(ticket.owner.map(name)))|\(text(ticket.originalID))"
            + "|\(ticket.isVisible)|\(ticket.priority)|\(ticket.touches)"
    }

    private func jobLine(_ job: Job) -> String {
        let kind = job.kind == .restore ? "restore" : "reconcile"
        let error = job.state == .done || job.state == .canceled ? nil : job.error
        // Restores say why they wait.
        let waits = job.kind == .restore && paused.contains("all") && (job.state == .queued || job.state == .running)
        let key = waits ? "still_checking" : job.key?.rawValue
        let user = people[job.user].isErased ? "-" : userID(job.user)
        return "job|\(text(job.id))|\(kind)|\(user)|\(job.state.rawValue)|\(text(job.outcome?.rawValue))"
            + "|\(text(key))|\(text(job.ticket.map(label)))|\(job.attempt)|\(text(error))"
    }

    private func label(_ key: TicketKey) -> String { "\(name(key.claimant))/\(text(key.purchase))" }

    private func id(of job: Int) -> String { text(jobs[job].id) }

    func text(_ moment: Instant?) -> String { moment.map { "\($0.microseconds)" } ?? "-" }

    private func text(_ id: UUID?) -> String { id?.uuidString.lowercased() ?? "?" }

    func text<Value>(_ value: Value?) -> String { value.map { "\($0)" } ?? "-" }

    /// Learns what only the database can know: the ids of jobs that were queued by the system itself, and the numbers
    /// of rows.
    mutating func adopt(_ lines: [String]) {
        let known = Set(jobs.compactMap(\.id))
        let named = Dictionary(people.indices.map { (plain(name($0)), $0) }) { first, _ in first }
        for line in lines {
            let parts = line.split(separator: "|", omittingEmptySubsequences: false).map(String.init)
            if parts[0] == "key", let user = named[parts[1]] { people[user].key = Int64(parts[2]) }
            if parts[0] == "queue", let user = named[parts[1]], let row = people[user].row {
                let slots = [
                    row.jobs[.restore], row.jobs[.reconcile], row.successors[.restore],
                    row.successors[.reconcile],
                ]
                for (place, job) in slots.enumerated() {
                    guard let job, jobs[job].id == nil, let id = UUID(uuidString: parts[place + 2]), !known.contains(id)
                    else { continue }
                    jobs[job].id = id
                }
            }
            if parts[0] == "purchase", let row = Int(parts[1]) {
                let held = Set(parts[12].split(separator: ",").map(String.init))
                for (name, rows) in contested where rows.contains(row) {
                    guard held.contains(plain("\(name.value)/\(name.store)")) else { continue }
                    names[name] = row
                }
            }
            if parts[0] == "number", let row = Int(parts[1]), purchases.indices.contains(row) {
                purchases[row].number = Int64(parts[2])
            }
        }
        contested = [:]
    }
}
