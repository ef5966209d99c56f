/// Decides whose each item of a reading is, in the light of all of them.
///
/// `holders`: for each item the ledger rows under its identifiers, without repeats.
package func attribute(
    _ observations: [Observation],
    holders: [[Purchase]],
    userKey: Int64,
    eligible: Bool,
    askedAt: Instant
) -> [Attribution] {
    var reading = AttributedReading(
        observations: observations,
        holders: holders,
        userKey: userKey,
        eligible: eligible,
        askedAt: askedAt,
        rows: holders
    )
    reading.attributions = observations.indices.map { reading.judge($0, by: holders[$0]) }
    let purchases = reading.itemsByPurchase
    for items in purchases {
        reading.join(items)
        reading.judgeNew(items)
    }
    reading.contradict()
    for items in purchases { reading.keepDisputed(items) }
    reading.addSameAccountLines()
    return reading.attributions
}

/// The items of one reading, and whose each is so far.
struct AttributedReading {
    let observations: [Observation]
    /// The ledger rows under the identifiers of each item.
    let holders: [[Purchase]]
    let userKey: Int64
    let eligible: Bool
    let askedAt: Instant
    /// The rows by which each item is judged: its own, and those that it has through other items of its purchase.
    var rows: [[Purchase]]
    var attributions: [Attribution] = []

    func judge(_ place: Int, by rows: [Purchase]) -> Attribution {
        attribute(observations[place], holders: rows, userKey: userKey, eligible: eligible, askedAt: askedAt)
    }

    /// The places of the items of each purchase of which there are several: items that share an identifier or a row, directly
    /// or through others.
    var itemsByPurchase: [[Int]] {
        guard observations.count > 1 else { return [] }
        var leaders = Array(observations.indices)
        func leader(_ place: Int) -> Int {
            var place = place
            while leaders[place] != place {
                leaders[place] = leaders[leaders[place]]
                place = leaders[place]
            }
            return place
        }
        var names: [PurchaseIdentifierKey: Int] = [:]
        var ids: [Int64: Int] = [:]
        for place in observations.indices {
            let others =
                observations[place].identifiers.compactMap { names.updateValue(place, forKey: $0.key) }
                + holders[place].compactMap { ids.updateValue(place, forKey: $0.id) }
            for other in others { leaders[leader(other)] = leader(place) }
        }
        return Dictionary(grouping: observations.indices, by: leader).values.filter { $0.count > 1 }
    }

    /// Gives items of one purchase the rows of each other.
    ///
    /// The user's own items share their rows, and items that are new to the ledger get them too. If none is the user's, items
    /// that RevenueCat moves from one single owner share those rows, and so do new items for which RevenueCat names the user.
    mutating func join(_ items: [Int]) {
        let own = items.filter { place in
            guard case .own = attributions[place] else { return false }
            return !rows[place].contains { contradicts($0, userKey) }
        }
        guard own.isEmpty else { return share(own, with: items.filter { attributions[$0].hasNoOther }) }
        let followed = items.filter { attributions[$0].isFollowed }
        guard Set(followed.flatMap { rows[$0] }.compactMap(\.ownerKey)).count == 1 else { return }
        let new = items.filter {
            attributions[$0] == .new && observations[$0].owner == .askedUser && !observations[$0].isFamilyShared
        }
        share(followed, with: new)
    }

    private mutating func share(_ sources: [Int], with others: [Int]) {
        let all = Set(sources.flatMap { rows[$0] })
        for place in sources + others where rows[place].count < all.count {
            rows[place] = Array(all)
            attributions[place] = judge(place, by: rows[place])
        }
    }

    /// Lets lines that no user owns give access where their store lists them for the account of which the user has shown one.
    mutating func addSameAccountLines() {
        guard eligible else { return }
        for place in observations.indices where isBesideOwn(place) {
            guard case .unowned(let purchase, let merging) = attributions[place] else { continue }
            attributions[place] = .sameAccount(purchase: purchase, merging: merging)
        }
    }

    /// Whether a line is of the store account of a line of the user's own.
    ///
    /// One line of the account that another user may have speaks against it: then no one can tell whose access it is, and the
    /// first proof decides.
    private func isBesideOwn(_ place: Int) -> Bool {
        let item = observations[place]
        guard let account = item.storeAccount, item.owner == .unnamed, !item.isFamilyShared,
            item.accessState == .access,
            // RevenueCat or another witness of the same purchase has named an owner.
            !rows[place].contains(where: { contradicts($0, userKey) || $0.isFamilyShared })
        else { return false }
        let keys = Set(item.identifiers.map(\.key))
        var isBeside = false
        for (other, line) in observations.enumerated() where other != place {
            if !keys.isDisjoint(with: line.identifiers.map(\.key)), !attributions[other].hasNoOwner { return false }
            guard let its = line.storeAccount, its.answer == account.answer else { continue }
            guard attributions[other].counts || attributions[other].hasNoOwner else { return false }
            let isSame = its.id == nil || account.id == nil || its.id == account.id
            isBeside = isBeside || attributions[other].counts && isSame && !line.isFamilyShared
        }
        return isBeside
    }
}

extension Attribution {
    fileprivate var hasNoOwner: Bool {
        switch self {
        case .unowned, .sameAccount: true
        default: false
        }
    }

    var isFollowed: Bool { if case .followed = self { true } else { false } }
}
