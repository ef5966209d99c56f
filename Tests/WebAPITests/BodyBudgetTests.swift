@testable import HTTPServing
import HTTPTypes
import Hummingbird
import Logging
import NIOCore
import NIOEmbedded
import TestSupport
import Testing
@testable import WebAPI

/// Who has memory for a body, and who gives way.
@Suite struct BodyBudgetTests {
    private static let shares = BodyBudget.Shares(stores: 100, users: 300, strangers: 200, user: 150, stranger: 150)

    /// A body that arrives as the test has it.
    private struct Sender {
        let budget: BodyBudget
        let channel = NIOAsyncTestingChannel()
        let source: RequestBody.Source
        let body: RequestBody

        init(_ budget: BodyBudget) {
            self.budget = budget
            (body, source) = RequestBody.makeStream()
        }

        func send(_ bytes: Int) async { await source.yield(ByteBuffer(repeating: 0x78, count: bytes)) }

        func read(_ sender: BodyBudget.Sender, announcing length: Int? = nil) async throws -> BodyBudget.Body {
            var fields: HTTPFields = [:]
            fields[.contentLength] = length.map { "\($0)" }
            let head = HTTPRequest(method: .post, scheme: "http", authority: "a", path: "/", headerFields: fields)
            let context = APIContext(source: .init(channel: channel, logger: Logger(label: "bodies")))
            return try await budget.read(Request(head: head, body: body), upTo: 1000, from: sender, context)
        }
    }

    private func refusal(_ body: () async throws -> Void) async -> Problem.Kind? {
        do {
            try await body()
            return nil
        } catch { return (error as? Problem)?.kind }
    }

    private func whole(_ bytes: Int, _ sender: BodyBudget.Sender, _ budget: BodyBudget) async throws -> BodyBudget.Body
    {
        let body = Sender(budget)
        async let read = body.read(sender, announcing: bytes)
        await body.send(bytes)
        body.source.finish()
        return try await read
    }

    @Test func `What is announced takes nothing, and what has arrived does until it is given back`() async throws {
        let budget = BodyBudget(shares: Self.shares, grace: .seconds(60), security: SecurityLog())
        let silent = Sender(budget)
        async let never = silent.read(.user("ann"), announcing: 900)
        let first = try await whole(140, .user("ann"), budget)
        #expect(await refusal { _ = try await whole(140, .user("ann"), budget) } == .unavailable)
        _ = try await whole(140, .user("bob"), budget)
        first.giveBack()
        _ = try await whole(140, .user("ann"), budget)
        silent.source.finish()
        _ = try await never
    }

    @Test func `Neither users nor strangers take what stores need, whoever they are`() async throws {
        let budget = BodyBudget(shares: Self.shares, grace: .seconds(60), security: SecurityLog())
        var held: [BodyBudget.Body] = []
        for name in ["ann", "bob"] { held.append(try await whole(150, .user(name), budget)) }
        held.append(try await whole(150, .stranger("192.0.2.1"), budget))
        #expect(await refusal { _ = try await whole(1, .user("cid"), budget) } == .unavailable)
        #expect(await refusal { _ = try await whole(60, .stranger("192.0.2.2"), budget) } == .unavailable)
        _ = try await whole(100, .store, budget)
        for body in held { body.giveBack() }
        _ = try await whole(150, .user("cid"), budget)
    }

    @Test func `Where all is taken, who has been arriving for long gives way to who comes`() async throws {
        let budget = BodyBudget(shares: Self.shares, grace: .milliseconds(50), security: SecurityLog())
        var slow: [Sender] = []
        try await withThrowingTaskGroup(of: Problem.Kind?.self) { group in
            for number in 1...2 {
                let sender = Sender(budget)
                slow.append(sender)
                group.addTask { await self.refusal { _ = try await sender.read(.stranger("192.0.2.\(number)")) } }
                await sender.send(100)
                try await eventually { budget.bytesTaken == 100 * number }
            }
            // Refused until the oldest has been arriving for longer than the grace.
            try await eventually {
                await refusal { _ = try await whole(100, .stranger("192.0.2.9"), budget) } == nil
            }
            // The oldest has lost its connection, and what it sends now is not taken.
            try await slow[0].channel.closeFuture.get()
            await slow[0].send(1)
            #expect(try await group.next() == .unavailable)
            slow[1].source.finish()
            #expect(try await group.next() == .some(nil))
        }
    }
}
