import Entitlements
import Foundation
import Postgres
import SupportDesk
import TestSupport
import Testing

/// What is on record around a case, as its evidence shows it.
@Suite struct BackgroundTests {
    private struct Document: Decodable {
        var history: [CasePast]
        var passed: [CasePast]
        var times: CaseTimes
        var frozen: FrozenAssets
    }

    private static func document(_ scene: DeskCase, _ ticket: Int64) async throws -> (Document, text: String) {
        let text = try #require(
            try await scene.world.texts(
                """
                SELECT e.document::text FROM entitlement_sync.ticket AS t
                  JOIN entitlement_sync.ticket_evidence AS e ON e.id = t.evidence_id WHERE t.id = \(ticket)
                """
            ).first
        )
        return (try JSONDecoder().decode(Document.self, from: Data(text.utf8)), text)
    }

    @Test
    func `What people decided before about the purchase and its people is shown, ends nothing and names no users`()
        async throws
    {
        try await DeskCase.with { scene, ticket in
            try await scene.world.add("third")
            try await scene.world.working(scene.setup) {
                try await scene.collect(ticket)
                let first = try await scene.hash(ticket)
                let (before, _) = try await Self.document(scene, ticket)
                #expect(before.history.isEmpty && before.passed.isEmpty)
                let other = try #require(
                    try await scene.tickets(scene.ann).open(
                        claimant: "third",
                        orderID: "200000070000001",
                        reason: "wrote a mail"
                    )
                )
                #expect(try await scene.act(scene.ann, .claim, on: other) == nil)
                #expect(try await scene.act(scene.ann, .refuse(how: "guide_to_login", words: nil), on: other) == nil)
                try await scene.collect(ticket)
                var (after, text) = try await Self.document(scene, ticket)
                // One that began when the other case was opened may end last.
                let deadline = ContinuousClock.now + .seconds(30)
                while after.passed.isEmpty, ContinuousClock.now < deadline {
                    try await scene.collect(ticket)
                    (after, text) = try await Self.document(scene, ticket)
                }
                #expect(try await scene.hash(ticket) == first, "what people agreed to outlasts another's refusal")
                let said = after.passed.map { "\($0.about) \($0.what) \($0.outcome) \($0.count) \($0.tickets)" }
                #expect(
                    said == [
                        "owner owned guide_to_login 1 [\(other)]", "purchase claimed guide_to_login 1 [\(other)]",
                    ]
                )
                for user in ["third", "\"owner\":\"", "\"claimant\":\""] { #expect(!text.contains(user), "\(text)") }
            }
        }
    }

    @Test func `An executed transfer stands in the evidence of the next case about the purchase`() async throws {
        try await DeskCase.with { scene, ticket in
            try await scene.world.working(scene.setup) {
                try await scene.transfer(ticket)
                let back = try #require(
                    try await scene.tickets(scene.ann).open(
                        claimant: "owner",
                        orderID: "200000070000001",
                        reason: "objects"
                    )
                )
                try await scene.collect(back)
                let (document, _) = try await Self.document(scene, back)
                func said(_ past: [CasePast]) -> Set<String> {
                    Set(past.map { "\($0.about) \($0.what) \($0.outcome) \($0.tickets)" })
                }
                #expect(
                    said(document.history) == [
                        "claimant given done [\(ticket)]", "owner received done [\(ticket)]",
                        "purchase moved done [\(ticket)]",
                    ]
                )
                #expect(
                    said(document.passed) == [
                        "claimant owned transferred [\(ticket)]", "owner claimed transferred [\(ticket)]",
                        "purchase claimed transferred [\(ticket)]",
                    ]
                )
                #expect(document.times.movedAt != nil)
            }
        }
    }

    @Test func `What freezes and runs out by itself is shown, and ends nothing that people agreed to`() async throws {
        try await DeskCase.with { scene, ticket in
            try await scene.world.working(scene.setup) {
                try await scene.collect(ticket)
                let first = try await scene.hash(ticket)
                let (before, _) = try await Self.document(scene, ticket)
                #expect(before.frozen == FrozenAssets(claimant: 3, owner: 0))
                #expect(before.times.firstSeenAt != nil && before.times.ownerSince != nil)
                #expect(before.times.movedAt == nil && before.times.refundSeenAt == nil)
                try await scene.world.addAssets(2, of: "owner", frozenFor: ["subscription_lapsed"])
                try await scene.world.addAssets(4, of: "owner", frozenFor: ["by the team"])
                let other = try #require(
                    try await scene.tickets(scene.ann).open(claimant: "claimant", orderID: nil, reason: "wrote")
                )
                try await scene.world.pool.query(
                    "SELECT entitlement_sync.move_ticket(\(other), 'expire')"
                )
                try await scene.collect(ticket)
                let (after, _) = try await Self.document(scene, ticket)
                #expect(after.frozen == FrozenAssets(claimant: 3, owner: 2))
                #expect(
                    after.passed.map { "\($0.about) \($0.what) \($0.outcome) \($0.tickets)" } == [
                        "claimant claimed expired [\(other)]"
                    ]
                )
                #expect(after.history.isEmpty)
                #expect(try await scene.hash(ticket) == first)
            }
        }
    }
}
