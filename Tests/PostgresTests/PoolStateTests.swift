import TestSupport
import Testing

@testable import Postgres

struct PoolStateTests {
    private let start = ContinuousClock.now

    private func state(connections: Int = 2, waiters: Int = 3) -> PoolState {
        PoolState(
            maxConnections: connections,
            maxWaiters: waiters,
            backoff: Backoff(base: .milliseconds(100), cap: .seconds(1))
        )
    }

    /// A state whose connections are all leased.
    private func busy(connections: Int, waiters: Int = 3) -> PoolState {
        var state = state(connections: connections, waiters: waiters)
        for id in 1...connections {
            #expect(state.acquire(100 + id, at: start) == .granted(.connect(id)))
            #expect(state.connected(id) == true)
        }
        return state
    }

    @Test func `connections are opened up to the limit, then tasks queue, then they are refused`() {
        var state = state(connections: 2, waiters: 1)
        #expect(state.acquire(1, at: start) == .granted(.connect(1)))
        #expect(state.acquire(2, at: start) == .granted(.connect(2)))
        #expect(state.acquire(3, at: start) == .queued)
        #expect(state.acquire(4, at: start) == .full)
    }

    @Test
    func `below a lower limit no connection is opened, those that are open go on, and a higher one is used at once`() {
        var state = busy(connections: 3)
        state.maxConnections = 2
        #expect(state.acquire(1, at: start) == .queued)
        #expect(state.release(1, at: start) == true)
        #expect(state.serve(at: start).map(\.waiter) == [1], "one that is open is handed on")
        #expect(state.acquire(2, at: start) == .queued)
        state.maxConnections = 4
        #expect(state.serve(at: start).map(\.grant) == [.connect(4)])
        state.maxConnections = 0
        #expect(state.maxConnections == 1)
    }

    @Test func `waiters are served in their order`() {
        var state = busy(connections: 1)
        for waiter in 1...3 { #expect(state.acquire(waiter, at: start) == .queued) }
        #expect(state.abandon(2) == true)
        #expect(state.abandon(2) == false)
        for waiter in [1, 3] {
            #expect(state.release(1, at: start) == true)
            let served = state.serve(at: start)
            #expect(served.map(\.waiter) == [waiter])
            #expect(served.map(\.grant) == [.lease(1, idle: .zero)])
        }
        #expect(state.release(1, at: start) == true)
        #expect(state.serve(at: start).map(\.waiter) == [])
        #expect(state.idleCount == 1)
    }

    @Test func `a newcomer does not overtake`() {
        var state = busy(connections: 1)
        #expect(state.acquire(1, at: start) == .queued)
        #expect(state.release(1, at: start) == true)
        #expect(state.acquire(2, at: start) == .queued)
        #expect(state.serve(at: start).map(\.waiter) == [1])
    }

    @Test func `the connection used last is lent first, with the time it rested`() {
        var state = busy(connections: 2)
        #expect(state.release(1, at: start) == true)
        #expect(state.release(2, at: start + .seconds(1)) == true)
        #expect(state.acquire(1, at: start + .seconds(5)) == .granted(.lease(2, idle: .seconds(4))))
        #expect(state.acquire(2, at: start + .seconds(5)) == .granted(.lease(1, idle: .seconds(5))))
    }

    @Test func `a lost connection makes room for the next waiter to connect`() {
        var state = busy(connections: 1)
        #expect(state.acquire(1, at: start) == .queued)
        state.discard(1)
        #expect(state.serve(at: start).map(\.grant) == [.connect(2)])
    }

    @Test func `after a failure the next attempt waits, and only one is made at a time`() {
        var state = state(connections: 3)
        #expect(state.acquire(1, at: start) == .granted(.connect(1)))
        #expect(state.connectFailed(1, at: start, spread: 1) == [])
        #expect(state.failures == 1)
        #expect(state.acquire(2, at: start) == .queued)
        #expect(state.acquire(3, at: start) == .queued)
        #expect(state.nextService == start + .milliseconds(100))
        #expect(state.serve(at: start + .milliseconds(99)).map(\.waiter) == [])
        let served = state.serve(at: start + .milliseconds(100))
        #expect(served.map(\.waiter) == [2])
        #expect(state.connected(2) == true)
        #expect(state.nextService == nil)
        #expect(state.serve(at: start + .milliseconds(100)).map(\.waiter) == [3])
    }

    @Test func `attempts that fail together count once, and later ones wait longer`() {
        var state = state(connections: 3)
        for waiter in 1...3 { _ = state.acquire(waiter, at: start) }
        for id in 1...3 { _ = state.connectFailed(id, at: start, spread: 1) }
        #expect(state.failures == 1)
        let second = start + .milliseconds(100)
        #expect(state.acquire(4, at: second) == .granted(.connect(4)))
        _ = state.connectFailed(4, at: second, spread: 1)
        #expect(state.retryAt == second + .milliseconds(200))
    }

    @Test func `a failure is told to all who wait, unless a lease may still serve them`() {
        var alone = state(connections: 1)
        _ = alone.acquire(1, at: start)
        _ = alone.acquire(2, at: start)
        #expect(alone.connectFailed(1, at: start, spread: 0) == [2])
        #expect(alone.waiters.isEmpty)

        var shared = busy(connections: 2)
        _ = shared.acquire(1, at: start)
        shared.reconnect(2)
        #expect(shared.connectFailed(2, at: start, spread: 0) == [])
        #expect(shared.waiters == [1])
    }

    @Test func `a closed pool refuses everything and keeps nothing`() {
        var state = busy(connections: 3)
        #expect(state.release(1, at: start) == true)
        let (waiters, connections) = state.close()
        #expect(waiters.isEmpty && connections == [1])
        #expect(state.acquire(1, at: start) == .closed)
        #expect(state.release(2, at: start) == false)
        #expect(!state.isQuiet)
        state.discard(3)
        #expect(state.isQuiet)
        #expect(state.close().connections == [])
    }

    @Test func `a connection that opens after the pool was closed is not wanted`() {
        var state = state()
        #expect(state.acquire(1, at: start) == .granted(.connect(1)))
        _ = state.close()
        #expect(state.connected(1) == false)
        #expect(state.isQuiet)
    }

    @Test func `connections that rested too long are taken out`() {
        var state = busy(connections: 2)
        #expect(state.release(1, at: start) == true)
        #expect(state.release(2, at: start + .seconds(10)) == true)
        #expect(state.removeIdle(since: start + .seconds(5)) == [1])
        #expect(state.idleCount == 1)
    }

    @Test func `whatever happens, the limits hold and nobody is forgotten`() {
        var random = SeededGenerator(seed: 42)
        for _ in 0..<200 {
            let limit = Int.random(in: 1...4, using: &random)
            var state = state(connections: limit, waiters: 5)
            var now = start
            var waiting: Set<Int> = []
            var connecting: Set<Int> = []
            var leased: Set<Int> = []
            func note(_ grant: PoolState.Grant) {
                switch grant {
                case .connect(let id): connecting.insert(id)
                case .lease(let id, _):
                    #expect(!leased.contains(id))
                    leased.insert(id)
                }
            }
            for step in 0..<100 {
                now += .milliseconds(Int.random(in: 0...80, using: &random))
                switch Int.random(in: 0..<6, using: &random) {
                case 0, 1:
                    switch state.acquire(step, at: now) {
                    case .granted(let grant): note(grant)
                    case .queued: waiting.insert(step)
                    case .full: #expect(waiting.count == 5)
                    case .closed: Issue.record("the pool is open")
                    }
                case 2:
                    if let id = leased.randomElement(using: &random) {
                        leased.remove(id)
                        if Bool.random(using: &random) {
                            #expect(state.release(id, at: now) == true)
                        } else {
                            state.discard(id)
                        }
                    }
                case 3:
                    if let id = connecting.randomElement(using: &random) {
                        connecting.remove(id)
                        #expect(state.connected(id) == true)
                        leased.insert(id)
                    }
                case 4:
                    if let id = connecting.randomElement(using: &random) {
                        connecting.remove(id)
                        for waiter in state.connectFailed(id, at: now, spread: 0.5) { waiting.remove(waiter) }
                    }
                default:
                    if let waiter = waiting.randomElement(using: &random) {
                        #expect(state.abandon(waiter) == true)
                        waiting.remove(waiter)
                    }
                }
                for (waiter, grant) in state.serve(at: now) {
                    #expect(waiting.contains(waiter))
                    waiting.remove(waiter)
                    note(grant)
                }
                #expect(state.leased == leased && state.connecting == connecting && Set(state.waiters) == waiting)
                #expect(leased.count + connecting.count + state.idleCount <= limit)
                // Somebody who waits has a reason: all slots are taken, or the server was unreachable a moment ago.
                #expect(waiting.isEmpty || state.idleCount == 0)
            }
        }
    }
}
