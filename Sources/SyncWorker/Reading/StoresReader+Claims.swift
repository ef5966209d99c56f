import Entitlements
import Storage
import StoreClients

extension StoresReader {
    /// The most purchases of one restore that RevenueCat is asked about.
    private static let mostConsulted = 20

    /// Asks RevenueCat whose the purchases are that the user has shown and that our records hold for nobody.
    ///
    /// A store knows no users of ours; without this the first to show a proof would become the owner of what RevenueCat
    /// holds for somebody else.
    func consult(
        _ parts: inout [StorePart],
        _ verified: [[String]],
        _ known: [KnownPurchase],
        _ context: ReadContext
    ) async throws(ReadFailure) {
        guard let revenueCat = sources.revenueCat else { return }
        let own = Set(known.flatMap { $0.identifiers.map(\.key) })
        let unclaimed = parts.indices.flatMap { part in
            parts[part].observations.indices.map { (part: part, place: $0) }
        }
        .filter { isUnclaimed(parts[$0.part].observations[$0.place], own) }
        // Each costs several requests; whoever shows more gets an answer by the first of them, or none.
        let places = Array(unclaimed.prefix(Self.mostConsulted))
        var purchases = places.map { place in
            parts[place.part].observations[place.place].identifiers
                .filter { $0.kind != "purchase_token" }.map(\.value)
        }
        // Without credentials of its own the App Store speaks through RevenueCat alone.
        let hasAccess = parts.contains {
            $0.store == .revenueCat && $0.observations.contains(where: context.givesAccess)
        }
        let speaksAlone = sources.appStore?.canAsk != true && !hasAccess
        if speaksAlone { purchases += verified.prefix(Self.mostConsulted - purchases.count) }
        guard !purchases.isEmpty else { return }
        let answer = await revenueCat.owners(of: purchases, context)
        guard answer.failure == nil else {
            withhold(&parts, own, answer.failure)
            return
        }
        for (place, witnesses) in zip(places, answer.items) {
            for witness in witnesses { parts[place.part].observations[place.place].hear(witness) }
        }
        for place in unclaimed.dropFirst(places.count).reversed() {
            parts[place.part].observations.remove(at: place.place)
            parts[place.part].coverage = .partial
            parts[place.part].failure = parts[place.part].failure ?? ReadFailure(.incomplete)
        }
        guard speaksAlone, let index = parts.firstIndex(where: { $0.store == .revenueCat }) else { return }
        var listed = Set(parts.flatMap { $0.observations.flatMap { $0.identifiers.map(\.key) } })
        for item in answer.items.dropFirst(places.count).joined()
        where listed.isDisjoint(with: item.identifiers.map(\.key)) {
            listed.formUnion(item.identifiers.map(\.key))
            parts[index].observations.append(item)
        }
    }

    /// Takes out what was shown and nobody is known to own: unknown is not unowned.
    private func withhold(_ parts: inout [StorePart], _ own: Set<PurchaseIdentifierKey>, _ failure: ReadFailure?) {
        for index in parts.indices {
            let count = parts[index].observations.count
            parts[index].observations.removeAll { isUnclaimed($0, own) }
            guard parts[index].observations.count < count || parts[index].store == .revenueCat else { continue }
            parts[index].coverage = parts[index].coverage == .none ? .none : .partial
            parts[index].failure = parts[index].failure ?? failure
        }
    }

    /// Whether an item was shown whose owner RevenueCat may know, and that our records do not hold for the user.
    private func isUnclaimed(_ item: Observation, _ own: Set<PurchaseIdentifierKey>) -> Bool {
        guard item.isShown, item.source == .appStore || item.source == .googlePlay,
            own.isDisjoint(with: item.identifiers.map(\.key))
        else { return false }
        switch item.owner {
        case .otherAccount: return true
        case .account, .nobody:
            return standing(of: item.kind, status: item.status, givesAccess: item.givesAccess) == .access
        case .askedUser, .anonymous, .otherUser, .heldElsewhere, .unattributable: return false
        }
    }

    /// Looks up what was merely typed, once every store was read to the end.
    func look(up proofs: JobProofs, into reading: inout Reading, _ context: ReadContext) async {
        let typed = proofs.typed
        if let revenueCat = sources.revenueCat, !typed.isEmpty {
            reading.take(await revenueCat.find(typed, context))
        }
        var items: [Observation] = []
        // An id that can't be looked up takes nothing from what another one leads to.
        func take(_ find: () async throws(ReadFailure) -> [Observation]) async {
            do throws(ReadFailure) { items += try await find() } catch {
                reading.claims.failure = reading.claims.failure ?? error
            }
        }
        for id in typed {
            if id.store != Store.googlePlay.rawValue, let appStore = sources.appStore {
                await take { () async throws(ReadFailure) in
                    try await appStore.find(id, context) { account in
                        naming.accounts.matches(account, userID: context.userID)
                    }
                }
            }
            if id.store != Store.appStore.rawValue, let googlePlay = sources.googlePlay {
                await take { () async throws(ReadFailure) in try await googlePlay.find(id, context) }
            }
        }
        if let onside = sources.onside {
            for id in proofs.values("onside_order_id") {
                await take { () async throws(ReadFailure) in try await onside.find(id, context) }
            }
        }
        do throws(ReadFailure) {
            try await naming.name(&items, for: context.userID)
            reading.take(items, for: context.userID)
        } catch {
            reading.claims.failure = reading.claims.failure ?? error
        }
    }
}

extension Reading {
    /// Takes over what typed ids led to at RevenueCat.
    fileprivate mutating func take(_ claims: ClaimReading) {
        self.claims.found = claims.found
        let known = Set(observations.flatMap { $0.identifiers.map(\.key) })
        observations += claims.own.filter { known.isDisjoint(with: $0.identifiers.map(\.key)) }
        self.claims.failure = claims.failure
    }

    /// Takes over what typed ids led to in the stores: what an account of the app's names as the user's own counts, the
    /// rest is somebody's whom the claimant must not learn of.
    fileprivate mutating func take(_ items: [Observation], for userID: String) {
        let known = Set(observations.flatMap { $0.identifiers.map(\.key) })
        // What RevenueCat holds for somebody else does not become the user's by the app's id alone.
        let held = Set(
            claims.found.filter { !$0.isAnonymous && $0.customerID != userID }.compactMap(\.storeID)
        )
        for item in items where known.isDisjoint(with: item.identifiers.map(\.key)) {
            switch item.owner {
            case .account, .askedUser, .unattributable:
                guard held.isDisjoint(with: item.identifiers.map(\.value)) else { continue }
                observations.append(item)
            case .otherAccount, .otherUser, .anonymous, .heldElsewhere, .nobody:
                guard let identifier = item.identifiers.first else { continue }
                let owner: String = if case .otherAccount(let id) = item.owner { id } else { "" }
                claims.found.append(
                    FoundPurchase(identifier: identifier, store: item.store, customerID: owner, storeID: item.spokenID)
                )
            }
        }
    }
}

extension Observation {
    /// Takes over what RevenueCat says of the same purchase: what it calls it by, and whose it is.
    fileprivate mutating func hear(_ witness: Observation) {
        identifiers = Set(identifiers + witness.identifiers).sorted()
        guard case .heldElsewhere = witness.owner else { return }
        // Whom the store names is another witness's word, and is kept beside this one.
        if case .otherAccount = owner { return }
        owner = witness.owner
    }
}
