import Glibc
@testable import Postgres
import TestSupport
import Testing

/// Two connected sockets.
struct SocketPair: ~Copyable {
    let near: Int32
    let far: Int32

    init() {
        var ends: [Int32] = [0, 0]
        #expect(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends) == 0)
        (near, far) = (ends[0], ends[1])
    }

    deinit {
        Reactor.shared.deregister(near)
        close(near)
        close(far)
    }
}

struct ReactorTests {
    private func wait(_ descriptor: Int32, _ interest: Interest = .read, for limit: Duration = .seconds(10)) async
        -> Readiness
    {
        await Reactor.shared.wait(descriptor, for: interest, until: .now + limit, cancellable: true)
    }

    @Test func `a descriptor that can be written is ready at once`() async {
        let pair = SocketPair()
        #expect(await wait(pair.near, [.read, .write]) == .ready(.write))
    }

    @Test func `data wakes the reader, each time`() async {
        let pair = SocketPair()
        let (near, far) = (pair.near, pair.far)
        for _ in 0..<100 {
            async let readiness = wait(near)
            #expect(write(far, "x", 1) == 1)
            #expect(await readiness == .ready(.read))
            var byte: UInt8 = 0
            #expect(read(near, &byte, 1) == 1)
        }
    }

    @Test func `the end of the other side is ready to be read`() async {
        let pair = SocketPair()
        let (near, far) = (pair.near, pair.far)
        async let readiness = wait(near)
        shutdown(far, Int32(SHUT_RDWR))
        guard case .ready(let interest) = await readiness else {
            Issue.record("not ready")
            return
        }
        #expect(interest.contains(.read))
    }

    @Test func `a wait ends at its deadline`() async {
        let pair = SocketPair()
        let start = ContinuousClock.now
        #expect(await wait(pair.near, for: .milliseconds(30)) == .timedOut)
        #expect(ContinuousClock.now - start >= .milliseconds(30))
    }

    @Test func `a wait ends with its task, unless it is shielded`() async {
        let pair = SocketPair()
        let near = pair.near
        let task = Task { await wait(near) }
        task.cancel()
        #expect(await task.value == .cancelled)

        let shielded = Task {
            withUnsafeCurrentTask { $0?.cancel() }
            return await Reactor.shared.wait(near, for: .read, until: .now + .milliseconds(20), cancellable: false)
        }
        #expect(await shielded.value == .timedOut)
    }

    @Test func `deregistering ends a wait, and the descriptor may be watched again`() async throws {
        let pair = SocketPair()
        let near = pair.near
        let ended = Recorder<Readiness>()
        let task = Task { ended.record(await wait(near)) }
        // The wait may not have begun, so what is asked for is that it ends, not when.
        try await eventually {
            Reactor.shared.deregister(near)
            return !ended.values.isEmpty
        }
        await task.value
        #expect(ended.values == [.closed])
        #expect(await wait(near, for: .milliseconds(5)) == .timedOut)
    }

    @Test func `a second wait on a descriptor is refused`() async {
        let pair = SocketPair()
        let near = pair.near
        await withTaskGroup(of: Readiness.self) { group in
            for _ in 0..<2 { group.addTask { await wait(near, for: .milliseconds(200)) } }
            let first = await group.next()
            let second = await group.next()
            #expect(first == .closed && second == .timedOut)
        }
    }

    @Test func `a thousand waits and cancellations in a race are each resumed once`() async {
        await withTaskGroup(of: Void.self) { group in
            for number in 0..<1000 {
                group.addTask {
                    let pair = SocketPair()
                    let (near, far) = (pair.near, pair.far)
                    let task = Task { await wait(near) }
                    if number.isMultiple(of: 2) { write(far, "x", 1) }
                    if number % 3 < 2 { task.cancel() }
                    if number % 6 == 5 { write(far, "x", 1) }
                    let isWoken = number.isMultiple(of: 2) || number % 3 < 2 || number % 6 == 5
                    if isWoken { _ = await task.value } else { task.cancel() }
                    _ = await task.value
                }
                if number % 50 == 49 { await group.next() }
            }
        }
    }

    @Test func `timers run once, in their order, and not when cancelled`() async {
        let done = OneShot<Void>()
        let order = Recorder<Int>()
        let start = ContinuousClock.now
        _ = Reactor.shared.schedule(at: start + .milliseconds(40)) {
            order.record(3)
            done.resolve(())
        }
        let cancelled = Reactor.shared.schedule(at: start + .milliseconds(20)) { order.record(2) }
        _ = Reactor.shared.schedule(at: start + .milliseconds(10)) { order.record(1) }
        Reactor.shared.cancel(cancelled)
        await done.wait()
        #expect(order.values == [1, 3])
    }

    @Test func `blocking work that takes too long is left behind`() async {
        let gate = DispatchGate()
        let late = await BlockingWork.run(until: .now + .milliseconds(20), cancellable: true) {
            gate.wait()
            return 1
        }
        #expect(late == nil)
        gate.open()
        let prompt = await BlockingWork.run(until: .now + .seconds(10), cancellable: true) { 2 }
        #expect(prompt == 2)
    }
}
