import CLinux
import Glibc
import Synchronization

/// What to wait for on a descriptor, and what came.
struct Interest: OptionSet, Sendable {
    let rawValue: UInt8
    static let read = Interest(rawValue: 1)
    static let write = Interest(rawValue: 2)
}

/// How a wait on a descriptor ended.
enum Readiness: Sendable, Equatable {
    /// The descriptor can be read or written, or has failed, which reading or writing will show.
    case ready(Interest)
    case timedOut
    case cancelled
    /// The descriptor was deregistered, or cannot be watched.
    case closed
}

/// One thread in epoll that tells tasks when libpq's sockets are ready, and runs timers.
///
/// Registrations are one-shot: the thread never reads, it only resumes waiting tasks. It lives as long as the process.
final class Reactor: Sendable {
    static let shared: Reactor = {
        let reactor = Reactor()
        reactor.start()
        return reactor
    }()

    private struct Wait {
        var descriptor: Int32
        var timer: TimerQueue<Action>.ID?
        var continuation: CheckedContinuation<Readiness, Never>
    }

    private enum Action {
        case expire(wait: UInt64)
        case run(@Sendable () -> Void)
    }

    private struct State {
        var waits: [UInt64: Wait] = [:]
        var waitOnDescriptor: [Int32: UInt64] = [:]
        var timers = TimerQueue<Action>()
        /// Starts above 0, which marks the wake-up descriptor in epoll's events.
        var lastWait: UInt64 = 0
        /// Until when the thread sleeps at most; nil while it is awake or sleeps without end.
        var sleepsUntil: ContinuousClock.Instant?
        var isAsleep = false
    }

    private let state = Mutex(State())
    private let epoll: Int32
    private let wakeUp: Int32

    private init() {
        epoll = epoll_create1(Int32(EPOLL_CLOEXEC))
        wakeUp = eventfd(0, Int32(EFD_NONBLOCK | EFD_CLOEXEC))
        var event = epoll_event(events: EPOLLIN.rawValue, data: epoll_data_t(u64: 0))
        guard epoll >= 0, wakeUp >= 0, epoll_ctl(epoll, EPOLL_CTL_ADD, wakeUp, &event) == 0 else {
            fatalError("epoll is not available: error \(errno)")
        }
    }

    // MARK: Waiting

    /// Waits until an open socket is ready, one wait a descriptor at a time; without a deadline for ever.
    func wait(
        _ descriptor: Int32,
        for interest: Interest,
        until deadline: ContinuousClock.Instant?,
        cancellable: Bool
    ) async -> Readiness {
        let id = state.withLock { state in
            state.lastWait += 1
            return state.lastWait
        }
        guard cancellable else {
            return await withCheckedContinuation { continuation in
                begin(id, descriptor, interest, deadline, cancellable: false, continuation)
            }
        }
        return await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                begin(id, descriptor, interest, deadline, cancellable: true, continuation)
            }
        } onCancel: {
            end(id, .cancelled)
        }
    }

    /// Stops watching a descriptor, which must still be open; tasks that wait on it learn that it is closed.
    func deregister(_ descriptor: Int32) {
        let continuation = state.withLock { state -> CheckedContinuation<Readiness, Never>? in
            // Fails when it was never watched, which is as good.
            _ = epoll_ctl(epoll, EPOLL_CTL_DEL, descriptor, nil)
            guard let id = state.waitOnDescriptor[descriptor] else { return nil }
            return Self.remove(id, from: &state)
        }
        continuation?.resume(returning: .closed)
    }

    private func begin(
        _ id: UInt64,
        _ descriptor: Int32,
        _ interest: Interest,
        _ deadline: ContinuousClock.Instant?,
        cancellable: Bool,
        _ continuation: CheckedContinuation<Readiness, Never>
    ) {
        let (refusal, mustWake) = state.withLock { state -> (Readiness?, Bool) in
            // The flag is set before the cancellation handler runs: it is seen here, or the handler finds the wait.
            if cancellable, Task.isCancelled { return (.cancelled, false) }
            guard state.waitOnDescriptor[descriptor] == nil, watch(descriptor, interest, id) else {
                return (.closed, false)
            }
            let timer = deadline.map { state.timers.add(at: $0, .expire(wait: id)) }
            state.waits[id] = Wait(descriptor: descriptor, timer: timer, continuation: continuation)
            state.waitOnDescriptor[descriptor] = id
            return (nil, Self.mustWake(for: deadline, state))
        }
        if let refusal { continuation.resume(returning: refusal) }
        if mustWake { wake() }
    }

    private func end(_ id: UInt64, _ readiness: Readiness) {
        let continuation = state.withLock { Self.remove(id, from: &$0) }
        continuation?.resume(returning: readiness)
    }

    /// Registers interest for one event, whose data is the wait's id: an event that comes too late finds no wait.
    private func watch(_ descriptor: Int32, _ interest: Interest, _ id: UInt64) -> Bool {
        var events: UInt32 = 1 << 30  // EPOLLONESHOT, which does not import on every architecture
        if interest.contains(.read) { events |= EPOLLIN.rawValue | EPOLLRDHUP.rawValue }
        if interest.contains(.write) { events |= EPOLLOUT.rawValue }
        var event = epoll_event(events: events, data: epoll_data_t(u64: id))
        // Usually known already; epoll forgets a socket that libpq closed, and the next may have the same number.
        if epoll_ctl(epoll, EPOLL_CTL_MOD, descriptor, &event) == 0 { return true }
        return errno == ENOENT && epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) == 0
    }

    private static func remove(_ id: UInt64, from state: inout State) -> CheckedContinuation<Readiness, Never>? {
        guard let wait = state.waits.removeValue(forKey: id) else { return nil }
        state.waitOnDescriptor[wait.descriptor] = nil
        if let timer = wait.timer { state.timers.remove(timer) }
        return wait.continuation
    }

    // MARK: Timers

    /// Runs an action on the reactor's thread at a moment; it must be brief.
    func schedule(at due: ContinuousClock.Instant, _ action: @escaping @Sendable () -> Void) -> TimerQueue<Void>.ID {
        let (id, mustWake) = state.withLock { state in
            (state.timers.add(at: due, .run(action)), Self.mustWake(for: due, state))
        }
        if mustWake { wake() }
        return id
    }

    func cancel(_ timer: TimerQueue<Void>.ID) { state.withLock { $0.timers.remove(timer) } }

    private static func mustWake(for due: ContinuousClock.Instant?, _ state: State) -> Bool {
        guard let due, state.isAsleep else { return false }
        return state.sleepsUntil.map { due < $0 } ?? true
    }

    private func wake() {
        var one: UInt64 = 1
        // Fails only when the counter is full, and then the thread is about to wake anyway.
        _ = write(wakeUp, &one, MemoryLayout<UInt64>.size)
    }

    // MARK: The thread

    private func start() {
        var thread = pthread_t()
        let failure = pthread_create(
            &thread,
            nil,
            { argument in
                // Signals are for the threads that expect them.
                var all = sigset_t()
                sigfillset(&all)
                pthread_sigmask(SIG_BLOCK, &all, nil)
                if let argument { Unmanaged<Reactor>.fromOpaque(argument).takeRetainedValue().loop() }
                return nil
            },
            Unmanaged.passRetained(self).toOpaque()
        )
        guard failure == 0 else { fatalError("no thread for the reactor: error \(failure)") }
        pthread_detach(thread)
    }

    private func loop() -> Never {
        var events = [epoll_event](repeating: epoll_event(), count: 64)
        while true {
            let sleep = state.withLock { state in
                state.isAsleep = true
                state.sleepsUntil = state.timers.nextDue
                return state.sleepsUntil.map(Self.milliseconds(until:)) ?? -1
            }
            let count = epoll_wait(epoll, &events, Int32(events.count), sleep)
            if count < 0, errno != EINTR { fatalError("epoll_wait failed: error \(errno)") }
            dispatch(events.prefix(Int(max(count, 0))))
        }
    }

    private func dispatch(_ events: ArraySlice<epoll_event>) {
        let now = ContinuousClock.now
        let (resumptions, actions) = state.withLock { state in
            state.isAsleep = false
            var resumptions: [(CheckedContinuation<Readiness, Never>, Readiness)] = []
            for event in events {
                if event.data.u64 == 0 {
                    var count: UInt64 = 0
                    _ = read(wakeUp, &count, MemoryLayout<UInt64>.size)
                } else if let continuation = Self.remove(event.data.u64, from: &state) {
                    resumptions.append((continuation, .ready(Self.interest(in: event.events))))
                }
            }
            var actions: [@Sendable () -> Void] = []
            for action in state.timers.takeDue(at: now) {
                switch action {
                case .run(let action): actions.append(action)
                case .expire(let id):
                    if let continuation = Self.remove(id, from: &state) {
                        resumptions.append((continuation, .timedOut))
                    }
                }
            }
            return (resumptions, actions)
        }
        for (continuation, readiness) in resumptions { continuation.resume(returning: readiness) }
        for action in actions { action() }
    }

    private static func interest(in events: UInt32) -> Interest {
        // A failed socket is ready for everything: the next call on it reports the failure.
        if events & (EPOLLERR.rawValue | EPOLLHUP.rawValue) != 0 { return [.read, .write] }
        var interest: Interest = []
        if events & (EPOLLIN.rawValue | EPOLLRDHUP.rawValue) != 0 { interest.insert(.read) }
        if events & EPOLLOUT.rawValue != 0 { interest.insert(.write) }
        return interest
    }

    /// Rounded up, so that the thread does not spin through the last millisecond.
    private static func milliseconds(until due: ContinuousClock.Instant) -> Int32 {
        Int32(max(0, min(due - .now, .seconds(3600)).milliseconds))
    }
}
