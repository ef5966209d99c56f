import Synchronization

/// What one call of `send` hands to the transport's thread.
struct Submission: Sendable {
    typealias Outcome = Result<RawAnswer, TransportError>

    var plan: RequestPlan
    var deadline: ContinuousClock.Instant
    var maxResponseBytes: Int
    var ticket: Ticket
    var continuation: CheckedContinuation<Outcome, Never>
}

/// The identity of one request, made before its continuation exists so that a cancellation can name it.
final class Ticket: Sendable {
    /// Set before the cancellation is posted, so a cancellation that overtakes its submission is still seen.
    let isCancelled = Atomic<Bool>(false)
}

/// A response as libcurl left it, its header not yet read.
struct RawAnswer: Sendable {
    var status: Int
    var head: [UInt8]
    var body: [UInt8]
    var version: HTTPExchange.Version
    var connectionReused: Bool
}

/// The one thing that callers and the transport's thread share: commands in, room for requests, and the wake-up.
///
/// States: open -> closing (`close`, the thread fails what it holds) -> closed (`markClosed`, the thread's last act).
final class Mailbox: Sendable {
    enum Command: Sendable {
        case submit(Submission)
        case cancel(Ticket)
    }

    private enum Phase {
        case open
        case closing(waiters: [CheckedContinuation<Void, Never>])
        case closed
    }

    private struct State {
        var phase = Phase.open
        var commands: [Command] = []
        var admitted = 0
        var waker: Waker?
        var isPolling = false

        /// Wakes the thread if it sleeps and was not woken yet.
        mutating func wake() {
            guard isPolling else { return }
            isPolling = false
            waker?.wake()
        }
    }

    private let state = Mutex(State())
    private let capacity: Int

    /// Open, with room for `capacity` unfinished requests.
    init(capacity: Int) { self.capacity = capacity }

    // MARK: Callers

    /// Posts a request; where it is refused its continuation is resumed at once.
    func submit(_ submission: Submission) {
        let refusal: TransportError? = state.withLock { state in
            guard case .open = state.phase else { return TransportError(.closed, "the transport is shut down") }
            guard state.admitted < capacity else { return TransportError(.overloaded, "as many requests wait as may") }
            state.admitted += 1
            state.commands.append(.submit(submission))
            state.wake()
            return nil
        }
        if let refusal { submission.continuation.resume(returning: .failure(refusal)) }
    }

    func cancel(_ ticket: Ticket) {
        ticket.isCancelled.store(true, ordering: .releasing)
        state.withLock { state in
            guard case .open = state.phase else { return }
            state.commands.append(.cancel(ticket))
            state.wake()
        }
    }

    var admitted: Int { state.withLock { $0.admitted } }

    /// Asks the thread to end and waits until it has let go of everything.
    func close() async {
        await withCheckedContinuation { continuation in
            let isClosed = state.withLock { state in
                switch state.phase {
                case .open: state.phase = .closing(waiters: [continuation])
                case .closing(let waiters): state.phase = .closing(waiters: waiters + [continuation])
                case .closed: return true
                }
                state.wake()
                return false
            }
            if isClosed { continuation.resume() }
        }
    }

    /// Asks the thread to end without waiting for it.
    func abandon() {
        state.withLock { state in
            guard case .open = state.phase else { return }
            state.phase = .closing(waiters: [])
            state.wake()
        }
    }

    // MARK: The thread

    func attach(_ waker: Waker) { state.withLock { $0.waker = waker } }

    /// Swaps the posted commands into `batch`, which keeps both buffers in use; `false` once the mailbox is closing.
    func take(into batch: inout [Command]) -> Bool {
        batch.removeAll(keepingCapacity: true)
        return state.withLock { state in
            state.isPolling = false
            swap(&state.commands, &batch)
            guard case .open = state.phase else { return false }
            return true
        }
    }

    /// Announces that the thread is about to sleep; `false` where there is something to do first.
    func preparePoll() -> Bool {
        state.withLock { state in
            guard state.commands.isEmpty, case .open = state.phase else { return false }
            state.isPolling = true
            return true
        }
    }

    /// Gives back the room of requests that ended.
    func release(_ count: Int) { state.withLock { $0.admitted -= count } }

    /// Forgets the waker, which is not used afterwards: its descriptor may then be closed.
    func detach() { state.withLock { $0.waker = nil } }

    func markClosed() {
        let waiters: [CheckedContinuation<Void, Never>] = state.withLock { state in
            guard case .closing(let waiters) = state.phase else { return [] }
            state.phase = .closed
            return waiters
        }
        for waiter in waiters { waiter.resume() }
    }
}
