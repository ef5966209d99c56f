import Entitlements
import Postgres
import Reconciliation

extension EvidenceCollector {
    /// What the ids led to that were named for a case.
    struct NamedPurchases: Sendable {
        struct Entry: Sendable {
            var claim: CaseClaim
            var lookups: [StoreLookup]

            /// Why stores did not answer.
            var failures: [ReadFailure] {
                lookups.compactMap { if case .failed(let failure) = $0.answer { failure } else { nil } }
            }
        }

        var entries: [Entry] = []
        /// Our numbers of what was found.
        var known: [PurchaseIdentifierKey: Int64] = [:]

        private func purchases(_ lookup: StoreLookup) -> Set<Int64> {
            guard case .found(let names) = lookup.answer else { return [] }
            return Set(names.compactMap { known[$0.key] })
        }

        /// The one purchase that is meant: by the last id that an agent gave, or else by all that the claimant sent; `nil`: none of
        /// ours, several, or a store is silent, which decides nothing.
        var purchase: Int64? {
            let telling = entries.first(where: \.claim.isByAgent).map { [$0] } ?? entries
            guard telling.allSatisfy(\.failures.isEmpty) else { return nil }
            let meant = Set(telling.flatMap { $0.lookups.flatMap(purchases) })
            return meant.count == 1 ? meant.first : nil
        }

        /// Whether no store knows one that the claimant sent.
        var isDisproven: Bool { entries.contains { $0.claim.isByClaimant && Entitlements.isDisproven($0.lookups) } }

        /// Why a store did not answer; first of all what only an operator can mend.
        var failure: ReadFailure? {
            let failures = entries.flatMap(\.failures)
            return failures.first { $0.treatment == .park } ?? failures.first
        }

        /// One line for each id and store, the newest id first; `subject`: the purchase in question.
        func evidence(about subject: Int64?) -> [CaseLookup] {
            entries.flatMap { entry in
                let lookups: [StoreLookup?] = entry.lookups.isEmpty ? [nil] : entry.lookups
                return lookups.map {
                    CaseLookup(entry.claim, $0, purchases: $0.map(purchases) ?? [], subject: subject)
                }
            }
        }
    }

    /// Makes lookups of the ids that were reported for a ticket.
    ///
    /// A store that does not answer is put down as that, and not waited for: what it said before of an id still counts.
    func lookup(_ file: CaseRecords.File) async throws -> NamedPurchases {
        var named = NamedPurchases()
        named.entries = try await withThrowingTaskGroup(of: (Int, [StoreLookup]).self) { group in
            for (place, claim) in file.claims.enumerated() {
                group.addTask {
                    let request = StoresReader.LookupRequest(
                        claim: claim,
                        mayBeSandbox: file.mayBeSandbox,
                        askedAt: file.readAt,
                        lane: file.lane
                    )
                    return (place, try await stores.lookup(request))
                }
            }
            var found = [[StoreLookup]](repeating: [], count: file.claims.count)
            for try await (place, lookups) in group { found[place] = lookups }
            return zip(file.claims, found).map { .init(claim: $0, lookups: $1) }
        }
        named.known = try await records.purchases(
            named: named.entries.flatMap(\.lookups).flatMap { lookup -> [PurchaseIdentifier] in
                guard case .found(let names) = lookup.answer else { return [] }
                return names
            }
        )
        return named
    }

    /// Lets the case be about what the ids led to, where nothing else says which purchase is meant.
    ///
    /// - Returns: whether it is about another purchase now.
    /// - Throws: `ReadFailure`, where another process works on a ticket of the claimant's; `PostgresError`.
    func name(_ file: CaseRecords.File, by named: NamedPurchases) async throws -> Bool {
        guard let purchase = named.purchase, purchase != file.purchase?.id, file.purchase == nil || file.isNamedByID
        else {
            return false
        }
        return try await unlessLocked { try await records.name(file.ticketID, as: purchase) }
    }

    /// A process at work on a ticket of the claimant's is not waited for.
    func unlessLocked<Result>(_ body: () async throws -> Result) async throws -> Result {
        do { return try await body() } catch let error as PostgresError
            where error.sqlState == SQLState.lockNotAvailable
        {
            throw ReadFailure(.locked, retryAfter: .seconds(3))
        }
    }

    /// When a source is asked again that did not answer: the later, the longer it has been silent.
    static func askAgain(after failure: ReadFailure, since: Instant, at now: Instant) -> Duration {
        let silence = Duration.microseconds(max(now.microseconds - since.microseconds, 0))
        let wait = failure.treatment == .park ? patience : max(silence, failure.retryAfter ?? .zero, pause)
        return min(wait, patience)
    }

    /// How long a source that did not answer is left alone at first.
    private static let pause = Duration.seconds(15)
    /// How long a store that did not say what an id leads to is left alone.
    static let patience = Duration.seconds(3600)
}
