import Entitlements
import FaultPoints
package import Logging
package import StoreClients
import ServiceLifecycle
import Queue

/// Carries approved transfers out: every step is on record before it is made, and none is made twice blindly.
package struct TransferRunner: Service {
    private let transfers: Transfers
    private let collector: EvidenceCollector
    /// One for each project with a key for it.
    private let revenueCat: [RevenueCatTransfers]
    private let logger: Logger

    package init(
        transfers: Transfers,
        collector: EvidenceCollector,
        revenueCat: [RevenueCatTransfers],
        logger: Logger
    ) {
        self.transfers = transfers
        self.collector = collector
        self.revenueCat = revenueCat
        self.logger = logger
    }

    package func run() async {
        await PeriodicService("transfer runner", every: .seconds(1), logger: logger) {
            await .handlingAll(try await transfers.take(upTo: 4), carryOn)
        }.run()
    }

    private func carryOn(_ due: Transfers.Due) async {
        do {
            guard let wait = try await advance(due) else { return }
            try await transfers.putOff(due, for: wait.for, error: wait.error)
        } catch {
            // It stands in the records and is taken up again, where it stood.
            let failure = error as? ReadFailure
            let wait = max(failure?.retryAfter ?? .zero, Self.pause(due.tries))
            let code = failure?.code.rawValue ?? "\(type(of: error))"
            logger.info("a transfer waits", metadata: ["transfer.id": "\(due.id)", "error.code": "\(code)"])
            try? await transfers.putOff(due, for: wait, error: code)
        }
    }

    private struct Wait {
        var `for`: Duration
        var error: String
    }

    /// Makes the steps that can be made now.
    ///
    /// - Returns: why the rest has to wait; `nil`: it has come to its end.
    private func advance(_ taken: Transfers.Due) async throws -> Wait? {
        var due = taken
        await reach(.transferTaken)
        // Also one that was seen to have done nothing may have done its work since.
        if due.calls > 0, due.step == .calling || due.step == .begun {
            guard let next = try await settleCall(due) else { return Wait(for: .seconds(300), error: "unclear") }
            due.step = next
        }
        if due.step == .begun {
            if let reason = due.waits { return Wait(for: max(.seconds(5), Self.pause(due.tries)), error: reason) }
            if let wait = try await begin(&due) { return wait }
        }
        guard due.step == .confirmed else { return nil }
        switch try await transfers.settle(due) {
        case .done(let count):
            await reach(.transferSettled)
            logger.notice("a transfer is done", metadata: ["transfer.id": "\(due.id)", "purchases": "\(count)"])
            return nil
        case .tooLate: return Wait(for: .seconds(1), error: "too_late")
        case .ownerChanged:
            try await raise("our records give a transfer's purchase to another user")
            return Wait(for: .seconds(600), error: "owner_changed")
        }
    }

    /// Goes on with a transfer of which nothing has moved, if everything still holds.
    private func begin(_ due: inout Transfers.Due) async throws -> Wait? {
        guard let collected = try await collector.collect(due.ticketID, whole: true) else {
            return Wait(for: .seconds(5), error: "evidence")
        }
        await reach(.transferEvidence)
        let calls = collected.source != nil && !collected.moves.isEmpty
        let projects =
            revenueCat.count == 1 ? revenueCat : revenueCat.filter { collected.projects.contains($0.projectID) }
        if calls, let target = collected.target, !projects.isEmpty {
            for project in projects {
                do throws(ReadFailure) { try await project.create(target) } catch {
                    if error.code == .unauthorized { try await raiseKey() }
                    throw error
                }
            }
            await reach(.transferTarget)
        }
        switch try await transfers.goOn(due, on: collected.id, moving: calls ? collected.moves : []) {
        case .stopped(let reason):
            logger.notice("a transfer was stopped", metadata: ["transfer.id": "\(due.id)", "reason": "\(reason)"])
            due.step = .stopped
            return nil
        case .later(let reason): return Wait(for: .seconds(5), error: reason)
        case .given: due.step = .confirmed
        }
        await reach(.transferAllowed)
        guard calls, let source = collected.source, let target = collected.target, !projects.isEmpty else { return nil }
        due.calls += 1
        due.moves = collected.moves
        let said = await projects.move(from: source, to: target)
        await reach(.transferCalled)
        logger.notice(
            "RevenueCat was called for a transfer",
            metadata: ["transfer.id": "\(due.id)", "answer": "\(said.word)"]
        )
        if case .refused(let failure) = said, failure.code == .unauthorized { try await raiseKey() }
        // Whatever it said: what counts is where the purchases are.
        guard let next = try await settleCall(due, said) else { return Wait(for: .seconds(5), error: "unclear") }
        due.step = next
        return next == .begun ? Wait(for: Self.pause(due.tries), error: said.word) : nil
    }

    /// Reads what came of a call.
    ///
    /// - Returns: the next step; `nil`: the purchases are neither all here nor all there, and no process calls again.
    private func settleCall(
        _ due: Transfers.Due,
        _ said: RevenueCatTransfers.Called? = nil
    ) async throws -> Transfers.Step? {
        guard let place = try await collector.place(of: due.moves, ticket: due.ticketID) else {
            try await raise("it is unknown whether a transfer's purchases have moved")
            return nil
        }
        await reach(.transferRead)
        let step = try await transfers.settleCall(
            due,
            hasMoved: place == .target,
            isRefused: said?.hasDoneNothing ?? false
        )
        await reach(.transferRecorded)
        return step
    }

    private func raise(_ detail: String) async throws {
        try await Alarms.raise(
            "transfer_unclear",
            detail + ": see the tables transfer and transfer_step, and entitlement-sync ticket ID resolve.",
            in: transfers.pool
        )
    }

    private func raiseKey() async throws {
        try await Alarms.raise(
            "credentials.revenuecat_transfer",
            "RevenueCat refuses REVENUECAT_TRANSFER_API_KEY: give it the right to write customer information.",
            in: transfers.pool
        )
    }

    private static func pause(_ tries: Int) -> Duration { min(.seconds(1) * (1 << min(tries, 9)), .seconds(60)) }
}

extension [RevenueCatTransfers] {
    /// Moves what a customer has in each project, until one does not say that it is done.
    fileprivate func move(from source: String, to target: String) async -> RevenueCatTransfers.Called {
        for (place, project) in enumerated() {
            var said = await project.move(from: source, to: target)
            // What an earlier project has moved stays moved, and a refusal moves nothing: it is worth a few more calls.
            for _ in 0..<5 where place > 0 && said.isRefused {
                guard (try? await Task.sleep(for: .seconds(2))) != nil else { break }
                said = await project.move(from: source, to: target)
            }
            guard said != .done else { continue }
            // Only a reading shows where everything is now.
            return place == 0 ? said : .unknown(ReadFailure(.unavailable))
        }
        return .done
    }
}

extension RevenueCatTransfers.Called {
    fileprivate var isRefused: Bool { if case .refused = self { true } else { false } }

    /// RevenueCat said that nothing was moved, or was not asked.
    fileprivate var hasDoneNothing: Bool {
        switch self {
        case .refused, .missing: true
        case .done, .unknown: false
        }
    }

    fileprivate var word: String {
        switch self {
        case .done: "done"
        case .missing: "missing"
        case .refused(let failure): "refused_\(failure.code.rawValue)"
        case .unknown(let failure): "unknown_\(failure.code.rawValue)"
        }
    }
}

#if FAULT_POINTS
    /// Lets a test's fault happen between two steps of a desk service.
    func reach(_ point: FaultPoint) async { _ = await FaultPlan.reach(point) }
#else
    @inline(__always)
    func reach(_ point: FaultPoint) async {}
#endif
