import Entitlements
import Storage

extension EvidenceCollector {
    /// What the ids led to that were named for a case.
    struct NamedPurchases: Sendable {
        struct Entry: Sendable {
            var claim: CaseClaim
            var lookups: [StoreLookup]
        }

        var entries: [Entry] = []
        /// Our numbers of what was found.
        var known: [PurchaseIdentifierKey: Int64] = [:]

        private func purchases(_ lookup: StoreLookup) -> Set<Int64> {
            guard case .found(let names) = lookup.answer else { return [] }
            return Set(names.compactMap { known[$0.key] })
        }

        /// The one purchase that all of them mean; `nil`: they mean none of ours, or several.
        var purchase: Int64? {
            let meant = Set(entries.flatMap { $0.lookups.flatMap(purchases) })
            return meant.count == 1 ? meant.first : nil
        }

        /// Whether no store knows one of them.
        var isDisproven: Bool { entries.contains { Entitlements.isDisproven($0.lookups) } }

        /// Why a store did not answer.
        var failure: ReadFailure? {
            for case .failed(let failure) in entries.flatMap(\.lookups).map(\.answer) { return failure }
            return nil
        }

        /// As it stands in the evidence.
        ///
        /// - Parameter subject: the purchase in question.
        /// - Returns: one line for each id and store.
        func evidence(about subject: Int64?) -> [CaseLookup] {
            entries.flatMap { entry in
                let lookups: [StoreLookup?] = entry.lookups.isEmpty ? [nil] : entry.lookups
                return lookups.map {
                    CaseLookup(entry.claim, $0, purchases: $0.map(purchases) ?? [], subject: subject)
                }
            }
        }
    }

    /// Looks up what was named for a case.
    ///
    /// A store that does not answer is put down as that; where people have agreed to what was found before, it is waited
    /// for, like everything else that a store does not say: its silence must not end what they agreed to.
    func lookUp(_ file: CaseRecords.File) async throws -> NamedPurchases {
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
                    return (place, try await stores.lookUp(request))
                }
            }
            var found = [[StoreLookup]](repeating: [], count: file.claims.count)
            for try await (place, lookups) in group { found[place] = lookups }
            return zip(file.claims, found).map { .init(claim: $0, lookups: $1) }
        }
        if let failure = named.failure, file.isAgreed { throw failure }
        named.known = try await records.purchases(
            named: named.entries.flatMap(\.lookups).flatMap { lookup -> [PurchaseIdentifier] in
                guard case .found(let names) = lookup.answer else { return [] }
                return names
            }
        )
        return named
    }
}
