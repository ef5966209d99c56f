import Entitlements
import Foundation
@testable import SupportDesk
import Testing

/// Which reply fits a user.
@Suite struct ReplyRuleTests {
    /// Every user that replies can tell apart.
    private static let users: [UserStanding] = {
        var users: [UserStanding] = []
        let cases: [UserStanding.Case?] =
            [nil]
            + TicketState.allCases.flatMap { state in
                ([nil] + CaseVerdict.allCases).map {
                    UserStanding.Case(reference: "T-7K3Q-92", state: state.rawValue, verdict: $0?.rawValue)
                }
            }
        for account in UserStanding.Account.allCases {
            for item in cases {
                for bits in 0..<128 {
                    func has(_ bit: Int) -> Bool { bits & (1 << bit) != 0 }
                    users.append(
                        UserStanding(
                            account: account,
                            subscriber: has(0),
                            until: has(1) ? "2026-12-01" : nil,
                            case: item,
                            ended: has(6) ? "2026-10-01" : nil,
                            moved: has(2),
                            waiting: has(3),
                            failed: has(4),
                            reference: has(5) ? "R-7K3Q-92" : nil
                        )
                    )
                }
            }
        }
        return users
    }()

    @Test func `Every user fits exactly one row, and every row fits somebody`() {
        var used: Set<Int> = []
        for user in Self.users {
            let rows = ReplyRule.rules.indices.filter { ReplyRule.rules[$0].fits(user) }
            #expect(rows.count == 1, "\(user)")
            used.formUnion(rows)
        }
        #expect(used.count == ReplyRule.rules.count)
    }

    @Test func `Every user is written to in every language, without holes and in the same sense`() {
        for user in Self.users {
            let english = user.reply(in: "en")
            #expect(Replies.Reason(rawValue: english.reason) != nil, "\(user)")
            for language in Replies.languages {
                let reply = user.reply(in: language)
                #expect(!reply.text.isEmpty && !reply.text.contains("{"), "\(user) in \(language)")
                #expect(reply.reason == english.reason && reply.language == language, "\(user)")
            }
        }
        #expect(UserStanding(subscriber: true).reply(in: "ja") == UserStanding(subscriber: true).reply(in: "en"))
    }

    @Test(
        arguments: [
            (UserStanding(subscriber: true, until: "2026-12-01"), "active_until"),
            (UserStanding(subscriber: true), "active"),
            // A case that is open, or lost, takes nothing from whoever has access.
            (UserStanding(subscriber: true, case: .init(reference: "T-1", state: "refused")), "active"),
            (UserStanding(case: .init(reference: "T-1", state: "new"), waiting: true), "case_open"),
            (UserStanding(case: .init(reference: "T-1", state: "refused", verdict: "store_refund")), "store_refund"),
            (UserStanding(case: .init(reference: "T-1", state: "some_day")), "case_open"),
            // Access until a day that is over.
            (UserStanding(case: .init(reference: "T-1", state: "refused", verdict: "grant_until_end")), "refuse"),
            (UserStanding(moved: true, waiting: true, reference: "R-1"), "owner_moved"),
            (UserStanding(waiting: true, failed: true, reference: "R-1"), "still_checking"),
            (UserStanding(until: "2026-12-01", failed: true, reference: "R-1"), "still_checking"),
            (UserStanding(failed: true, reference: "R-1"), "store_unavailable"),
            (UserStanding(ended: "2026-10-01", waiting: true, reference: "R-1"), "still_checking"),
            // What was found once is not denied later.
            (UserStanding(ended: "2026-10-01", reference: "R-1"), "ended"),
            (UserStanding(reference: "R-1"), "nothing_found"), (UserStanding(), "not_asked"),
            (UserStanding(account: .barred, subscriber: true, reference: "R-1"), "not_eligible"),
            (UserStanding(account: .gone, case: .init(reference: "T-1", state: "new")), "not_eligible"),
            // Nobody looked yet, or it is long forgotten: a restore would come to nothing.
            (UserStanding(account: .barred), "not_eligible"),
        ]
    )
    func `What a user is told`(user: UserStanding, reason: String) {
        #expect(user.reply(in: "en").reason == reason)
    }

    @Test func `A case is named by its own reference, and a job by its`() {
        let user = UserStanding(case: .init(reference: "T-1", state: "new"), reference: "R-1")
        #expect(user.reply(in: "en").text.contains("T-1") && !user.reply(in: "en").text.contains("R-1"))
        #expect(UserStanding(reference: "R-1").reply(in: "en").text.contains("R-1"))
    }
}
