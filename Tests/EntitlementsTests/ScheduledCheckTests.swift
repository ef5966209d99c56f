import Entitlements
import Testing

@Suite struct ScheduledCheckTests {
    static let cases: [(String, Observation, Duration?)] = [
        ("Onside, running", stored(.account, source: .onside, ends: day * 20), day),
        ("Onside, ends soon", stored(.account, source: .onside, ends: hour), hour + .seconds(60)),
        (
            "34: Onside, just over", stored(.account, "expired", access: false, source: .onside, ends: .seconds(-61)),
            .seconds(839)
        ),
        (
            "34: Onside, over since an hour",
            stored(.account, "expired", access: false, source: .onside, ends: .zero - hour), hour * 5
        ),
        ("Onside, long over", stored(.account, "expired", access: false, source: .onside, ends: .zero - day * 3), nil),
        ("App Store, running", stored(.account, ends: day * 20), day * 19),
        ("App Store, ends within a day", stored(.account, ends: hour * 20), hour * 20 + .seconds(60)),
        (
            "31: Google Play, paused",
            stored(.account, "paused", access: false, source: .googlePlay, ends: .zero - day * 20),
            day
        ),
        (
            "28: App Store, tries to charge again",
            stored(.account, "in_billing_retry", access: false, ends: .zero - day * 60),
            day
        ),
        (
            "Google Play, paused for good",
            stored(.account, "paused", access: false, source: .googlePlay, ends: .zero - day * 61), nil
        ),
        ("49: awaits its payment", stored(.account, "incomplete", access: false, source: .googlePlay), hour),
    ]

    @Test(arguments: cases)
    func `28, 31, 34, 49: stores that send no word are asked around the ends of what they sold`(
        name: String,
        item: Observation,
        expected: Duration?
    ) throws {
        let look = try #require(
            self.look(Reading(coverage: .full, askedAt: noon, observations: [item])),
            "\(name)"
        )
        #expect(look.at == expected.map { noon + $0 }, "\(name)")
    }

    @Test func `A pause's own end is a moment to look, until it is over`() {
        var item = stored(.account, "paused", access: false, source: .googlePlay, ends: .zero - day)
        item.changesAt = noon + hour
        let reading = { (item: Observation) in Reading(coverage: .full, askedAt: noon, observations: [item]) }
        #expect(look(reading(item))?.at == noon + hour + .seconds(60))
        item.changesAt = noon + day * 9
        #expect(look(reading(item))?.at == noon + day, "it may be ended early")
        item.changesAt = noon - .seconds(61)
        #expect(look(reading(item))?.at == noon + day)
        item.periodEndsAt = noon - day * 80
        #expect(look(reading(item))?.at == nil)
        item.changesAt = noon + day * 5
        #expect(look(reading(item))?.at == noon + day * 5 + .seconds(60), "pauses may last three months")
    }

    @Test func `RevenueCat's items are asked about around their ends like any other's`() {
        let reading = Reading(
            coverage: .full,
            askedAt: noon,
            observations: [
                item("active", access: true, ends: day * 3), item("expired", access: false, ends: .zero - day),
            ],
            covered: [.revenueCat]
        )
        #expect(look(reading)?.at == noon + day, "the second of them ended a day ago")
        let alone = reading.with { $0.observations.removeLast() }
        #expect(look(alone)?.at == noon + day * 2, "it is asked before the end whether it will be renewed")
        #expect(look(alone.with { $0.askedAt = noon + day * 2 })?.at == noon + day * 3 + .seconds(60))
        #expect(look(alone.with { $0.observations[0].periodStartsAt = noon - day })?.at == noon + day * 2)
        #expect(
            look(alone.with { $0.observations[0].periodStartsAt = noon + day * 2 })?.at == noon + day * 3 - hour * 6,
            "a quarter of a short period"
        )
    }

    @Test func `What a store says of its purchase stands before what RevenueCat says of it`() {
        var told = item("active", access: true, id: "lineage-2", ends: .seconds(-1))
        let own = stored(.account, ends: day * 20)
        var reading = Reading(coverage: .full, askedAt: noon, observations: [told, own])
        #expect(look(reading)?.at == noon + .seconds(59))
        told.identifiers = own.identifiers
        reading.observations[0] = told
        #expect(look(reading)?.at == noon + day * 19)
    }

    @Test func `Where not all was read, only a yes plans anything`() {
        let items = [item("active", access: true, ends: hour), item("active", access: true, ends: day * 9)]
        var reading = Reading(coverage: .partial, askedAt: noon, observations: items, covered: [.revenueCat, .onside])
        #expect(look(reading, outcome: .deferred) == nil)
        #expect(look(reading, grants: true)?.at == noon + hour + .seconds(60))
        #expect(look(reading, [.anonymous, .new], grants: true)?.at == noon + day * 8)
        reading.observations = []
        #expect(look(reading, grants: true)?.at == nil && look(reading, grants: true) != nil, "an older plan is over")
    }

    @Test func `A verdict may plan an earlier look than its items do, or none`() {
        let reading = Reading(coverage: .full, askedAt: noon, observations: [stored(.account, ends: day * 20)])
        #expect(look(reading, outcome: .deferred)?.at == noon + day)
        #expect(look(reading, outcome: .deferred) { $0.margin = day * 30 }?.at == noon + day * 19)
        #expect(look(reading, outcome: .alreadySubscriber)?.at == noon + day, "a restore does not forget the silence")
        #expect(look(reading, outcome: .alreadySubscriber, grants: true)?.at == noon + day * 19)
        for rule in Rule.allCases {
            let waits = look(reading, outcome: .deferred) { $0.rule = rule }?.at == noon + day
            #expect(waits == !ScheduledCheck.untimed.contains(rule), "\(rule)")
        }
        let shut = look(reading, outcome: .notEligible) { $0.background = day * 30 }
        #expect(shut?.awaitsEligibility == true && shut?.at == nil)
        #expect(look(reading)?.awaitsEligibility == false)
    }

    @Test func `Access that no store knows of is looked at when it ends`() {
        let reading = Reading(coverage: .full, askedAt: noon)
        #expect(look(reading) { $0.ownEnds = [noon + hour, noon + day] }?.at == noon + hour + .seconds(60))
        #expect(look(reading) { $0.ownEnds = [noon] } == ScheduledCheck(at: nil))
    }

    @Test func `Nobody stays unread for longer than that`() throws {
        let reading = Reading(coverage: .full, askedAt: noon)
        let quiet = try #require(look(reading) { $0.background = day * 30 })
        #expect(quiet.at == noon + day * 30 && quiet.isBackground)
        let long = reading.with { $0.observations = [stored(.account, ends: day * 300)] }
        #expect(look(long) { $0.background = day * 30 }?.at == noon + day * 30)
        let short = reading.with { $0.observations = [stored(.account, ends: day * 20)] }
        let soon = try #require(look(short) { $0.background = day * 30 })
        #expect(soon.at == noon + day * 19 && !soon.isBackground)
    }

    @Test func `Those of whom the same is known have places of their own, each always the same`() {
        let reading = Reading(coverage: .full, askedAt: noon)
        let looks = (1...1000).compactMap { key in
            look(reading) {
                $0.background = day * 40
                $0.jitter = Jitter(userKey: Int64(key))
            }?.at
        }
        let days = Dictionary(grouping: looks) { ($0 - noon).components.seconds / 86_400 }
        #expect(looks.count == 1000 && days.keys.sorted() == Array(30...39))
        #expect(days.values.allSatisfy { (60...140).contains($0.count) }, "\(days.mapValues(\.count))")
        #expect(Jitter(userKey: 7) == Jitter(userKey: 7) && Jitter(userKey: 7) != Jitter(userKey: 8))
    }

    private func look(
        _ reading: Reading,
        _ attributions: [Attribution]? = nil,
        outcome: Outcome = .unchanged,
        grants: Bool = false,
        _ tell: (inout ScheduledCheck.Knowledge) -> Void = { _ in }
    ) -> ScheduledCheck? {
        var known = ScheduledCheck.Knowledge()
        known.grants = grants
        tell(&known)
        let mine = attributions ?? reading.observations.map { _ in .new }
        return ScheduledCheck(reading, mine, outcome: outcome, known: known)
    }
}

extension Reading {
    fileprivate func with(_ change: (inout Reading) -> Void) -> Reading {
        var reading = self
        change(&reading)
        return reading
    }
}
