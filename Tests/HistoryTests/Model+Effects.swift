@testable import Entitlements
import Foundation
import Queue

extension Model {
    /// Makes a verdict true for its user: type, notes, assets, tickets, decision.
    mutating func settle(_ effect: inout Effect, lockedAssets: Set<Int64>) {
        let user = effect.item.user
        let changes = effect.after != effect.before
        if changes, !isObserving, let after = effect.after {
            people[user].type = after
            people[user].epoch += 1
            people[user].flips += 1
            if people[user].flips > 4 { alarms.insert("flapping") }
        }
        if effect.item.reading.coverage != .none {
            people[user].readAt = max(people[user].readAt ?? effect.item.reading.askedAt, effect.item.reading.askedAt)
        }
        switch isObserving && effect.verdict.action == .demote ? .keep : effect.verdict.absence {
        case .keep: break
        case .clear:
            people[user].absentSince = nil
            people[user].movedAwayAt = nil
        case .begin: people[user].absentSince = effect.item.reading.askedAt
        }
        if effect.isExplained { people[user].everObserved = true }
        if !isObserving, effect.before != nil, people[user].status.isEligible {
            switch effect.verdict.action {
            case .grant: people[user].decidedType = .subscriber
            case .demote: people[user].decidedType = .free
            case .none: if effect.before == .free { people[user].decidedType = .free }
            }
        }
        if let next = effect.nextCheck { people[user].look = next.at }
        let changed = changeAssets(&effect, lockedAssets: lockedAssets)
        if !isObserving { openTickets(effect) }
        if effect.verdict.rule == .clientAppNotRegistered { alarms.insert("app_not_registered") }
        let items = effect.item.reading.observations.count
        decisions.append(
            Decision(
                job: effect.item.job,
                rule: effect.verdict.rule,
                outcome: effect.verdict.outcome,
                before: effect.before,
                after: effect.after,
                assets: changed,
                isBraked: !isObserving && effect.verdict.action == .demote && !effect.verdict.wasAnnounced
                    && !effect.isConfirmed,
                isObserved: isObserving,
                observations: effect.writesLedger ? max(1, items) : 0
            )
        )
    }

    private mutating func changeAssets(_ effect: inout Effect, lockedAssets: Set<Int64>) -> Int {
        guard effect.before != nil, effect.verdict.action != .none else { return 0 }
        let user = effect.item.user
        let freezes = effect.verdict.action == .demote
        var (changed, more): (Int, Bool)
        var cursor: Int64 = 0
        if isObserving {
            changed = assets.values.count { $0.owner == user && $0.isLapsed != freezes }
            more = false
        } else {
            (changed, more, cursor) = batch(
                of: user,
                freezes: freezes,
                after: 0,
                limit: setup.assetBatch,
                locked: lockedAssets
            )
        }
        if !freezes, jobs[effect.item.job].kind == .restore, changed > 0 || more { effect.verdict.outcome = .restored }
        if !freezes, effect.verdict.outcome == .restored {
            effect.verdict.messageKey = more ? .restoredAssetsPending : .restored
        }
        if more {
            if let run = people[user].run, run.freezes != freezes {
                note(freezes ? "lapse cuts an unfreeze" : "restore cuts a freeze")
            }
            note("assets go on in a run")
            people[user].run = Run(
                epoch: people[user].epoch,
                freezes: freezes,
                cursor: cursor,
                decision: decisions.count
            )
        } else if let run = people[user].run, run.freezes != freezes {
            note(freezes ? "lapse cuts an unfreeze" : "restore cuts a freeze")
        }
        return changed
    }

    /// Changes up to `limit` of the user's assets behind a cursor.
    private mutating func batch(of user: Int, freezes: Bool, after: Int64, limit: Int, locked: Set<Int64>)
        -> (changed: Int, more: Bool, cursor: Int64)
    {
        let candidates = assets.filter {
            $0.key > after && $0.value.owner == user && $0.value.isLapsed != freezes
                && !(freezes && $0.value.isMysterious)
        }.keys.sorted()
        let chosen = candidates.filter { !locked.contains($0) }.prefix(limit)
        // The cursor stays before the first that somebody holds.
        let left = candidates.first { !chosen.contains($0) }
        for id in chosen {
            if freezes {
                assets[id]?.reasons.append(Asset.lapsed)
            } else {
                assets[id]?.reasons.removeAll { $0 == Asset.lapsed }
            }
        }
        let cursor = min(chosen.last ?? 0, left.map { $0 - 1 } ?? .max)
        return (chosen.count, min(candidates.count, limit + 1) > chosen.count, cursor)
    }

    /// One batch of a user's unfinished assets.
    mutating func continueAssets(of user: Int, limit: Int) {
        guard let run = people[user].run, !paused.contains("all"), !isObserving else { return }
        // Whoever decides on the user now comes first.
        guard people[user].row?.owner == nil else { return note("assets wait for whoever decides on their user") }
        let person = people[user]
        let holds = run.freezes ? person.type == .free : person.type == .subscriber && person.status.isEligible
        guard person.exists, run.epoch == person.epoch, holds else {
            note(holds && person.exists ? "asset run of the past fits again, and ends" : "asset run of the past ends")
            people[user].run = nil
            return
        }
        let (changed, more, cursor) = batch(
            of: user,
            freezes: run.freezes,
            after: run.cursor,
            limit: limit,
            locked: []
        )
        note("asset batch in a run")
        decisions[run.decision].assets += changed
        people[user].run?.cursor = changed == 0 ? 0 : cursor
        if !more { people[user].run = nil }
    }

    private mutating func openTickets(_ effect: Effect) {
        let claimant = effect.item.user
        var best: (priority: Int16, number: Int, key: TicketKey)?
        // The database numbers new tickets by purchase.
        let requests = effect.verdict.tickets.sorted { number(of: $0.purchase) < number(of: $1.purchase) }
        var seen: Set<TicketKey> = []
        for request in requests {
            let key = TicketKey(claimant: claimant, purchase: request.purchase.map(Int.init))
            guard seen.insert(key).inserted else { continue }
            if request.kind == .externalTransfer, let moved = moves(of: request.purchase) {
                note("a purchase moves to and fro in one ticket")
                tickets[moved]?.touches += 1
                alarms.insert("owner_bounces")
                continue
            }
            let named = request.ownerID.flatMap(userIndex)
            if let named, people[named].exists { people[named].isKnown = true }
            let owner = request.ownerKey.map { Int($0) - 1 } ?? named.flatMap { people[$0].isKnown ? $0 : nil }
            if var ticket = tickets[key] {
                note("a ticket is touched")
                ticket.touches += 1
                ticket.owner = ticket.owner ?? owner
                ticket.originalID = ticket.originalID ?? request.originalID
                if request.isVisible, !ticket.isVisible { ticket.kind = request.kind }
                ticket.isVisible = ticket.isVisible || request.isVisible
                ticket.priority = min(ticket.priority, request.priority)
                tickets[key] = ticket
            } else {
                note("ticket \(request.kind.rawValue)")
                ticketNumber += 1
                tickets[key] = Ticket(
                    number: ticketNumber,
                    kind: request.kind,
                    owner: owner,
                    originalID: request.originalID,
                    isVisible: request.isVisible,
                    priority: request.priority
                )
            }
            let keepsTyped: Set<TicketRequest.Kind> = [.ownerMismatch, .paidNoAccess, .needsProof]
            if let kind = tickets[key]?.kind, keepsTyped.contains(kind) {
                tickets[key]?.typedIDs.formUnion(jobs[effect.item.job].proofs)
            }
            guard let ticket = tickets[key], ticket.isVisible else { continue }
            if best.map({ (ticket.priority, ticket.number) < ($0.priority, $0.number) }) ?? true {
                best = (ticket.priority, ticket.number, key)
            }
        }
        jobs[effect.item.job].ticket = best?.key
    }

    /// The open ticket about a purchase that moves between accounts, whoever is its claimant.
    private func moves(of purchase: Int64?) -> TicketKey? {
        tickets.keys.sorted().first { key in
            purchase != nil && key.purchase == purchase.map(Int.init) && tickets[key]?.kind == .externalTransfer
        }
    }

    private func number(of purchase: Int64?) -> Int64 { purchase.flatMap { purchases[Int($0)].number } ?? 0 }
}
