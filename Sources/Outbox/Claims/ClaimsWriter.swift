import Entitlements
package import Logging
import Metrics
package import Queue
import ServiceLifecycle
package import StoreClients
import Synchronization
import TextFormats

/// Keeps the custom claims of users' accounts at Firebase to what gives them access.
///
/// One process of all does it, so that the writes about a user stay in order. Firebase knows no condition for a write: claims that others
/// change between our reading and our writing are lost to them, so there is nothing in between, and what stands there afterwards is read
/// again.
package final class ClaimsWriter: Service {
    /// Users at work at once.
    private static let width = 10
    /// The least time between two writes, and between the first readings of two users: ten a second.
    private static let gap = Duration.milliseconds(100)
    /// How often one user's claims are written in a row, while others write them too.
    private static let tries = 3
    /// How often a user is tried whose account is not there, or whose claims are refused.
    private static let patience = 10
    /// Steps in a row in which nothing gets through, after which another process may try.
    private static let stepsInVain = 6
    /// How long this one leaves the lead to others then.
    private static let resignation = Duration.seconds(60)
    /// For how long a process leads without a sign of life: three times what a request may take.
    package static let lead = Duration.seconds(60)

    /// What came of one user's turn.
    enum Outcome: String, CaseIterable {
        /// Something had changed, or our claims were not there yet.
        case written
        /// Nothing had changed, and yet the account said something else.
        case drift
        case same
        case noAccount = "no_account"
        case tooLong = "too_long"
        case failed
    }

    private let lead: Leadership
    private let queue: ClaimsQueue
    private let accounts: FirebaseAccounts
    private let writes = Pace(gap: gap)
    private let state = Mutex(State())
    private let logger: Logger

    private struct State {
        /// The lead in which the first step has been made.
        var fence: Int64?
        /// Steps in a row in which nothing got through.
        var stepsInVain = 0
        /// Until when Firebase wants to be left alone.
        var waitsUntil: ContinuousClock.Instant?
    }

    package init(lead: Leadership, queue: ClaimsQueue, accounts: FirebaseAccounts, logger: Logger) {
        self.lead = lead
        self.queue = queue
        self.accounts = accounts
        self.logger = logger
    }

    package func run() async {
        await cancelWhenGracefulShutdown { [self] in
            await lead.whileLeading("custom claims can't be written; trying again", logger: logger) {
                try await step($0)
            }
        }
    }

    /// Takes care of the next users, and returns how long to wait before the next step.
    func step(_ fence: Int64) async throws -> Duration {
        if let wait = state.withLock(\.waitsUntil).map({ ContinuousClock.now.duration(to: $0) }), wait > .zero {
            return wait
        }
        if state.withLock(\.fence) != fence {
            try await queue.begin()
            state.withLock { $0.fence = fence }
        }
        // A request takes a third of the lead at most, and a quarter may be over when a step begins: no other process leads
        // before the last write has ended.
        let end = ContinuousClock.now + lead.duration / 3
        let due = try await queue.due(upTo: Self.width, fence: fence)
        var failures: [ReadFailure] = []
        try await withThrowingTaskGroup(of: ReadFailure?.self) { group in
            for user in due {
                group.addTask { [self] in try await settle(user, before: end) }
                try await Task.sleep(for: Self.gap)
            }
            for try await failure in group { if let failure { failures.append(failure) } }
        }
        guard due.isEmpty || failures.count < due.count else { return try stepInVain(failures) }
        rest(after: failures)
        if !due.isEmpty { state.withLock { $0.stepsInVain = 0 } }
        return due.count == Self.width ? .zero : .seconds(1)
    }

    /// Nothing gets through: the other users need not be tried one by one.
    private func stepInVain(_ failures: [ReadFailure]) throws -> Duration {
        rest(after: failures)
        let isOver = state.withLock { state in
            state.stepsInVain += 1
            guard state.stepsInVain >= Self.stepsInVain else { return false }
            state.stepsInVain = 0
            return true
        }
        // Another process may have the right key, or a way to Firebase.
        if isOver { throw Leadership.Resignation(rest: Self.resignation) }
        return .seconds(5)
    }

    /// Leaves Firebase alone for as long as it asks.
    private func rest(after failures: [ReadFailure]) {
        guard let wait = failures.compactMap(\.retryAfter).max() else { return }
        state.withLock { $0.waitsUntil = .now + min(wait, .seconds(600)) }
    }

    /// Takes care of one user; returns what Firebase had against it.
    private func settle(_ due: ClaimsQueue.Due, before end: ContinuousClock.Instant) async throws -> ReadFailure? {
        var failure: ReadFailure?
        switch await result(of: due, before: end) {
        case .success(let outcome): try await conclude(due, outcome)
        case .failure(let error) where error.code == .interrupted: throw CancellationError()
        // The step has taken too long: it is the user's turn again in the next one.
        case .failure(let error) where error.code == .overtaken && ContinuousClock.now >= end: break
        case .failure(let error):
            try await postpone(due, after: error)
            failure = error
        }
        // This process stood still, and another one may have written meanwhile what is newer.
        if ContinuousClock.now >= end + lead.duration / 3 { try await queue.check(due.userKey) }
        return failure
    }

    private func result(of due: ClaimsQueue.Due, before end: ContinuousClock.Instant) async -> Result<
        Outcome, ReadFailure
    > {
        do throws(ReadFailure) { return .success(try await compare(due, before: end)) } catch { return .failure(error) }
    }

    private func conclude(_ due: ClaimsQueue.Due, _ outcome: Outcome) async throws {
        count(outcome)
        switch outcome {
        case .tooLong:
            try await queue.alarm(.tooLong)
            try await queue.postpone(due, for: nil, error: outcome.rawValue)
        // Accounts may be made after what was bought for them.
        case .noAccount where !due.isCheck && due.attempt < Self.patience:
            try await queue.postpone(due, for: .seconds(86_400), error: outcome.rawValue)
        default: try await queue.end(due)
        }
    }

    private func postpone(_ due: ClaimsQueue.Due, after failure: ReadFailure) async throws {
        count(.failed)
        if failure.code == .unauthorized { try await queue.alarm(.refused) }
        var wait: Duration? = OutboxDispatcher.wait(Int(due.attempt) + 1)
        switch failure.code {
        // No user's trouble, and soon over for all.
        case .unauthorized, .unavailable, .timeout, .throttled: wait = wait.map { min($0, .seconds(300)) }
        default: if due.attempt >= Self.patience { wait = nil }
        }
        try await queue.postpone(due, for: wait, error: failure.code.rawValue)
    }

    /// Compares an account's claims with the user's access, and writes them until they agree.
    private func compare(_ due: ClaimsQueue.Due, before end: ContinuousClock.Instant) async throws(ReadFailure)
        -> Outcome
    {
        var outcome = Outcome.same
        for turn in 0...Self.tries {
            guard case .done(let text) = try await accounts.claims(of: due.userID) else { return .noAccount }
            let claims = try decode(text)
            if claims.say(due.wanted) { return outcome }
            if turn == 0 { outcome = due.isCheck && claims.hasOurs && !due.isBeyond ? .drift : .written }
            let wanted = claims.text(saying: due.wanted)
            guard wanted.unicodeScalars.count <= CustomClaims.longest else { return .tooLong }
            guard turn < Self.tries else { break }
            do { try await writes.turn() } catch { throw ReadFailure(.interrupted) }
            switch try await accounts.setClaims(wanted, of: due.userID, before: end) {
            case .done: break
            case .noAccount: return .noAccount
            case .tooLong: return .tooLong
            }
        }
        throw ReadFailure(.overtaken)
    }

    private func decode(_ text: String?) throws(ReadFailure) -> CustomClaims {
        // What is no object would be lost by a write.
        do throws(JSONFault) { return try CustomClaims(text) } catch { throw ReadFailure(.malformed) }
    }

    private func count(_ outcome: Outcome) {
        Counter(label: "entitlement_sync_firebase_claims_total", dimensions: [("result", outcome.rawValue)]).increment()
    }
}

/// Lets tasks through one after the other, with a gap between them.
private final class Pace: Sendable {
    private let gap: Duration
    private let next = Mutex(ContinuousClock.now)

    init(gap: Duration) { self.gap = gap }

    func turn() async throws {
        let turn = next.withLock { next in
            let turn = max(next, .now)
            next = turn + gap
            return turn
        }
        try await Task.sleep(until: turn, clock: .continuous)
    }
}
