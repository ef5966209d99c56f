import Entitlements
import Foundation
import Logging
import ServiceLifecycle
package import Storage
import StoreClients
import Synchronization

/// Keeps stores' events, many in one transaction: while one is under way the next ones gather.
package final class EventIntake: Service {
    private struct Waiting {
        var event: Inbox.Event
        var continuation: CheckedContinuation<Bool, Never>
    }

    private struct State {
        var waiting: [Store: [Waiting]] = [:]
        var count = 0
        var isOpen = true
    }

    /// Events in one transaction.
    private static let batch = 500
    /// Events that may wait; beyond it the sender has to come again.
    private static let mostWaiting = 20_000

    private let keep: @Sendable ([Inbox.Event], Store) async throws -> Void
    private let state = Mutex(State())
    private let signal = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))

    /// Makes an intake that keeps nothing before it runs.
    package convenience init(inbox: Inbox) {
        self.init { events, source in try await inbox.accept(events, from: source) }
    }

    init(keep: @escaping @Sendable ([Inbox.Event], Store) async throws -> Void) { self.keep = keep }

    /// Keeps an event.
    ///
    /// - Returns: whether it is committed; `false`: the sender has to send it again.
    func accept(_ event: StoreEvent, body: [UInt8]) async -> Bool {
        let kept = Inbox.Event(
            id: event.id,
            kind: event.kind,
            occurredAt: event.occurredAt,
            promises: event.promises,
            users: event.users,
            about: About.text(event),
            body: body
        )
        return await withCheckedContinuation { continuation in
            let waits = state.withLock { state in
                guard state.isOpen, state.count < Self.mostWaiting else { return false }
                state.count += 1
                state.waiting[event.source, default: []].append(Waiting(event: kept, continuation: continuation))
                return true
            }
            if waits { signal.continuation.yield() } else { continuation.resume(returning: false) }
        }
    }

    /// Keeps events until a graceful shutdown or the task's cancellation; to be ended after whoever brings them.
    package func run() async throws {
        await withTaskGroup(of: Void.self) { group in
            group.addTask { await self.work() }
            try? await gracefulShutdown()
            group.cancelAll()
        }
        let left = state.withLock { state in
            state.isOpen = false
            defer { state.waiting = [:] }
            return state.waiting.values.flatMap { $0 }
        }
        for waiting in left { waiting.continuation.resume(returning: false) }
    }

    private func work() async {
        while !Task.isCancelled {
            guard let (source, batch) = next() else {
                await signalled()
                continue
            }
            var isKept = true
            do { try await keep(batch.map(\.event), source) } catch { isKept = false }
            for waiting in batch { waiting.continuation.resume(returning: isKept) }
        }
    }

    private func next() -> (Store, [Waiting])? {
        state.withLock { state in
            guard let source = state.waiting.max(by: { $0.value.count < $1.value.count })?.key,
                let waiting = state.waiting[source], !waiting.isEmpty
            else { return nil }
            let batch = Array(waiting.prefix(Self.batch))
            state.waiting[source] = Array(waiting.dropFirst(Self.batch))
            state.count -= batch.count
            return (source, batch)
        }
    }

    private func signalled() async {
        for await _ in signal.stream { return }
    }
}

/// Whom an event may be about beside the users that it names, as the inbox keeps it.
private struct About: Encodable {
    var purchases: [StoreEvent.Purchase]
    /// Only where it is so.
    var blocked: Bool?

    static func text(_ event: StoreEvent) -> String? {
        guard !event.purchases.isEmpty || event.isBlocked else { return nil }
        let about = About(purchases: event.purchases, blocked: event.isBlocked ? true : nil)
        // Texts alone: there is nothing that can't be written.
        return (try? JSONEncoder().encode(about)).map { String(decoding: $0, as: UTF8.self) }
    }
}
