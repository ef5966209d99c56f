import Entitlements
import SupportDesk
import TestSupport
import Testing
import UserRequests

/// What was only observed has not happened, wherever it is counted or shown.
@Suite struct ObservedTests {
    @Test func `What was only observed stands apart in the console's figures and causes, and reads as what would be`()
        async throws
    {
        try await World.with(customers: ["{id: ann, state: active}", "{id: bob, state: active}"]) { world in
            for user in ["ann", "bob"] { try await world.add(user) }
            try await world.addAssets(2, of: "ann", frozenFor: ["subscription_lapsed"])
            var setup = WorkerSetup()
            setup.decision.mode = .observe
            _ = try await world.reconciled("ann", setup: setup)
            _ = try await world.reconciled("bob")
            let desk = DeskPeople(world: world)
            let ann = try await desk.enter("agent", .agent, by: try await desk.enter("root", .admin))
            let users = DeskUsers(pool: world.pool, session: ann.token.digest)
            let outcomes = try await users.figures().filter { $0.series == "outcome" }
            #expect(Set(outcomes.map { "\($0.bar) \($0.figure)" }) == ["promoted 1", "promoted, only observed 1"])
            let causes = try await users.causes(days: 1)
            #expect(
                Set(causes.map { "\($0.what) \($0.cause) \($0.found)" }) == [
                    "decision store_access:promoted 1", "observed store_access:promoted 1",
                ]
            )
            let timeline = Timeline(pool: world.pool)
            let observed = try #require(try await timeline.events(of: "ann", until: nil)).filter {
                $0.kind == "decision"
            }
            for words in ["would become a subscriber", "Type free would become subscriber.", "2 assets would change."] {
                #expect(observed.first?.text.contains(words) == true, "\(observed)")
            }
            #expect(observed.allSatisfy { !$0.text.contains("became") && !$0.text.contains("changed.") }, "\(observed)")
            let written = try #require(try await timeline.events(of: "bob", until: nil)).filter {
                $0.kind == "decision"
            }
            #expect(written.first?.text.contains("Type free became subscriber.") == true, "\(written)")
        }
    }
}
