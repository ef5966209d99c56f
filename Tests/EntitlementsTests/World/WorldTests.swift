import Entitlements
import Testing

/// Made-up histories of the domain alone: many moves, readings in any order, and the laws after each.
@Suite(.serialized) struct WorldTests {
    /// What has to come up in every whole profile.
    private static let interesting = [
        "attribution new", "attribution own", "attribution owner_followed_revenuecat", "attribution overtaken",
        "attribution sources_disagree", "attribution identity_collision", "contest ended", "followed owner",
        "merge of rows of one owner", "overtaken by a newer reading of the user", "read again",
        "announced demotion", "brake held", "held by a run", "held from a reading beside the run", "run stopped",
        "run released", "run canceled", "run within its limit", "run done",
        "erased while a run held it", "erased in a run", "erased", "a confirmed demotion passes the brake",
        "grant added", "grant expired", "grant revoked", "grant changed", "grant begun again", "transferred",
        "a store echoes what was transferred",
        "rule moved_away", "rule grant_access", "rule store_access", "rule store_ended", "rule absence_confirmed",
        "rule first_absence", "rule absence_margin", "rule soft_window", "rule unknown_status", "rule unexplained",
        "rule not_eligible", "rule account_gone", "rule proposed", "rule brake", "readings in two orders",
        "two orders, one state", "settled",
        "a store that knows no customer any more",
        "several items on one record", "a purchase known by its notification alone", "a comped user is read",
        "the clock jumped ahead", "read at a time that has not come", "rows of a time that has not come",
        "a proof with another user's account id", "attribution foreign", "attribution unowned",
        "attribution contradicted",
    ]

    @Test func `No law breaks in any made-up history of the domain`() async {
        let started = ContinuousClock.now
        let seeds = Cases.histories
        let findings = await Cases.walk(seeds) { seed in
            var history = WorldHistory(seed: seed)
            do throws(Broken) {
                try history.perform()
                return ([:], history.world.situations)
            } catch {
                var told = WorldHistory(seed: seed, isTraced: true)
                try? told.perform()
                let text = (told.trace + [error.law]).joined(separator: "\n  ")
                return ([error.law: text], history.world.situations)
            }
        }
        let failures = findings.failures
        let first = failures.values.joined().prefix(5).joined(separator: "\n")
        #expect(failures.isEmpty, "\(failures.mapValues(\.count))\n\(first)")
        print("histories of the domain: \(seeds.count) in \(ContinuousClock.now - started)")
        guard Cases.isWholeProfile else { return }
        for name in Self.interesting { #expect(findings.situations[name, default: 0] > 0, "never occurred: \(name)") }
    }
}
