import Entitlements
import Testing

/// One law, checked on one made-up case.
struct Law: Sendable, CustomTestStringConvertible {
    var name: String
    /// What is wrong with the case; `nil` where the law holds.
    var violation: @Sendable (Scene, DecisionInput, Resolution) -> String?

    var testDescription: String { name }
}

@Suite struct DecideProperties {
    /// One walk for all laws: to make a case up takes longer than to judge it.
    private static let findings = Task {
        await Cases.walk(Cases.seeds) { seed in
            let scene = Scene.random(seed: seed)
            let input = scene.input
            let resolution = decide(input)
            var failures: [String: String] = [:]
            for law in laws { failures[law.name] = law.violation(scene, input, resolution) }
            return (failures, situations(scene, input, resolution))
        }
    }

    /// Each of the first failures names its seed, which runs it alone.
    @Test(arguments: laws)
    func `A law holds in every made-up case`(law: Law) async {
        let failures = await Self.findings.value.failures[law.name, default: []]
        #expect(failures.isEmpty, "\(failures.prefix(5).joined(separator: "\n"))")
    }

    /// Without this, a law could hold because its case never came up.
    @Test(.enabled(if: Cases.isWholeProfile))
    func `Every interesting input occurs among the made-up cases`() async {
        let seen = await Self.findings.value.situations
        func found(_ kind: String) -> Set<String> {
            Set(seen.keys.filter { $0.hasPrefix(kind + " ") }.map { String($0.dropFirst(kind.count + 1)) })
        }
        // A random user always exists, and the brake is applied after the verdict.
        #expect(Set(Rule.allCases.map(\.rawValue)).subtracting(found("rule")) == ["account_gone", "brake", "proposed"])
        #expect(Set(Outcome.allCases.map(\.rawValue)).subtracting(found("outcome")).isEmpty)
        let unsaid = Set(MessageKey.allCases.map(\.rawValue)).subtracting(found("key"))
        #expect(unsaid == ["account_gone", "restored.assets_pending", "still_checking"])
        #expect(found("attribution").count == 12, "\(found("attribution"))")
        let expected = [
            "retry overtaken", "retry unmapped", "retry unknownToStore", "retry malformed", "retry throttled",
            "retry readLag",
            "access in a partial reading",
            "access by a newer row", "announced demotion", "unannounced demotion", "restore where a reconcile demotes",
            "two tickets", "access beside a contradiction", "ineligible with access", "proof of another's",
            "access by a first proof", "unattributed order", "a store that is not asked",
            "witnesses contradict each other", "several items of one purchase",
        ]
        for name in expected { #expect(seen[name, default: 0] > 0, "never occurred: \(name)") }
    }

    private static func situations(_ scene: Scene, _ input: DecisionInput, _ resolution: Resolution) -> Set<String> {
        var names = Set(input.attributions.map { "attribution \($0.name)" })
        switch resolution {
        case .retry(let failure): names.insert("retry \(failure.code)")
        case .verdict(let verdict):
            names.formUnion(["rule \(verdict.rule.rawValue)", "outcome \(verdict.outcome.rawValue)"])
            if let key = verdict.messageKey { names.insert("key \(key.rawValue)") }
            names.formUnion(interesting(scene, input, verdict).filter(\.1).map(\.0))
        }
        return names
    }

    private static func interesting(_ scene: Scene, _ input: DecisionInput, _ verdict: Verdict) -> [(String, Bool)] {
        let access = Oracle.hasAccess(input)
        return [
            ("access in a partial reading", verdict.action == .grant && scene.coverage == .partial),
            ("access by a newer row", access && !Oracle.hasAccess(scene.with { $0.unlisted = [] }.input)),
            ("announced demotion", verdict.action == .demote && verdict.wasAnnounced),
            ("unannounced demotion", verdict.action == .demote && !verdict.wasAnnounced),
            ("restore where a reconcile demotes", verdict.messageKey == .nothingEnded),
            ("two tickets", verdict.tickets.count > 1),
            ("access beside a contradiction", access && input.attributions.contains { !$0.counts }),
            ("proof of another's", verdict.rule == .proofOfAnothers),
            ("access by a first proof", access && input.attributions.contains(.new)),
            ("unattributed order", verdict.tickets.contains { $0.kind == .onsideUnattributed }),
            ("a store that is not asked", verdict.rule == .storeNotAsked),
            (
                "witnesses contradict each other",
                input.attributions.contains { if case .contradicted = $0 { true } else { false } }
            ),
            ("ineligible with access", access && !scene.status.isEligible),
            (
                "several items of one purchase",
                access
                    && zip(scene.reads, scene.reads.dropFirst()).contains { $0.item.identifiers == $1.item.identifiers }
            ),
        ]
    }
}

/// Access by the laws' own words, written a second time and without the product's tables.
enum Oracle {
    /// Whether a grant, or an item of the user's own that nothing newer replaces, gives access.
    static func hasAccess(_ input: DecisionInput) -> Bool {
        // What its own store called over before stays so for a period that it covered, until the store is asked anew.
        func wasOverruled(_ item: Observation, _ row: Purchase?, _ input: DecisionInput) -> Bool {
            guard let row, row.source != .revenueCat, input.reading.covered.contains(row.source),
                input.reading.coverage != .full
            else { return false }
            let isOver =
                row.kind == .oneTime
                ? row.status.raw == "refunded"
                : row.givesAccess == false
                    && ["expired", "refunded", "paused", "in_billing_retry", "consumed"].contains(row.status.raw)
            if input.reading.failure == nil { return isOver }
            guard let end = item.periodEndsAt else { return isOver && row.periodEndsAt == nil }
            return isOver && row.periodEndsAt.map { end <= $0 } == true
        }
        func bytes(_ name: PurchaseIdentifier) -> [UInt8] {
            Array("\(name.store)/\(name.environment)/\(name.value)".utf8)
        }
        if input.grants == .active { return true }
        let asked = input.reading.askedAt
        var replaced: Set<Int64> = []
        // What its own store has just called over is over, whatever RevenueCat has heard.
        let over = zip(input.reading.observations, input.attributions).filter { item, attribution in
            let words = ["expired", "refunded", "paused", "in_billing_retry", "consumed"]
            return item.source != .revenueCat && attribution.counts && words.contains(item.status.raw)
                && (item.kind == .oneTime ? item.status.raw == "refunded" : item.givesAccess == false)
        }.map { Set($0.0.identifiers.map(bytes)) }
        for (index, item) in input.reading.observations.enumerated() {
            var held: [Purchase] = []
            switch input.attributions[index] {
            case .overtaken, .disagree, .collision, .otherUser, .anonymous, .foreign, .contradicted, .unowned,
                .unattributed:
                continue
            case .new, .sameAccount: break
            case .own(let id, let merged):
                held = input.ledger.filter { $0.id == id || merged.contains($0.id) }
                replaced.formUnion([id] + merged)
                if let row = input.rows[index], !held.contains(row) { held.append(row) }
            case .followed(let id, _, let merged): replaced.formUnion([id] + merged)
            }
            let keys = item.identifiers.map(bytes)
            let isOverruled =
                item.source == .revenueCat
                && (over.contains { !$0.isDisjoint(with: keys) }
                    || wasOverruled(item, input.rows[index], input))
            if isOverruled, (held.map(\.observedAt).max() ?? asked) <= asked { continue }
            if let newest = held.map(\.observedAt).max(), newest > asked {
                if held.contains(where: { $0.observedAt == newest && gives($0, input) }) { return true }
            } else if gives(
                item.kind,
                item.status.raw,
                item.givesAccess,
                item.entitlements,
                item.environment,
                input
            ) {
                return true
            }
        }
        return input.ledger.contains { !replaced.contains($0.id) && $0.observedAt > asked && gives($0, input) }
    }

    private static func gives(_ row: Purchase, _ input: DecisionInput) -> Bool {
        gives(row.kind, row.status.raw, row.givesAccess, row.entitlements, row.environment, input)
    }

    private static func gives(
        _ kind: Observation.Kind,
        _ status: String,
        _ access: Bool?,
        _ entitlements: [String],
        _ environment: String,
        _ input: DecisionInput
    ) -> Bool {
        let says = kind == .subscription ? access == true : status == "owned"
        return says && entitlements.contains("premium")
            && (environment == "production" || input.sandbox == .allowed)
    }
}
