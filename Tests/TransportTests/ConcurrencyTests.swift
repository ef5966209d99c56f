import HTTPTypes
import Synchronization
import TestSupport
import Testing

@testable import Transport

@Suite(.timeLimit(.minutes(10)))
struct ConcurrencyTests {
    @Test(arguments: [4, 64])
    func `a thousand requests at once are all answered`(connections: Int) async throws {
        let busy = Mutex((now: 0, most: 0))
        let server = try TestServer { request, connection in
            busy.withLock { $0 = ($0.now + 1, max($0.most, $0.now + 1)) }
            defer { busy.withLock { $0.now -= 1 } }
            let path = request.target
            return connection.write("HTTP/1.1 200 OK\r\nContent-Length: \(path.utf8.count)\r\n\r\n\(path)")
        }
        let configuration = HTTPTransportConfiguration(maxConnectionsPerHost: connections)
        try await withTransport(to: server, configuration) { transport in
            try await withThrowingTaskGroup(of: Void.self) { group in
                for number in 0..<1000 {
                    group.addTask {
                        let exchange = try await transport.get(server.authority, "/\(number)")
                        #expect(String(decoding: exchange.body, as: UTF8.self) == "/\(number)")
                    }
                }
                try await group.waitForAll()
            }
            #expect(transport.unfinishedRequests == 0)
            #expect(server.requests == 1000)
            #expect(busy.withLock { $0.most } <= connections)
            // libcurl now and then replaces an idle connection, so the number made is not exact.
            #expect(server.accepted <= 2 * connections)
        }
    }

    @Test func `cancelling a request in flight ends it and frees its place`() async throws {
        let arrived = Signal()
        let hungUp = Signal()
        let server = try TestServer { request, connection in
            guard request.target == "/stuck" else {
                return connection.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            }
            arrived.send()
            connection.waitForClose()
            hungUp.send()
            return false
        }
        try await withTransport(to: server, .init(maxInFlight: 1)) { transport in
            let stuck = Task { try await transport.failure(.to(server.authority, "/stuck")) }
            await arrived.wait()
            async let next = transport.get(server.authority, "/next")
            stuck.cancel()
            let error = try await stuck.value
            #expect(error.code == .cancelled)
            #expect(error.requestSent)
            await hungUp.wait()
            let status = try await next.response.status
            #expect(status == .ok)
            #expect(transport.unfinishedRequests == 0)
        }
    }

    @Test func `a cancelled task sends nothing`() async throws {
        let server = try TestServer(bytes: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        try await withTransport(to: server) { transport in
            let task = Task {
                withUnsafeCurrentTask { $0?.cancel() }
                return try await transport.failure(.to(server.authority))
            }
            let error = try await task.value
            #expect(error.code == .cancelled)
            #expect(!error.requestSent)
            #expect(server.requests == 0)
        }
    }

    @Test func `cancellation at any moment gives one outcome and leaks no place`() async throws {
        let server = try TestServer(bytes: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        try await withTransport(to: server, .init(maxInFlight: 8)) { transport in
            for round in 0..<40 {
                let outcomes = await withTaskGroup(of: TransportError.Code?.self) { group in
                    for _ in 0..<50 {
                        group.addTask {
                            do throws(TransportError) {
                                _ = try await transport.get(server.authority)
                                return nil
                            } catch { return error.code }
                        }
                    }
                    // The canceller races the requests; a different number of hops each round moves the moment.
                    for _ in 0..<round { await Task.yield() }
                    group.cancelAll()
                    return await group.reduce(into: []) { $0.append($1) }
                }
                #expect(outcomes.count == 50)
                #expect(outcomes.allSatisfy { $0 == nil || $0 == .cancelled })
            }
            #expect(transport.unfinishedRequests == 0)
            let exchange = try await transport.get(server.authority)
            #expect(exchange.response.status == .ok)
        }
    }

    @Test func `what waits is served in order, may leave, may expire, and is bounded`() async throws {
        let arrived = Signal()
        let served = Mutex<[String]>([])
        let gate = Gate()
        let server = try TestServer { request, connection in
            served.withLock { $0.append(request.target) }
            if request.target == "/first" {
                arrived.send()
                gate.wait()
            }
            return connection.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        }
        let configuration = HTTPTransportConfiguration(maxInFlight: 1, maxQueued: 4)
        try await withTransport(to: server, configuration) { transport in
            // The server's thread waits at the gate, even if this fails on the way.
            defer { gate.open() }
            let first = Task { try await transport.get(server.authority, "/first", timeout: .seconds(120)) }
            await arrived.wait()
            var waiting: [Task<TransportError.Code?, Never>] = []
            for (index, path) in ["/a", "/leaves", "/b", "/expires"].enumerated() {
                waiting.append(
                    Task {
                        do throws(TransportError) {
                            // Long enough to be seen waiting, together with one that finds no room.
                            let limit: Duration = path == "/expires" ? .seconds(5) : .seconds(120)
                            _ = try await transport.get(server.authority, path, timeout: limit)
                            return nil
                        } catch { return error.code }
                    }
                )
                try await eventually { transport.unfinishedRequests >= index + 2 }
            }
            let refused = try await transport.failure(.to(server.authority, "/refused"))
            #expect(refused.code == .overloaded)
            #expect(!refused.requestSent)
            waiting[1].cancel()
            #expect(await waiting[1].value == .cancelled)
            #expect(await waiting[3].value == .timeout)
            gate.open()
            _ = try await first.value
            #expect(await waiting[0].value == nil)
            #expect(await waiting[2].value == nil)
        }
        #expect(served.withLock { $0 } == ["/first", "/a", "/b"])
    }

    @Test func `shutdown fails what is in flight and what waits, once and for all`() async throws {
        let arrived = Signal()
        let server = try TestServer { _, connection in
            arrived.send()
            connection.waitForClose()
            return false
        }
        let transport = HTTPTransport(configuration: .init(maxInFlight: 4), logger: quietLogger)
        let codes = try await withThrowingTaskGroup(of: TransportError.Code?.self) { group in
            for _ in 0..<20 {
                group.addTask { try? await transport.failure(.to(server.authority), timeout: .seconds(120)).code }
            }
            await arrived.wait(4)
            try await eventually { transport.unfinishedRequests == 20 }
            await withTaskGroup(of: Void.self) { stops in
                for _ in 0..<3 { stops.addTask { await transport.shutdown() } }
            }
            return try await group.reduce(into: []) { $0.append($1) }
        }
        #expect(codes == Array(repeating: .closed, count: 20))
        let late = try await transport.failure(.to(server.authority))
        #expect(late.code == .closed)
        #expect(!late.requestSent)
        await transport.shutdown()
        await server.stop()
    }

    @Test func `a transport that is dropped ends its thread`() async throws {
        let arrived = Signal()
        let hungUp = Signal()
        let server = try TestServer { _, connection in
            connection.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            arrived.send()
            connection.waitForClose()
            hungUp.send()
            return false
        }
        do {
            let transport = HTTPTransport(logger: quietLogger)
            _ = try await transport.get(server.authority)
        }
        // Its idle connection closes only when the thread frees the multi handle.
        await hungUp.wait()
        await server.stop()
    }

    @Test func `a slow host does not hold up another`() async throws {
        let arrived = Signal()
        let slow = try TestServer { _, connection in
            arrived.send()
            connection.waitForClose()
            return false
        }
        let fast = try TestServer(bytes: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        let configuration = HTTPTransportConfiguration(maxConnectionsPerHost: 2, maxInFlight: 16)
        try await withTransport(to: slow, configuration) { transport in
            let stuck = (0..<8).map { _ in Task { try await transport.failure(.to(slow.authority)).code } }
            await arrived.wait(2)
            for _ in 0..<20 {
                let exchange = try await transport.get(fast.authority)
                #expect(exchange.response.status == .ok)
            }
            #expect(slow.accepted == 2)
            for task in stuck { task.cancel() }
            for task in stuck { #expect(try await task.value == .cancelled) }
        }
        await fast.stop()
    }
}
