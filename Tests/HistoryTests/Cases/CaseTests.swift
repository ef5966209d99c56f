import Foundation
import Synchronization
import TestSupport
import Testing

/// Made-up cases at the desk: people, users and workers one into the other, and the laws afterwards.
@Suite(.serialized) struct CaseTests {
    /// 40 seeds; 1,000 in the full profile; or the one that is asked for.
    private static var seeds: Range<UInt64> {
        Seeds.isWhole ? 0..<(Profile.isFull ? 1000 : 40) : Seeds.all[0]..<Seeds.all[0] + 1
    }

    /// What has to come up in every profile: without it a law could hold because its case never came.
    private static let frequent = [
        "ticket: transferred",
        "transfer: done",
        "transfer: stopped",
        "event: reopened",
        "event: window_ended",
        "event: touched",
        "approvals ended: evidence_changed",
        "approvals ended: expired",
        "approvals ended: role_lost",
        "approvals ended: decided",
        "approvals ended: used",
        "approve: approved_already",
        "approve: evidence_changed",
        "approve: not_confirmed",
        "approve: needs_senior",
        "approve: hindrance",
        "approve: own_case",
        "claim: held",
        "claim: own_case",
        "refuse: done",
        "refuse: state",
        "lend: done",
        "lend: no_proof",
        "transfer: paused",
        "transfer: state",
        "transfer: own_case",
        "stopped: evidence_changed",
        "stopped: resolved_by_hand",
        "allow: step",
        "call: done",
        "settled: done",
        "resolve: not moved",
        "taken by another worker",
        "a worker died",
        "owner erased while approved",
        "fact: moved_lately",
        "fact: owner_banned",
        "fact: sources_disagree",
        "fact: held_elsewhere",
        "the claimant buys anew",
        "met a lock",
        "evidence met a lock",
        "undone",
        "refused by the role or the session",
        "waive: done",
        "waive: state",
        "owner: object: taken",
        "owner: agree: taken",
        "owner: agree: question_changed",
        "event: owner_agreed",
        "event: owner_consented",
        "fact: owner_consented",
        "fact: owner_objected",
    ]

    /// What has to come up in the long profile.
    private static let rare = [
        "ticket: refused",
        "ticket: auto_resolved",
        "ticket: duplicate",
        "transfer without a call",
        "a purchase moved back",
        "event: lease_ended",
        "approvals ended: owner_objected",
        "approvals ended: withdrawn",
        "approve: held",
        "approve: not_claimed",
        "lend: temporary_access_given_already",
        "withdraw: done",
        "transfer: busy",
        "transfer: waiting_owner",
        "stopped: role_lost",
        "call: done, and the answer lost",
        "call: late",
        "call: lost",
        "call: refused",
        "called again",
        "waits: unsettled",
        "waits: paused",
        "settled: -1",
        "settled: owner changed",
        "resolve: moved",
        "resolve: unsettled",
        "resolve: needs_senior",
        "waive: owner_objected",
        "an owner says too much",
        "nobody can tell",
        "claimant erased while approved",
        "claimant banned while approved",
        "claimant banned while executing",
        "claimant erased while executing",
    ]

    @Test(.timeLimit(.minutes(20)))
    func `However people, users and workers run into each other, the laws hold`() async throws {
        let board = Board()
        let started = ContinuousClock.now
        try await Lanes.sideBySide(Array(Self.seeds)) { take in
            try await CaseFloor.with { floor in
                while let seed = take() { board.add(seed, await Self.attempt(seed, floor)) }
            }
        }
        let results = board.results.withLock { $0 }
        for failure in results.failures.prefix(5) { Issue.record("\(failure)") }
        #expect(results.failures.count <= 5, "and further ones")
        print("cases: \(Self.seeds.count), steps: \(results.steps), in \(ContinuousClock.now - started)")
        guard Seeds.isWhole else { return print(results.situations.keys.sorted().joined(separator: "\n")) }
        let few = (Self.frequent + Self.rare).map { ($0, results.situations[$0, default: 0]) }.filter { $0.1 < 10 }
        print("rarest: \(few.sorted { $0.1 < $1.1 }.map { "\($0.0): \($0.1)" })")
        for name in Profile.isFull ? Self.frequent + Self.rare : Self.frequent {
            #expect(results.situations[name, default: 0] > 0, "never occurred: \(name)")
        }
    }

    private struct Outcome: Sendable {
        var situations: Set<String> = []
        var steps = 0
        var failure: String?
    }

    private static func attempt(_ seed: UInt64, _ floor: CaseFloor) async -> Outcome {
        var run = CaseRun(floor, seed: seed)
        var failure: String?
        do { try await run.perform() } catch let error as Failed { failure = error.text } catch { failure = "\(error)" }
        await run.abandon()
        if !Seeds.isWhole { print(run.trace.joined(separator: "\n")) }
        if let text = failure {
            failure = "ENTITLEMENT_SYNC_TEST_SEED=\(seed)\n" + run.trace.joined(separator: "\n") + "\n\(text)"
        }
        return Outcome(situations: run.situations, steps: run.trace.count, failure: failure)
    }

    /// What the lanes share.
    private final class Board: Sendable {
        struct Results: Sendable {
            var steps = 0
            var failures: [String] = []
            var situations: [String: Int] = [:]
        }

        let results = Mutex(Results())

        func add(_ seed: UInt64, _ outcome: Outcome) {
            results.withLock { results in
                results.steps += outcome.steps
                if let failure = outcome.failure { results.failures.append(failure) }
                for name in outcome.situations { results.situations[name, default: 0] += 1 }
            }
        }
    }
}
