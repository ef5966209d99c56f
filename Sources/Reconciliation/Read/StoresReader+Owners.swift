import Entitlements
import Ledger
import StoreClients

extension StoresReader {
    /// Resolves the app's ids in items that neither our records nor RevenueCat name an owner of.
    ///
    /// An item whose owner a walk has yet to find is taken out: unknown is not unowned. The job waits, or ends where the walk does
    /// not.
    func resolveOwners(
        _ parts: inout [StorePart],
        _ known: [KnownPurchase],
        _ context: ReadContext
    ) async throws(ReadFailure) {
        guard naming.index != nil else { return }
        let own = Set(known.flatMap { $0.identifiers.map(\.key) })
        let named = Set(
            parts.filter { $0.store == .revenueCat }
                // A customer without a name of ours is no owner.
                .flatMap { $0.observations.filter { $0.owner != .anonymous }.flatMap { $0.identifiers.map(\.key) } }
        )
        func needsResolving(_ item: Observation) -> Bool {
            guard item.isUnnamed, let account = item.accountID, naming.accounts.root(in: account) != nil else {
                return false
            }
            let keys = item.identifiers.map(\.key)
            return own.isDisjoint(with: keys) && named.isDisjoint(with: keys)
        }
        let ids = parts.flatMap(\.observations).filter(needsResolving).compactMap(\.accountID)
        guard !ids.isEmpty else { return }
        let owners = try await naming.owners(of: ids.sortedExactly)
        for part in parts.indices {
            var kept: [Observation] = []
            for item in parts[part].observations {
                guard needsResolving(item), let account = item.accountID else {
                    kept.append(item)
                    continue
                }
                var item = item
                let failure: ReadFailure
                switch owners[ExactText(account)] {
                case .user(let id):
                    item.owner = id.isExactly(context.userID) ? .account : .otherAccount(id: id)
                    kept.append(item)
                    continue
                case .noUser:
                    kept.append(item)
                    continue
                case .unresolved: failure = ReadFailure(.ownerUnresolved, store: parts[part].store)
                case .pending, nil:
                    // The walk took longer than a read waits: the stores need not be asked again every second.
                    failure = ReadFailure(.ownerPending, retryAfter: .seconds(5), store: parts[part].store)
                }
                parts[part].withheld.append(item)
                parts[part].failure = parts[part].failure ?? failure
                if parts[part].coverage == .full { parts[part].coverage = .partial }
            }
            parts[part].observations = kept
        }
    }
}
