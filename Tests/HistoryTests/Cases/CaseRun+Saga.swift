import Entitlements
import Foundation
import Postgres
import SupportDesk
import TestSupport

/// A transfer in the hands of a worker, and how far it got.
struct CaseHand: Sendable {
    enum Phase: Sendable {
        case taken
        /// Where the purchases are was read.
        case read(hasMoved: Bool, refused: Bool, afterCall: Bool)
        case mayBegin
        case collected(CaseRun.Collected)
        /// The call is on record.
        case allowed(source: String?, moves: [String])
        case confirmed
    }

    var number: Int
    var due: Transfers.Due
    var phase = Phase.taken
    var source: String?
}

/// What became of one transfer's calls.
struct CaseCalls: Sendable {
    var fired = 0
    /// How many moved something.
    var effects = 0
    /// Whether one is on its way: nobody knows whether it will move something.
    var pending: (source: Int?, target: Int)?
    /// Whether both sides were read since the last one was begun.
    var isRead = true
}

/// Transfers on their way, as workers carry them out; each step is on record before the next.
extension CaseRun {
    /// One step of some worker.
    ///
    /// - Returns: what it does in a transaction.
    mutating func sagaStep() async throws -> Deed? {
        if hands.isEmpty || random.oneIn(10) {
            // A worker that died, or hangs: two minutes are over.
            if !hands.isEmpty { note("taken by another worker") }
            try await host.query(
                """
                UPDATE entitlement_sync.transfer SET due = now()
                 WHERE id = ANY (ARRAY(SELECT x.id FROM entitlement_sync.transfer AS x FOR UPDATE SKIP LOCKED))
                """
            )
            try await take()
            return nil
        }
        let hand = hands[random.below(hands.count)].number
        if random.oneIn(20) {
            note("a worker died")
            drop(hand)
            return nil
        }
        return try await advance(hand)
    }

    mutating func take() async throws {
        for due in try await transfers.take(upTo: 4) {
            lastHand += 1
            hands.append(CaseHand(number: lastHand, due: due))
            trace.append(
                "hand \(lastHand) takes transfer \(due.id): \(due.step), calls \(due.calls), \(due.waits ?? "")"
            )
        }
    }

    func isBusy(_ number: Int) -> Bool {
        sessions.contains { session in
            [session.done?.deed, session.waiting].contains { $0.map { hand(of: $0) == number } ?? false }
        }
    }

    private func hand(of deed: Deed) -> Int? {
        switch deed.after {
        case .allowed(let hand, _), .settledCall(let hand, _), .settled(let hand): hand
        case .nothing, .act, .erased, .banned, .resolved, .said: nil
        }
    }

    mutating func drop(_ number: Int) { hands.removeAll { $0.number == number } }

    mutating func dropHand(of deed: Deed) { if let number = hand(of: deed) { drop(number) } }

    private mutating func set(_ number: Int, _ phase: CaseHand.Phase) {
        guard let place = hands.firstIndex(where: { $0.number == number }) else { return }
        hands[place].phase = phase
    }

    /// The next step of a hand: what needs no transaction is done, what does is returned.
    mutating func advance(_ number: Int) async throws -> Deed? {
        guard let hand = hands.first(where: { $0.number == number }), !isBusy(number) else { return nil }
        let due = hand.due
        let id = due.id
        let turn = Int32(clamping: due.tries)
        switch hand.phase {
        case .taken:
            if due.calls > 0, due.step == .calling || due.step == .begun {
                try await read(number, moves: due.moves, refused: false, afterCall: false)
            } else {
                set(number, due.step == .confirmed ? .confirmed : .mayBegin)
            }
            return nil
        case .read(let hasMoved, let refused, let afterCall):
            return Deed(
                name: "hand \(number): settle_call \(hasMoved) \(refused)",
                query: "SELECT entitlement_sync.settle_call(\(id), \(turn), \(hasMoved), \(refused))",
                after: .settledCall(hand: number, afterCall: afterCall)
            )
        case .mayBegin:
            if let reason = due.waits {
                note("waits: \(reason)")
                drop(number)
                return nil
            }
            if let collected = try await collect(due.ticketID) {
                set(number, .collected(collected))
            } else {
                drop(number)
            }
            return nil
        case .collected(let collected):
            let moves = collected.source == nil ? [] : collected.moves
            setSource(number, collected.source)
            return Deed(
                name: "hand \(number): allow_transfer \(collected.id) \(moves)",
                query: "SELECT entitlement_sync.allow_transfer(\(id), \(turn), \(collected.id), \(moves))",
                after: .allowed(hand: number, moves: moves)
            )
        case .allowed(let source, let moves):
            let refused = try await fire(id, ticket: due.ticketID, source: source)
            try await read(number, moves: moves, refused: refused, afterCall: true)
            return nil
        case .confirmed:
            switch random.below(12) {
            case 0, 1:
                try await endAll()
                try await sixMinutes()
            case 2:
                // RevenueCat's own console gives it to somebody else, and our records follow.
                try await endAll()
                truth.items[0].customer = 2
                try await request(2, restore: false)
                try await readAll()
                try await applyAll()
            default: break
            }
            return Deed(
                name: "hand \(number): settle_transfer",
                query: "SELECT entitlement_sync.settle_transfer(\(id))::text",
                after: .settled(hand: number)
            )
        }
    }

    private mutating func setSource(_ number: Int, _ source: String?) {
        guard let place = hands.firstIndex(where: { $0.number == number }) else { return }
        hands[place].source = source
    }

    /// What follows when a step is on record.
    mutating func followSaga(_ deed: Deed, _ answer: String?) throws {
        guard let number = hand(of: deed), let hand = hands.first(where: { $0.number == number }) else { return }
        let id = hand.due.id
        switch deed.after {
        case .allowed(_, let moves):
            guard let answer else {
                if moves.isEmpty {
                    set(number, .confirmed)
                } else {
                    calls[id, default: CaseCalls()].isRead = false
                    set(number, .allowed(source: hand.source, moves: moves))
                }
                return
            }
            note("allow: \(answer)")
            drop(number)
            if !["paused", "step", "unsettled"].contains(answer) { try expectNone(id, "stopped for \(answer)") }
        case .settledCall(_, let afterCall):
            switch answer {
            case "confirmed": set(number, .confirmed)
            case "begun" where !afterCall: set(number, .mayBegin)
            default: drop(number)
            }
        case .settled:
            note("settled: \(answer.map { Int($0).map { $0 > 0 ? "done" : "\($0)" } ?? $0 } ?? "owner changed")")
            drop(number)
        case .nothing, .act, .erased, .banned, .resolved, .said: break
        }
    }

    /// What was stopped has moved nothing, and nothing is on its way.
    func expectNone(_ transfer: Int64, _ how: String) throws {
        guard let call = calls[transfer] else { return }
        guard call.pending == nil else { throw fail("\(how) while a call was on its way") }
        guard call.effects == 0 else { throw fail("\(how) although it had moved") }
    }

    /// Calls RevenueCat.
    ///
    /// - Returns: whether it said that it did nothing.
    private mutating func fire(_ id: Int64, ticket: Int64, source: String?) async throws -> Bool {
        guard let claimant = try await standings().first(where: { $0.id == ticket })?.claimant else { return true }
        var call = calls[id, default: CaseCalls()]
        guard call.pending == nil else { throw fail("called while an earlier call was on its way") }
        if call.effects > 0 { throw fail("called again although it had moved") }
        call.fired += 1
        if call.fired > 1 { note("called again") }
        let from = truth.items.first { Self.customerID($0.customer) == source }?.customer
        let kind = random.below(6)
        trace.append("call \(call.fired) of transfer \(id): kind \(kind)")
        switch kind {
        case 0, 1, 2:
            // Done; its answer may be lost.
            move(from: from, to: claimant)
            call.effects += 1
            note(kind == 0 ? "call: done, and the answer lost" : "call: done")
        case 3:
            call.pending = (from, claimant)
            note("call: on its way")
        case 4: note("call: lost")
        default: note("call: refused")
        }
        calls[id] = call
        return kind == 5
    }

    private mutating func move(from: Int?, to claimant: Int) {
        for place in truth.items.indices where truth.items[place].customer == from && truth.items[place].isListed {
            truth.items[place].customer = claimant
        }
    }

    private mutating func read(_ number: Int, moves: [String], refused: Bool, afterCall: Bool) async throws {
        guard let hand = hands.first(where: { $0.number == number }) else { return }
        let standing = try await standings().first { $0.id == hand.due.ticketID }
        // A process may be gone before it reads.
        guard let hasMoved = place(of: moves, claimant: standing?.claimant) else {
            note("nobody can tell")
            trace.append("hand \(number): nobody can tell")
            drop(number)
            return
        }
        calls[hand.due.id]?.isRead = true
        trace.append("hand \(number): read \(hasMoved ? "moved" : "not moved")")
        set(number, .read(hasMoved: hasMoved, refused: refused, afterCall: afterCall))
    }

    /// Ten minutes pass: calls on their way have done their work or never will, and nobody of before is at work any more.
    mutating func tenMinutes() async throws {
        try await endAll()
        for id in calls.keys.sorted() {
            guard let pending = calls[id]?.pending else { continue }
            calls[id]?.pending = nil
            if random.oneIn(2) {
                move(from: pending.source, to: pending.target)
                calls[id]?.effects += 1
                note("call: late")
                trace.append("the call of transfer \(id) arrives")
            }
        }
        hands = []
        for place in sessions.indices where sessions[place].waiting.flatMap({ hand(of: $0) }) != nil {
            sessions[place].waiting = nil
        }
        try await host.query(
            """
            UPDATE entitlement_sync.transfer SET called_at = called_at - interval '10 minutes', due = now()
             WHERE step NOT IN ('done', 'stopped')
            """
        )
        trace.append("ten minutes")
    }

    /// A call that is on its way does its work.
    mutating func arrive() {
        for id in calls.keys.sorted() {
            guard let pending = calls[id]?.pending else { continue }
            calls[id]?.pending = nil
            calls[id]?.effects += 1
            move(from: pending.source, to: pending.target)
            note("call: late")
            trace.append("the call of transfer \(id) arrives")
        }
    }
}
