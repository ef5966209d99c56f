@testable import Entitlements
import Foundation
import SupportDesk
import Testing

/// What is on record and what looking ids up found, in sentences.
@Suite struct BackgroundWordsTests {
    private static let day: Int64 = 86_400_000_000

    @Test func `Every outcome of a look-up is a sentence, and none speaks for a transfer`() {
        let claim = CaseClaim(kind: "order_id", value: "GPA.1234-5678-9012-34567")
        let failure = ReadFailure(.unavailable)
        var answers: [StoreLookup.Answer] = [.found([]), .unknown, .failed(failure)]
        answers += CaseLookup.Obstacle.allCases.map { .impossible($0) }
        var seen: Set<String> = []
        for answer in answers {
            for purchases in [[], [7], [8]] as [Set<Int64>] {
                let lookup = CaseLookup(claim, StoreLookup(.appStore, answer), purchases: purchases, subject: 7)
                let (words, weight) = LookupWords.said(lookup)
                #expect(words.hasSuffix(".") && words.contains("App Store") && !words.contains("  "), "\(words)")
                #expect(weight == (answer == .unknown ? .against : .known))
                seen.insert(words)
            }
        }
        #expect(seen.count == answers.count + 2)
        let nobody = LookupWords.said(CaseLookup(claim, nil)).words
        #expect(nobody == "No lookup is possible: no store takes it for one of its ids.")
    }

    @Test func `152: that an order of the sandbox can't be looked up is said`() {
        let claim = CaseClaim(kind: "order_id", value: "MABCDEFGH1")
        let lookup = CaseLookup(claim, StoreLookup(.appStore, .impossible(.sandbox)))
        #expect(LookupWords.said(lookup).words.contains("has lookups of orders in production alone"))
    }

    @Test func `What happened before is told by how often, how and when last`() {
        func said(_ about: CasePast.Subject, _ what: CasePast.What, _ outcome: String, _ count: Int) -> String {
            PastWords.said(
                CasePast(
                    about: about,
                    what: what,
                    outcome: outcome,
                    count: count,
                    lastAt: Instant(microseconds: 20_000 * Self.day),
                    tickets: []
                )
            )
        }
        #expect(
            said(.claimant, .claimed, "refuse", 2)
                == "The claimant claimed a purchase 2 times before: refuse, last on 2024-10-04."
        )
        #expect(
            said(.purchase, .claimed, "expired", 1) == "Claimed once before: expired, last on 2024-10-04."
        )
        #expect(said(.owner, .given, "done", 1) == "The owner lost a purchase once to a transfer, last on 2024-10-04.")
        #expect(
            said(.purchase, .moved, "stopped", 1) == "Moved once by a transfer that was stopped, last on 2024-10-04."
        )
    }

    @Test func `16: which account was first is told with both times`() throws {
        let json = #"{"first_seen_at":1727999940000000,"claimed_at":1728000060000000}"#
        let times = try JSONDecoder().decode(CaseTimes.self, from: Data(json.utf8))
        #expect(
            PastWords.said(times, claimant: nil, owner: nil).contains(
                "An event named it as the owner's at 2024-10-03 23:59 UTC; the claimant showed it at 2024-10-04 00:01 UTC."
            )
        )
    }

    @Test func `What is frozen is told of whom it was counted for`() {
        #expect(PastWords.said(FrozenAssets()) == nil)
        #expect(
            PastWords.said(FrozenAssets(claimant: 3, owner: 0))
                == "Assets frozen for a lapse when this was collected: 3 of the claimant's, 0 of the owner's."
        )
    }
}
