import Diagnostics
import Entitlements
import Foundation
import Postgres
import Queue
import StoreSimulator
import TestSupport
import Testing
import UserRequests

/// Several lines of one account of the App Store, of which the app has shown one.
@Suite struct SameAccountTests {
    static let shown = #"{"original":"50001","product":"premium_monthly","state":"billing_retry","expires":"-2d"}"#

    /// A user whose shown line is over, beside what else the App Store lists for the account.
    static func with(_ line: String, _ body: @Sendable (World, WorkerSetup) async throws -> Void) async throws {
        let scenario = AppStoreRestoreTests.scenario("original: \"50001\", product: premium_monthly, expires: +20d")
        try await World.with(scenario: scenario) { world in
            for user in ["ann", "bob"] { try await world.add(user) }
            try await world.addProducts()
            let setup = try world.asking(world.appStore)
            let proof = try world.transactionProof("50001")
            #expect(try await world.restored("ann", proofs: proof, setup: setup).outcome == "restored")
            try await world.steer("/app-store/customers/alice", #"{"transactions":[\#(shown),\#(line)]}"#)
            try await body(world, setup)
        }
    }

    static let over = #"{"original":"50001","product":"premium_monthly","state":"expired","expires":"-2d"}"#
    static let open = #"{"original":"50005","product":"premium_monthly","state":"active","expires":"+30d"}"#

    @Test func `A line that the app never showed gives access beside the user's own, and gets no owner by that`()
        async throws
    {
        try await Self.with(Self.open) { world, setup in
            for _ in 1...2 { #expect(try await world.reconciled("ann", setup: setup).outcome == "unchanged") }
            #expect(try await world.type(of: "ann") == "subscriber")
            #expect(try await world.owner(of: "50005") == nil)
            #expect(try await world.tickets(of: "ann").isEmpty)
            let looks = try await world.number(
                """
                SELECT count(*) FROM entitlement_sync.user_sync
                 WHERE user_id = 'ann' AND next_check_at < now() + interval '31 hours'
                """
            )
            #expect(looks == 1, "its owner may come any day")
            let answer = try #require(try await world.app.entitlement(of: "ann"))
            #expect(answer.until != nil && !answer.suggestsRestore, "its end is known")
            try await InvariantMonitor(pool: world.pool).run()
            let drift = try #require(try await InvariantMonitor(pool: world.pool).drift())
            #expect(drift.astray == 0)
        }
    }

    @Test func `The line that gives access is asked about however long ago the user's own line ended`() async throws {
        try await Self.with(Self.open) { world, setup in
            #expect(try await world.reconciled("ann", setup: setup).outcome == "unchanged")
            let long = #"{"original":"50001","product":"premium_monthly","state":"expired","expires":"-90d"}"#
            try await world.steer("/app-store/customers/alice", #"{"transactions":[\#(long),\#(Self.open)]}"#)
            for _ in 1...3 { #expect(try await world.reconciled("ann", setup: setup).outcome == "unchanged") }
            let over = #"{"original":"50005","product":"premium_monthly","state":"expired","expires":"-1h"}"#
            try await world.steer("/app-store/customers/alice", #"{"transactions":[\#(long),\#(over)]}"#)
            #expect(try await world.reconciled("ann", setup: setup).outcome == "demoted")
        }
    }

    @Test func `A free user whose own line is over has access by the new one at a tap`() async throws {
        try await Self.with(#"{"original":"50005","product":"premium_monthly","state":"expired","expires":"-2d"}"#) {
            world,
            setup in
            #expect(try await world.reconciled("ann", setup: setup).outcome == "demoted")
            try await world.steer("/app-store/customers/alice", #"{"transactions":[\#(Self.shown),\#(Self.open)]}"#)
            #expect(try await world.restored("ann", setup: setup).outcome == "restored")
            #expect(try await world.owner(of: "50005") == nil)
        }
    }

    @Test func `The first proof makes its owner without a mismatch, and ends what another user had by it`() async throws
    {
        try await Self.with(Self.open) { world, setup in
            #expect(try await world.reconciled("ann", setup: setup).outcome == "unchanged")
            let shown = try await world.restored("bob", proofs: world.transactionProof("50005"), setup: setup)
            #expect(shown.outcome == "restored")
            #expect(try await world.owner(of: "50005") == "bob")
            #expect(try await world.tickets(of: "bob").isEmpty)
            #expect(try await world.app.entitlement(of: "ann")?.until == nil, "it is somebody else's by now")
            #expect(try await world.reconciled("ann", setup: setup).outcome == "demoted")
            #expect(try await world.tickets(of: "ann").isEmpty)
        }
    }

    static let others: [String] = [
        #""ownership":"FAMILY_SHARED""#, #""account_token":"6f1c0e7a-0000-4000-8000-00000000a001""#,
    ]

    @Test(arguments: others)
    func `A family member's share, and a line with another user's token, give nothing beside the user's own`(
        _ member: String
    ) async throws {
        let line = #"{"original":"50005","product":"premium_monthly","state":"active","expires":"+30d",\#(member)}"#
        try await Self.with(line) { world, setup in
            try await world.add("6f1c0e7a-0000-4000-8000-00000000a001")
            #expect(try await world.reconciled("ann", setup: setup).outcome == "demoted")
        }
    }

    @Test func `Where two users have shown lines of the account, a third line gives access to neither`() async throws {
        let second = #"{"original":"50003","product":"premium_monthly","state":"active","expires":"+9d"}"#
        try await Self.with(second) { world, setup in
            // Ann has access by it until bob shows it.
            let shown = try await world.restored("bob", proofs: world.transactionProof("50003"), setup: setup)
            #expect(shown.outcome == "restored")
            let over = #"{"original":"50003","product":"premium_monthly","state":"expired","expires":"-3d"}"#
            try await world.steer(
                "/app-store/customers/alice",
                #"{"transactions":[\#(Self.shown),\#(over),\#(Self.open)]}"#
            )
            for user in ["ann", "bob"] {
                #expect(try await world.reconciled(user, setup: setup).outcome == "demoted", "\(user)")
            }
            #expect(try await world.owner(of: "50005") == nil)
        }
    }

    @Test func `A notification of the line has the user of the account read again`() async throws {
        try await Self.with(#"{"original":"50005","product":"premium_monthly","state":"expired","expires":"-2d"}"#) {
            world,
            setup in
            #expect(try await world.reconciled("ann", setup: setup).outcome == "demoted")
            try await world.steer("/app-store/customers/alice", #"{"transactions":[\#(Self.shown),\#(Self.open)]}"#)
            try await world.notify(.init(type: "SUBSCRIBED", transaction: "50005"))
            try await world.work(setup)
            #expect(try await world.eventStates() == ["done"])
            #expect(try await world.decisions(about: "ann").last?.outcome == "promoted")
            #expect(try await world.type(of: "ann") == "subscriber")
        }
    }
}
