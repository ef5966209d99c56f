import Foundation
import Logging
import Synchronization
import TestSupport
import Testing
@testable import UserRequests
@testable import WebAPI

/// Who waits for restores, and what they are answered.
@Suite struct StatusHubTests {
    /// The database: what it says of restores, and what it was asked.
    private final class Records: Sendable {
        let answers = Mutex<[UUID: RestoreAnswer]>([:])
        let read = Mutex<[UUID]>([])

        func look(_ ids: [UUID]) -> [RestoreAnswer] {
            read.withLock { $0 += ids }
            return answers.withLock { answers in ids.compactMap { answers[$0] } }
        }
    }

    private static func answer(_ id: UUID, _ state: String, _ outcome: String? = nil) -> RestoreAnswer {
        RestoreAnswer(id: id, userID: "ann", state: state, outcome: outcome, messageKey: nil, age: 1, products: [])
    }

    private static func with(_ body: (StatusHub, Records) async throws -> Void) async throws {
        let records = Records()
        let hub = StatusHub(
            pause: .seconds(3600),
            follows: .seconds(3600),
            remembers: .seconds(3600)
        ) { records.look($0) }
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await hub.run() }
            try await body(hub, records)
            group.cancelAll()
        }
    }

    @Test func `Whoever has waited long enough hears of nothing, not before the time, and is forgotten`() async throws {
        try await Self.with { hub, records in
            let id = UUID()
            records.answers.withLock { $0[id] = Self.answer(id, "queued") }
            let began = ContinuousClock.now
            #expect(await hub.next(.end, of: id, within: .milliseconds(120)) == nil)
            #expect(ContinuousClock.now - began >= .milliseconds(120))
            #expect(!hub.awaits(id))
            #expect(await hub.next(.end, of: id, within: .zero) == nil)
        }
    }

    @Test func `Each of many waits as long as they asked for, and no one's end ends another's`() async throws {
        try await Self.with { hub, records in
            let ids = (0..<200).map { _ in UUID() }
            records.answers.withLock { answers in
                for id in ids { answers[id] = Self.answer(id, "running") }
            }
            let ended = await withTaskGroup(of: UUID?.self) { group in
                for (place, id) in ids.enumerated() {
                    let limit: Duration = place < 100 ? .milliseconds(100) : .seconds(600)
                    group.addTask { await hub.next(.end, of: id, within: limit)?.id }
                }
                var ended: [UUID?] = []
                while ended.count < 100, let one = await group.next() { ended.append(one) }
                #expect(ended.allSatisfy { $0 == nil }, "the first hundred hear of nothing")
                _ = hub.take(ids[100...].map { Self.answer($0, "done", "restored") })
                var told: Set<UUID> = []
                while let one = await group.next() { if let one { told.insert(one) } }
                return told
            }
            #expect(ended == Set(ids[100...]))
        }
    }

    @Test func `Answers of the same process reach whoever waits for them, and are not read`() async throws {
        try await Self.with { hub, records in
            let (waiting, followed, other) = (UUID(), UUID(), UUID())
            #expect(!hub.awaits(waiting))
            records.answers.withLock { $0[waiting] = Self.answer(waiting, "queued") }
            hub.follow(RestoreAnswer(queued: followed, userID: "ann"))
            #expect(hub.awaits(followed))
            async let next = hub.next(.end, of: waiting, within: .seconds(60))
            try await eventually { hub.awaits(waiting) }
            let told = hub.take([waiting, followed, other].map { Self.answer($0, "done", "restored") })
            #expect(told == [waiting], "the others may be awaited elsewhere")
            #expect(await next == Self.answer(waiting, "done", "restored"))
            // Nobody waited here for this one, so nothing is known of it: it is read.
            records.answers.withLock { $0[other] = Self.answer(other, "done", "nothing_to_restore") }
            #expect(await hub.next(.end, of: other, within: .seconds(60))?.outcome == "nothing_to_restore")
            #expect(hub.followed(followed) == nil, "nothing is heard, so it may have changed")
            hub.connected()
            #expect(hub.followed(followed)?.outcome == "restored")
        }
    }

    @Test func `What was told is neither read again for its hint nor overtaken by an older reading`() async throws {
        try await Self.with { hub, records in
            hub.connected()
            let (told, heard) = (UUID(), UUID())
            for id in [told, heard] {
                hub.follow(RestoreAnswer(queued: id, userID: "ann"))
                records.answers.withLock { $0[id] = Self.answer(id, "running") }
            }
            _ = hub.take([Self.answer(told, "done", "restored")])
            for id in [told, heard] { hub.notified(#"{"job":"\#(id.uuidString.lowercased())","outcome":"restored"}"#) }
            try await eventually { records.read.withLock { $0.contains(heard) } }
            #expect(!records.read.withLock { $0.contains(told) })
            // A reading that began before the end was told.
            #expect(try await hub.reading(of: told)?.state == "running")
            #expect(hub.followed(told)?.state == "done")
        }
    }

    @Test func `An end that was heard of before its restore is followed is read then`() async throws {
        try await Self.with { hub, records in
            hub.connected()
            let id = UUID()
            records.answers.withLock { $0[id] = Self.answer(id, "done", "restored") }
            hub.notified(#"{"job":"\#(id.uuidString.lowercased())","outcome":"restored"}"#)
            hub.follow(RestoreAnswer(queued: id, userID: "ann"))
            try await eventually { hub.followed(id)?.state == "done" }
            #expect(records.read.withLock { $0 } == [id])
        }
    }

    @Test func `What is followed, and an end that was heard of, are forgotten after their time`() {
        var waits = StatusHubState()
        waits.isListening = true
        let (start, id) = (ContinuousClock.now, UUID())
        let isDue = waits.follow(RestoreAnswer(queued: id, userID: "ann"), from: start, for: .seconds(30))
        #expect(!isDue && waits.awaits(id))
        #expect(waits.known(id, at: start + .seconds(29)) != nil)
        #expect(waits.known(id, at: start + .seconds(30)) == nil)
        for _ in 0..<1200 {
            _ = waits.follow(RestoreAnswer(queued: UUID(), userID: "ann"), from: start, for: .seconds(30))
        }
        var turns = 1
        while waits.forget(at: start + .seconds(30)) { turns += 1 }
        #expect(turns > 1 && !waits.awaits(id))

        let late = UUID()
        _ = waits.noteEnd(of: late, at: start, for: .seconds(5))
        let isStillHeard = waits.follow(
            RestoreAnswer(queued: late, userID: "ann"),
            from: start + .seconds(5),
            for: .seconds(30)
        )
        #expect(!isStillHeard)
    }

    @Test func `An answer that has not ended ends no wait for an end, but one for a change`() async throws {
        try await Self.with { hub, records in
            let id = UUID()
            records.answers.withLock { $0[id] = Self.answer(id, "queued") }
            async let end = hub.next(.end, of: id, within: .seconds(60))
            async let change = hub.next(.change(from: "queued"), of: id, within: .seconds(60))
            try await eventually { !records.read.withLock { $0.isEmpty } && hub.awaits(id) }
            // Reaches a caller once the wait for a change has begun, too.
            try await eventually { hub.take([Self.answer(id, "running")]) == [id] }
            #expect(await change?.state == "running")
            #expect(hub.awaits(id), "the end is still awaited")
            _ = hub.take([Self.answer(id, "done", "restored")])
            #expect(await end?.outcome == "restored")
        }
    }

    @Test func `A shutdown ends every wait`() async throws {
        try await Self.with { hub, records in
            let id = UUID()
            records.answers.withLock { $0[id] = Self.answer(id, "queued") }
            async let next = hub.next(.end, of: id, within: .seconds(600))
            try await eventually { hub.awaits(id) }
            hub.stop()
            #expect(await next == nil)
            #expect(await hub.next(.end, of: id, within: .seconds(600)) == nil)
        }
    }

    @Test func `A hint names its job, however a sender spells it; what is none is no hint`() {
        let id = UUID()
        let lower = id.uuidString.lowercased()
        for payload in [
            #"{"job":"\#(lower)","outcome":"restored"}"#, #"{"job": "\#(id.uuidString)", "outcome": null}"#,
            #"{"outcome":"restored","job":"\#(lower)"}"#,
        ] {
            #expect(StatusHub.job(in: payload) == id, "\(payload)")
        }
        for payload in ["", "{}", #"{"job":"#, #"{"job":"12"}"#, lower] {
            #expect(StatusHub.job(in: payload) == nil, "\(payload)")
        }
    }
}
