import Entitlements
import Ledger
import StoreClients

extension StoresReader {
    /// The most purchases of one restore that RevenueCat is asked about.
    private static let mostConsulted = 20

    /// Asks RevenueCat for the owners of submitted purchases that have no owner in our records.
    ///
    /// A store knows no users of ours; without this the first to show a proof would become the owner of what RevenueCat
    /// holds for another user.
    func consult(
        _ parts: inout [StorePart],
        _ verified: [[String]],
        eventPurchases: [EventPurchase] = [],
        own: Set<PurchaseIdentifierKey>,
        _ context: ReadContext
    ) async throws(ReadFailure) {
        guard let revenueCat = sources.revenueCat else { return }
        let eventPurchases = Set(eventPurchases.map { ExactText($0.value) })
        let unclaimed = parts.indices.flatMap { part in
            parts[part].observations.indices.map { (part: part, place: $0) }
        }
        .filter { isUnclaimed(parts[$0.part].observations[$0.place], eventPurchases, own) }
        // Each costs several requests; a user who submits more gets an answer by the first of them, or none.
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
        if speaksAlone {
            let room = Self.mostConsulted - purchases.count
            purchases += verified.prefix(room)
            // What is not asked about may be the one that gives access.
            if verified.count > room, let index = parts.firstIndex(where: { $0.store == .revenueCat }) {
                parts[index].lack(ReadFailure(.incomplete))
            }
        }
        guard !purchases.isEmpty else { return }
        let answer = await revenueCat.owners(of: purchases, context)
        guard answer.failure == nil else {
            withhold(&parts, eventPurchases, own, answer.failure)
            return
        }
        for (place, witnesses) in zip(places, answer.witnesses) {
            for witness in witnesses.items { parts[place.part].observations[place.place].take(over: witness) }
        }
        for place in unclaimed.dropFirst(places.count) {
            parts[place.part].coverage = .partial
            parts[place.part].failure = parts[place.part].failure ?? ReadFailure(.incomplete)
        }
        // Whose a purchase is that RevenueCat lists and that can't be read, is not known: unknown is not unowned.
        let unread = zip(places, answer.witnesses).filter(\.1.hasUnreadable).map(\.0)
        for place in unread { parts[place.part].hasUnreadable = true }
        for place in (unread + unclaimed.dropFirst(places.count)).reversed() {
            parts[place.part].observations.remove(at: place.place)
        }
        guard let index = parts.firstIndex(where: { $0.store == .revenueCat }) else { return }
        if answer.witnesses.contains(where: \.hasUnreadable) { parts[index].hasUnreadable = true }
        guard speaksAlone else { return }
        var listed = Set(parts.flatMap { $0.observations.flatMap { $0.identifiers.map(\.key) } })
        for item in answer.witnesses.dropFirst(places.count).flatMap(\.items)
        where listed.isDisjoint(with: item.identifiers.map(\.key)) {
            listed.formUnion(item.identifiers.map(\.key))
            parts[index].observations.append(item)
        }
    }

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
                parts[part].lack(failure)
            }
            parts[part].observations = kept
        }
    }

    /// Takes out submitted purchases without a known owner: unknown is not unowned.
    private func withhold(
        _ parts: inout [StorePart],
        _ eventPurchases: Set<ExactText>,
        _ own: Set<PurchaseIdentifierKey>,
        _ failure: ReadFailure?
    ) {
        for index in parts.indices {
            let count = parts[index].observations.count
            parts[index].observations.removeAll { isUnclaimed($0, eventPurchases, own) }
            guard parts[index].observations.count < count || parts[index].store == .revenueCat else { continue }
            parts[index].lack(failure)
        }
    }

    /// Whether an item was shown, named by an event, or listed beside the user's own, whose owner RevenueCat may know, and
    /// that our records do not hold for the user.
    private func isUnclaimed(_ item: Observation, _ eventPurchases: Set<ExactText>, _ own: Set<PurchaseIdentifierKey>)
        -> Bool
    {
        guard
            item.isSubmitted || item.isListedWithoutOwner
                || item.identifiers.contains(where: { eventPurchases.contains(ExactText($0.value)) }),
            item.source == .appStore || item.source == .googlePlay,
            own.isDisjoint(with: item.identifiers.map(\.key))
        else { return false }
        switch item.owner {
        case .otherAccount: return true
        case .account, .unnamed: return item.accessState == .access || item.isImported
        case .askedUser, .anonymous, .otherUser, .heldElsewhere, .unattributable: return false
        }
    }

    /// Finds what reported ids lead to, once every store was read to the end.
    ///
    /// How long that takes depends on what is found, and the claimant must not learn whether there is anything: the stores
    /// are asked at once, each id's lookup takes `reportedIDTime` or a multiple of it, which no other id can move, and a bit of
    /// chance comes on top.
    func find(reported proofs: JobProofs, into reading: inout Reading, _ context: ReadContext) async {
        let ids = proofs.typed.map(ReportedID.typed) + proofs.values("onside_order_id").map(ReportedID.onside)
        guard !ids.isEmpty else { return }
        let found = await withTaskGroup(of: (Int, Found).self) { group in
            for (index, id) in ids.enumerated() {
                group.addTask {
                    let clock = ContinuousClock()
                    let began = clock.now
                    let found = await self.find(id, context)
                    let steps = max(1, ((clock.now - began) / self.reportedIDTime).rounded(.up))
                    try? await clock.sleep(until: began + self.reportedIDTime * steps, tolerance: .zero)
                    return (index, found)
                }
            }
            return await group.reduce(into: Array(repeating: Found(), count: ids.count)) { $0[$1.0] = $1.1 }
        }
        for found in found {
            if let claims = found.claims { reading.take(claims) }
        }
        for found in found {
            reading.take(found.items, for: context.userID)
            reading.claims.unreadable.formUnion(found.unreadable)
            reading.claims.failure = reading.claims.failure ?? found.failure
        }
        try? await Task.sleep(for: reportedIDTime * Double.random(in: 0..<0.25), tolerance: .zero)
    }

    private enum ReportedID: Sendable {
        case typed(TypedID)
        case onside(String)
    }

    /// What one id led to.
    private struct Found: Sendable {
        var claims: ClaimReading?
        var items: [Observation] = []
        var failure: ReadFailure?
        var unreadable: Set<Store> = []

        /// An id that can't be found takes nothing from what another one leads to.
        mutating func add(_ part: StorePart) {
            if part.hasUnreadable { unreadable.insert(part.store) }
            // What was not read to its end decides nothing.
            if let failure = part.failure { self.failure = self.failure ?? failure } else { items += part.observations }
        }
    }

    private func find(_ id: ReportedID, _ context: ReadContext) async -> Found {
        var found = Found()
        switch id {
        case .typed(let id):
            async let claims = sources.revenueCat?.find([id], context)
            async let appStore = findInAppStore(id, context)
            async let googlePlay = findInGooglePlay(id, context)
            found.claims = await claims
            for part in await [appStore, googlePlay].compactMap(\.self) { found.add(part) }
        case .onside(let id):
            guard let onside = sources.onside else { break }
            found.add(await onside.find(id, context))
        }
        do throws(ReadFailure) { try await naming.name(&found.items, for: context.userID) } catch {
            found.items = []
            found.failure = found.failure ?? error
        }
        return found
    }

    private func findInAppStore(_ id: TypedID, _ context: ReadContext) async -> StorePart? {
        guard id.store != Store.googlePlay.rawValue else { return nil }
        return await sources.appStore?.find(id, context) { [accounts = naming.accounts] account in
            accounts.matches(account, userID: context.userID)
        }
    }

    private func findInGooglePlay(_ id: TypedID, _ context: ReadContext) async -> StorePart? {
        guard id.store != Store.appStore.rawValue else { return nil }
        return await sources.googlePlay?.find(id, context)
    }
}

extension Reading {
    /// Takes over what typed ids led to at RevenueCat.
    fileprivate mutating func take(_ claims: ClaimReading) {
        self.claims.found += claims.found.filter { !self.claims.found.contains($0) }
        let known = Set(observations.flatMap { $0.identifiers.map(\.key) })
        observations += claims.own.filter { known.isDisjoint(with: $0.identifiers.map(\.key)) }
        self.claims.failure = self.claims.failure ?? claims.failure
        if claims.hasUnreadable { self.claims.unreadable.insert(.revenueCat) }
    }

    /// Takes over what typed ids led to in the stores: what an account of the app's names as the user's own counts, the
    /// rest is another user's, of which the claimant must not learn.
    fileprivate mutating func take(_ items: [Observation], for userID: String) {
        let known = Set(observations.flatMap { $0.identifiers.map(\.key) })
        // What RevenueCat holds for another user does not become the user's by the app's id alone.
        let held = Set(
            claims.found.filter { !$0.isAnonymous && !$0.customerID.isExactly(userID) }
                .compactMap { $0.storeID.map(ExactText.init) }
        )
        for item in items where known.isDisjoint(with: item.identifiers.map(\.key)) {
            switch item.owner {
            case .account, .askedUser, .unattributable:
                guard held.isDisjoint(with: item.identifiers.map { ExactText($0.value) }) else { continue }
                observations.append(item)
            case .otherAccount, .otherUser, .anonymous, .heldElsewhere, .unnamed:
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
    /// Whether it may give access to the user of its store account, as long as it has no owner.
    fileprivate var isListedWithoutOwner: Bool { storeAccount != nil && owner == .unnamed && !isFamilyShared }

    /// Takes over what RevenueCat says of the same purchase: what it calls it by, and whose it is.
    fileprivate mutating func take(over witness: Observation) {
        identifiers = Set(identifiers + witness.identifiers).sorted()
        // An owner is named: the app's id need not be resolved besides.
        if witness.owner == .askedUser, owner == .unnamed { accountID = nil }
        guard case .heldElsewhere = witness.owner else { return }
        // The user that the store names is a statement of its own, and is kept beside this one.
        if case .otherAccount = owner { return }
        owner = witness.owner
    }
}
