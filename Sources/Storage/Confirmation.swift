import Crypto
import Entitlements
import FoundationEssentials
import Jobs
import Postgres

/// Checks that come to what is on record already, in the reading and in the verdict.
///
/// They are counted in the user's row and stand in the jobs' history until retention; `decision` and `observation` get nothing.
enum Confirmation {
    /// A digest of what a decision and its reading would say in the records, except who asked, when, and what changed by it.
    ///
    /// - Parameters:
    ///   - effect: the verdict.
    ///   - rows: what its reading observed.
    ///   - isObserving: whether nothing is written but records.
    /// - Returns: equal digests for what is equal.
    static func fingerprint(of effect: Effect, rows: [ObservedRow], isObserving: Bool) -> UUID {
        var digest = Digest()
        digest.add(effect.verdict.rule.rawValue, waits(effect.verdict.outcome) ? effect.verdict.outcome.rawValue : nil)
        digest.add(restated(effect.verdict.explanation), (effect.newType ?? effect.user?.type)?.rawValue)
        // While only observing, the type is the host's, and the host may change it.
        digest.add(isObserving ? effect.user?.type.rawValue ?? "none" : nil, effect.coverage.rawValue)
        let items = rows.map { row -> [String?] in
            let item = row.observation
            return [
                row.coverage.rawValue, row.observedPurchase.map { "\($0)" }, settled(row.attribution)?.name,
                item?.source.rawValue, item?.kind.rawValue, item?.store, item?.environment, item?.status.raw,
                item?.givesAccess.map { "\($0)" }, item?.renewal, item?.productID, item?.ownership,
                item?.periodStartsAt.map { "\($0.microseconds)" }, item?.periodEndsAt.map { "\($0.microseconds)" },
                item?.entitlements.joined(separator: "\u{1f}"), item.map { "\($0.payloadHash)" },
            ]
        }
        for item in items.sorted(by: { "\($0)" < "\($1)" }) { digest.add(item) }
        return digest.uuid
    }

    /// Whether a verdict can be counted as a confirmation of the newest decision.
    ///
    /// A decision that is a year old is written again, so that no newer record rests on old ones.
    ///
    /// - Parameters:
    ///   - effect: the verdict, with its fingerprint.
    ///   - now: the database's clock.
    /// - Returns: whether it is counted, and not written.
    static func confirms(_ effect: Effect, now: Instant) -> Bool {
        guard let facts = effect.facts, facts.fingerprint != nil, facts.fingerprint == effect.fingerprint,
            facts.recordedAt.map({ now - $0 < longest }) ?? true
        else { return false }
        return effect.job.kind == .reconcile && effect.newType == nil && !effect.isBraked
            && effect.verdict.tickets.isEmpty && effect.assetsChanged == 0 && !effect.assetsPending
            && (effect.verdict.outcome == .unchanged || waits(effect.verdict.outcome) && !isHeld(effect.verdict.rule))
    }

    private static let longest = Duration.seconds(365 * 86_400)

    /// Numbers for confirmations, and the decisions that they confirm.
    ///
    /// The users' rows are locked, so that no newer decision comes between.
    ///
    /// - Parameters:
    ///   - effects: those that confirm; a user without decisions gets no number.
    ///   - connection: the transaction that writes them.
    /// - Returns: by user key.
    /// - Throws: `PostgresError`.
    static func numbers(
        of effects: [Effect],
        on connection: PostgresConnection
    ) async throws -> [Int64: JobEnd.Confirmation] {
        guard !effects.isEmpty else { return [:] }
        let rows = try await connection.query(
            """
            SELECT k.key, nextval('entitlement_sync.decision_id_seq'), d.id
              FROM unnest(\(effects.map(\.job.userKey)), \(effects.map { $0.facts?.decisionID })) AS k(key, known)
             CROSS JOIN LATERAL (
                   SELECT coalesce(k.known, (SELECT x.id FROM entitlement_sync.decision AS x
                                              WHERE x.user_key = k.key ORDER BY x.id DESC LIMIT 1)) AS id) AS d
             WHERE d.id IS NOT NULL
            """
        )
        var numbers: [Int64: JobEnd.Confirmation] = [:]
        for row in rows {
            let (key, id, decision) = try row.decode(Int64.self, Int64.self, Int64.self)
            numbers[key] = JobEnd.Confirmation(id: id, decision: decision)
        }
        return numbers
    }

    /// Outcomes that a decision has to share with the one that it confirms; of the others a check is `unchanged`.
    private static func waits(_ outcome: Outcome) -> Bool { outcome == .deferred || outcome == .notEligible }

    /// Rules that postpone a demotion because of a run, a switch or a limit: an hour later they may give another result.
    private static func isHeld(_ rule: Rule) -> Bool {
        switch rule {
        case .promoteOnly, .demotionsPaused, .brake, .proposed: true
        default: false
        }
    }

    /// The sentence of the same verdict on a user who has the type already.
    private static func restated(_ explanation: String) -> String {
        explanation.replacing("so the user became a subscriber", with: "so the user stays a subscriber")
    }

    /// An item that was new is the user's own from then on.
    private static func settled(_ attribution: Attribution?) -> Attribution? {
        attribution == .new ? .own(purchase: 0, merging: []) : attribution
    }

    private struct Digest {
        private var hash = SHA256()

        mutating func add(_ words: String?...) { add(words) }

        mutating func add(_ words: [String?]) {
            for word in words { hash.update(data: Array((word.map { "\($0.utf8.count):\($0)" } ?? "-").utf8)) }
        }

        var uuid: UUID {
            let bytes = Array(hash.finalize().prefix(16))
            return UUID(
                uuid: (
                    bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7], bytes[8], bytes[9],
                    bytes[10], bytes[11], bytes[12], bytes[13], bytes[14], bytes[15]
                )
            )
        }
    }
}
