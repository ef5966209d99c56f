/// Decides whose each item of a reading is, in the light of all of them.
///
/// - Parameters:
///   - observations: the reading's.
///   - holders: for each item the ledger rows under its identifiers, without repeats.
///   - userKey: the user who was asked for.
///   - eligible: whether the user may gain access.
///   - askedAt: when the read began.
/// - Returns: whose each item is, in their order.
package func attribute(
    _ observations: [Observation],
    holders: [[Purchase]],
    userKey: Int64,
    eligible: Bool,
    askedAt: Instant
) -> [Attribution] {
    var attributions = zip(observations, holders).map { observation, rows in
        attribute(observation, holders: rows, userKey: userKey, eligible: eligible, askedAt: askedAt)
    }
    guard observations.count > 1 else { return attributions }
    keepDisputed(&attributions, holders)
    // Items that share a name are of one purchase, even where the ledger has that name under no row or another one.
    for (index, rows) in itemsOfOnePurchase(observations, attributions, holders) {
        attributions[index] = attribute(
            observations[index],
            holders: rows,
            userKey: userKey,
            eligible: eligible,
            askedAt: askedAt
        )
    }
    // Where one witness names the asked user and another names another user, neither decides. A dispute on record goes on:
    // a second read with the same answers makes no owner.
    let alone = attributions
    for (index, observation) in observations.enumerated() {
        guard case .otherAccount(let id) = observation.owner, !alone[index].counts else { continue }
        let keys = Set(observation.identifiers.map(\.key))
        let witnesses = observations.indices.filter { other in
            guard observations[other].owner == .askedUser else { return false }
            return (alone[other].counts || alone[other].isContradicted)
                && !keys.isDisjoint(with: observations[other].identifiers.map(\.key))
        }
        guard !witnesses.isEmpty else { continue }
        // Of several rows the oldest is named, whatever the order of the items.
        let disputed = witnesses.compactMap { alone[$0].target ?? alone[$0].contradictedPurchase }.min()
        attributions[index] = .contradicted(purchase: disputed, accountKey: nil, account: id)
        for other in witnesses where alone[other].counts {
            attributions[other] = .contradicted(purchase: alone[other].target, accountKey: nil, account: nil)
        }
    }
    for index in observations.indices where isBesideOwn(index, observations, attributions, holders, userKey) {
        guard eligible, case .unowned(let purchase, let merging) = attributions[index] else { continue }
        attributions[index] = .sameAccount(purchase: purchase, merging: merging)
    }
    return attributions
}

/// The rows to which items lead through the names that they share with the user's own items of the same reading.
///
/// - Returns: by the place of the item, all its rows; items that lead no further than by themselves are left out.
private func itemsOfOnePurchase(
    _ observations: [Observation],
    _ attributions: [Attribution],
    _ holders: [[Purchase]]
) -> [Int: [Purchase]] {
    let names = observations.map { Set($0.identifiers.map(\.key)) }
    guard Set(names.joined()).count < names.joined().count else { return [:] }
    var rows = holders.map(Set.init)
    var isOwn = attributions.map { if case .own = $0 { true } else { false } }
    var isFollowed = attributions.map { if case .followed = $0 { true } else { false } }
    let isUnknown = attributions.map(\.hasNoOther)
    // An item may lead to another through a third one, so once around for each at most.
    var isChanged = true
    while isChanged {
        isChanged = false
        for index in observations.indices where isOwn[index] || isUnknown[index] {
            let others = observations.indices.filter { $0 != index && !names[$0].isDisjoint(with: names[index]) }
            var joined = others.filter { isOwn[$0] }
            // What moves to the user by RevenueCat's word takes along what is new to the ledger by the same word.
            let mayFollow = observations[index].owner == .askedUser && !observations[index].isFamilyShared
            if joined.isEmpty, !isOwn[index], mayFollow { joined = others.filter { isFollowed[$0] } }
            let found = joined.reduce(into: rows[index]) { $0.formUnion(rows[$1]) }
            guard found != rows[index] else { continue }
            rows[index] = found
            (isOwn[index], isFollowed[index]) = (isOwn[joined[0]], isFollowed[joined[0]])
            isChanged = true
        }
    }
    return Dictionary(
        uniqueKeysWithValues: observations.indices.filter { rows[$0].count > Set(holders[$0]).count }
            .map { ($0, Array(rows[$0])) }
    )
}

/// Keeps purchases with their owner where one of their items says so: what keeps a purchase from following RevenueCat's word
/// holds for all of it.
private func keepDisputed(_ attributions: inout [Attribution], _ holders: [[Purchase]]) {
    var disputed: [Int64: Attribution] = [:]
    for (attribution, rows) in zip(attributions, holders) {
        guard case .disagree = attribution else { continue }
        for row in rows { disputed[row.id] = disputed[row.id] ?? attribution }
    }
    guard !disputed.isEmpty else { return }
    for index in attributions.indices {
        guard case .followed(let purchase, _, let merging) = attributions[index],
            let dispute = ([purchase] + merging).lazy.compactMap({ disputed[$0] }).first
        else { continue }
        attributions[index] = dispute
    }
}

/// Whether a line that no user owns may give access, because its store lists it for the account of which the user has shown
/// a line.
///
/// One line of the account that another user may have speaks against it: then no one can tell whose access it is, and the
/// first proof decides.
private func isBesideOwn(
    _ index: Int,
    _ observations: [Observation],
    _ attributions: [Attribution],
    _ holders: [[Purchase]],
    _ userKey: Int64
) -> Bool {
    let item = observations[index]
    guard let account = item.storeAccount, item.owner == .nobody, !item.isFamilyShared,
        standing(of: item.kind, status: item.status, givesAccess: item.givesAccess) == .access,
        // RevenueCat or another witness of the same purchase has named an owner.
        !holders[index].contains(where: { contradicts($0, userKey) || $0.isFamilyShared })
    else { return false }
    let keys = Set(item.identifiers.map(\.key))
    var isBeside = false
    for (other, line) in observations.enumerated() where other != index {
        if !keys.isDisjoint(with: line.identifiers.map(\.key)), !attributions[other].hasNoOwner { return false }
        guard let its = line.storeAccount, its.answer == account.answer else { continue }
        guard attributions[other].counts || attributions[other].hasNoOwner else { return false }
        let isSame = its.id == nil || account.id == nil || its.id == account.id
        isBeside = isBeside || attributions[other].counts && isSame && !line.isFamilyShared
    }
    return isBeside
}

extension Attribution {
    /// Whether no user is the owner.
    fileprivate var hasNoOwner: Bool {
        switch self {
        case .unowned, .sameAccount: true
        default: false
        }
    }

    fileprivate var isContradicted: Bool { if case .contradicted = self { true } else { false } }

    fileprivate var contradictedPurchase: Int64? {
        if case .contradicted(let purchase, _, _) = self { purchase } else { nil }
    }
}
