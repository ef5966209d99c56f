import Foundation
import Reports
import Testing

/// What happened, and what a person does next.
@Suite struct HeadlineTests {
    private static let release =
        "entitlement-sync runs release 12 --hash 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

    /// A run of which no more is known than what the sentence says.
    private func run(_ state: String, isDryRun: Bool = false, _ change: (inout RunReport) -> Void = { _ in })
        -> Headline
    {
        var report = Sample.stopped
        (report.state, report.isDryRun) = (state, isDryRun)
        (report.users, report.total) = (1_000, 12_000)
        (report.promotions, report.demotions, report.announcedDemotions) = (30, 4, 0)
        (report.applied, report.held) = (34, 0)
        report.outcomes = ["unchanged": 966]
        report.predictedEnd = nil
        change(&report)
        return report.headline
    }

    @Test func `A run that stopped at the limit is released by a person`() {
        let nothing = run("stopped") { ($0.demotions, $0.applied, $0.held) = (8_000, 0, 8_000) }
        #expect(nothing.happened == "Nothing was demoted: 8,000 demotions exceed the limit of 100.")
        #expect(nothing.next == "Review the changes; if they are right:")
        #expect(nothing.command == Self.release)
        #expect(nothing.tone == .warning)
        let one = run("stopped") { ($0.demotions, $0.applied, $0.demotionLimit) = (1, 0, 0) }
        #expect(one.happened == "Nothing was demoted: 1 demotion exceeds the limit of 0.")
        #expect(Sample.stopped.headline.happened == "8,000 demotions are held: they exceed the limit of 100.")
        let some = run("stopped") { ($0.demotions, $0.applied, $0.held) = (8_000, 50, 10) }
        #expect(some.happened == "The run stopped: 8,000 demotions exceed the limit of 100.")
    }

    @Test(arguments: [nil, "", "x; rm -rf ~", "abc`id`", "ab\u{301}cd", "ab cd", "$(id)", "AB12\n", "@", "g"])
    func `What is no hash is not put into a command`(hash: String?) {
        let headline = run("stopped") { ($0.demotions, $0.hash) = (8_000, hash) }
        #expect(headline.command == "entitlement-sync runs release 12 --hash HASH")
    }

    @Test func `Digits in large letters are a hash`() {
        let headline = run("stopped") { ($0.demotions, $0.hash) = (8_000, "0123456789ABCDEFabcdef") }
        #expect(headline.command == "entitlement-sync runs release 12 --hash 0123456789ABCDEFabcdef")
    }

    @Test func `A run that stopped for another reason says how far it came`() {
        let held = run("stopped") { $0.held = 1 }
        #expect(
            held.happened
                == "The run stopped before its end, after 1,000 of 12,000 users: 34 changes were applied, 1 is held."
        )
        #expect(held.command == Self.release)
        #expect(run("stopped").command == nil)
        #expect(run("stopped").next == "See the errors, and ask for another run.")
    }

    @Test func `Announced demotions do not exceed a limit`() {
        let announced = run("stopped") { ($0.demotions, $0.announcedDemotions) = (101, 1) }
        #expect(announced.happened.hasPrefix("The run stopped before its end"))
    }

    @Test func `A run that is done says what changed, and what is left`() {
        #expect(run("done").happened == "The run is done: of 1,000 users, 30 became subscribers and 4 lost access.")
        #expect(run("done").next == "Nothing is left to do.")
        #expect(run("done").tone == .good)
        let unread = run("done") { $0.outcomes["store_unavailable"] = 22 }
        #expect(unread.next == "The stores did not answer for 22 users: see the errors, and ask for them again.")
        #expect(unread.tone == .warning)
        let held = run("done") { $0.held = 2 }
        #expect(held.next == "2 changes are held. Review them; if they are right:")
        #expect(held.command == Self.release)
        let quiet = run("done") { ($0.promotions, $0.demotions, $0.users) = (0, 0, 1) }
        #expect(quiet.happened == "The run is done: 1 user was read, and no user's type had to change.")
        #expect(run("done") { $0.users = 0 }.happened == "The run is done: there were no users to read.")
    }

    @Test func `A run that goes on says when it should end`() {
        #expect(run("reading").happened == "The run is reading: 1,000 of 12,000 users so far.")
        #expect(run("reading").next == "Wait: its end is not known yet.")
        #expect(run("reading") { $0.total = nil }.happened == "The run is reading: 1,000 users so far.")
        let applying = run("applying") { $0.predictedEnd = Sample.noon }
        #expect(
            applying.happened
                == "The run has read 1,000 of 12,000 users, and is applying what it decided: 34 changes so far."
        )
        #expect(applying.next == "Wait: it should end at 2026-11-23 12:00:00 UTC.")
        #expect(applying.tone == .plain)
    }

    @Test func `A dry run says what would be, and that nothing is`() {
        #expect(
            run("done", isDryRun: true).happened
                == "The dry run is done, and nothing was changed: of 1,000 users, 30 would become subscribers and 4 would "
                + "lose access."
        )
        #expect(run("done", isDryRun: true).next == "Review the changes; if they are right, have just these written:")
        let over = run("done", isDryRun: true) { $0.demotions = 8_000 }
        #expect(
            over.happened
                == "Nothing was changed, and the run would stop: 8,000 demotions would exceed the limit of 100."
        )
        #expect(over.command?.hasPrefix("entitlement-sync runs release ") == true)
        #expect(run("reading", isDryRun: true).happened.hasSuffix("so far, and changes nothing."))
        #expect(run("canceled", isDryRun: true).happened.hasSuffix("and nothing was changed."))
        #expect(run("stopped", isDryRun: true).happened.hasPrefix("The dry run stopped before its end"))
        // Only what was read to its end has a hash that somebody may confirm.
        for state in ["reading", "applying", "stopped", "canceled", "other"] {
            #expect(run(state, isDryRun: true) { $0.held = 9 }.command == nil)
        }
        #expect(
            Sample.empty.headline.happened
                == "The dry run is done: there were no users to read, and nothing was changed."
        )
    }

    @Test(arguments: [
        ("promote_only", "while workers run with MODE=promote_only."),
        ("demotions_paused", "until demotions are resumed (entitlement-sync resume demotions)."),
        ("brake", "until the limit of a day allows more demotions."),
    ])
    func `Who keeps access for another reason than the stores' word is left to do`(_ rule: String, _ ending: String) {
        let headline = run("done") { $0.rules = [rule: 43, "none": 900] }
        #expect(headline.next == "43 users would have lost access, and keep it " + ending)
        #expect(headline.tone == .plain && headline.command == nil)
        #expect(run("done") { $0.rules = [rule: 1] }.next == "1 user would have lost access, and keeps it " + ending)
        #expect(run("done") { $0.rules = [rule: 0, "none": 900] }.next == "Nothing is left to do.")
    }

    @Test func `A run that was canceled says what stays`() {
        #expect(
            run("canceled").happened
                == "The run was canceled after 1,000 of 12,000 users: 34 changes had been applied, and stay."
        )
        #expect(run("canceled") { $0.applied = 0 }.happened.hasSuffix("users: nothing was changed."))
        #expect(run("other").tone == .warning)
    }
}
