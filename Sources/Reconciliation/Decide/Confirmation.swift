import Crypto
import Entitlements
import FoundationEssentials
import Postgres
import Queue

/// Checks that come to what is on record already, in the reading and in the verdict.
///
/// They are counted in the user's row and stand in the jobs' history until retention; `decision` and `observation` get nothing.
enum Confirmation {
    /// A digest of what a decision and its reading would say in the records, except who asked, when, and what changed by it.
    ///
    /// `isObserving`: whether nothing is written but records.
    static func fingerprint(of effect: DecidedJob, rows: [ObservedRow], isObserving: Bool) -> UUID {
        var words = Words()
        words.add(effect.verdict.rule.rawValue)
        words.add(waits(effect.verdict.outcome) ? effect.verdict.outcome.rawValue : nil)
        words.add(restated: effect.verdict.explanation)
        words.add((effect.newType ?? effect.user?.type)?.rawValue)
        // While only observing, the type is the host's, and the host may change it.
        words.add(isObserving ? effect.user?.type.rawValue ?? "none" : nil)
        words.add(effect.coverage.rawValue)
        // The order of a reading's items means nothing.
        let items = rows.map(item)
        words.add(Int64(items.count))
        for item in items.count > 1 ? items.sorted(by: { $0.lexicographicallyPrecedes($1) }) : items {
            words.bytes += item
        }
        return words.digest
    }

    private static func item(_ row: ObservedRow) -> [UInt8] {
        var words = Words()
        words.add(row.coverage.rawValue)
        words.add(row.observedPurchase)
        words.add(settled(row.attribution)?.name)
        words.add(row.observation == nil ? 0 : 1)
        guard let item = row.observation else { return words.bytes }
        for word in [
            item.source.rawValue, item.kind.rawValue, item.store, item.environment, item.status.raw, item.ownership,
            item.renewal, item.productID,
        ] { words.add(word) }
        words.add(item.givesAccess.map { $0 ? 1 : 0 })
        words.add(item.periodStartsAt?.microseconds)
        words.add(item.periodEndsAt?.microseconds)
        words.add(Int64(item.entitlements.count))
        for entitlement in item.entitlements { words.add(entitlement) }
        words.add(Int64(item.payloadHash.count))
        words.bytes += item.payloadHash
        return words.bytes
    }

    /// Whether a verdict can be counted as a confirmation of the newest decision.
    ///
    /// An old decision is written again, so that no record rests on one that is over a year old.
    static func confirms(_ effect: DecidedJob) -> Bool {
        guard let facts = effect.facts, facts.fingerprint != nil, facts.fingerprint == effect.fingerprint,
            !facts.isDecisionOld
        else { return false }
        return effect.job.kind == .reconcile && effect.newType == nil && !effect.countsTowardBrake
            && effect.entitlements == nil && effect.verdict.tickets.isEmpty && effect.assetsChanged == 0
            && !effect.assetsPending
            && (effect.verdict.outcome == .unchanged
                || waits(effect.verdict.outcome) && !effect.verdict.rule.holdsDemotion)
    }

    /// Numbers for confirmations, and the decisions that they confirm.
    ///
    /// The users' rows are locked, so that no newer decision comes between. A user without decisions gets no number.
    static func numbers(
        of effects: [DecidedJob],
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

    /// An item that was new is the user's own from then on.
    private static func settled(_ attribution: Attribution?) -> Attribution? {
        attribution == .new ? .own(purchase: 0, merging: []) : attribution
    }

    /// Words one after the other, each with its length before it.
    private struct Words {
        var bytes: [UInt8] = []

        mutating func add(_ word: String?) {
            guard let word else { return bytes.append(0) }
            add(Int64(word.utf8.count))
            bytes += word.utf8
        }

        mutating func add(_ number: Int64?) {
            guard let number else { return bytes.append(0) }
            bytes.append(1)
            withUnsafeBytes(of: number.littleEndian) { bytes += $0 }
        }

        /// Adds the sentence that the same verdict has for a user who has the type already.
        mutating func add(restated sentence: String) {
            var text = Array(sentence.utf8)
            let became = Array("became a subscriber".utf8)
            if let place = text.indices.first(where: { text[$0] == became[0] && text[$0...].starts(with: became) }) {
                text.replaceSubrange(place..<(place + became.count), with: "stays a subscriber".utf8)
            }
            add(Int64(text.count))
            bytes += text
        }

        var digest: UUID {
            var uuid = UUID().uuid
            let digest = SHA256.hash(data: bytes)
            withUnsafeMutableBytes(of: &uuid) { target in
                for (place, byte) in zip(target.indices, digest) { target[place] = byte }
            }
            return UUID(uuid: uuid)
        }
    }
}
