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
    var rows = holders
    func judge(_ place: Int, by rows: [Purchase]) -> Attribution {
        attribute(observations[place], holders: rows, userKey: userKey, eligible: eligible, askedAt: askedAt)
    }
    var attributions = observations.indices.map { judge($0, by: rows[$0]) }
    let purchases = itemsOfOnePurchase(observations, holders)
    for items in purchases {
        for (place, all) in joinedRows(of: items, attributions, rows, observations, userKey) {
            rows[place] = all
            attributions[place] = judge(place, by: all)
        }
        // What the ledger does not know yet may be of a purchase that is another user's and does not move.
        let all = Array(Set(items.flatMap { holders[$0] }))
        for place in items where attributions[place] == .new {
            switch judge(place, by: all) {
            case .disagree(let purchase, let owner): attributions[place] = .disagree(purchase: purchase, owner: owner)
            case .foreign(let purchase?, let owner?, let account):
                attributions[place] = .foreign(purchase: purchase, owner: owner, account: account)
            default: break
            }
        }
    }
    contradict(&attributions, observations)
    for items in purchases { keepDisputed(items, &attributions, holders, userKey) }
    for place in observations.indices where isBesideOwn(place, observations, attributions, rows, userKey) {
        guard eligible, case .unowned(let purchase, let merging) = attributions[place] else { continue }
        attributions[place] = .sameAccount(purchase: purchase, merging: merging)
    }
    return attributions
}

/// The items that are of one purchase, because they share a name or a row of the ledger, directly or through others.
///
/// - Returns: the places of two or more items for each purchase.
private func itemsOfOnePurchase(_ observations: [Observation], _ holders: [[Purchase]]) -> [[Int]] {
    guard observations.count > 1 else { return [] }
    var leaders = Array(observations.indices)
    func leader(_ place: Int) -> Int { leaders[place] == place ? place : leader(leaders[place]) }
    var names: [PurchaseIdentifierKey: Int] = [:]
    var rows: [Int64: Int] = [:]
    for place in observations.indices {
        let others =
            observations[place].identifiers.compactMap { names.updateValue(place, forKey: $0.key) }
            + holders[place].compactMap { rows.updateValue(place, forKey: $0.id) }
        for other in others { leaders[leader(other)] = leader(place) }
    }
    return Dictionary(grouping: observations.indices, by: leader).values.filter { $0.count > 1 }
}

/// The rows of items that have more of them through the other items of their purchase.
///
/// What is the user's own has all rows of the user's, and so has what the ledger does not know yet. Where nothing is the
/// user's, what follows RevenueCat's word away from one other user has all rows that do, and so has what is new by that word.
private func joinedRows(
    of items: [Int],
    _ attributions: [Attribution],
    _ rows: [[Purchase]],
    _ observations: [Observation],
    _ userKey: Int64
) -> [(place: Int, rows: [Purchase])] {
    func joined(_ sources: [Int], with others: [Int]) -> [(place: Int, rows: [Purchase])] {
        let all = Set(sources.flatMap { rows[$0] })
        return (sources + others).filter { rows[$0].count < all.count }.map { ($0, Array(all)) }
    }
    let own = items.filter { place in
        guard case .own = attributions[place] else { return false }
        return !rows[place].contains { contradicts($0, userKey) }
    }
    guard own.isEmpty else { return joined(own, with: items.filter { attributions[$0].hasNoOther }) }
    let followed = items.filter { if case .followed = attributions[$0] { true } else { false } }
    guard Set(followed.flatMap { rows[$0] }.compactMap(\.ownerKey)).count == 1 else { return [] }
    let new = items.filter {
        attributions[$0] == .new && observations[$0].owner == .askedUser && !observations[$0].isFamilyShared
    }
    return joined(followed, with: new)
}

/// Where one witness names the asked user and another names another user, neither decides.
///
/// A dispute on record goes on: a second read with the same answers makes no owner.
private func contradict(_ attributions: inout [Attribution], _ observations: [Observation]) {
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
}

/// Keeps a purchase as it is where one of its items is in dispute, save what is the user's own on record.
///
/// What support moved, or what the app's id gives to somebody else, is nobody's by another name.
private func keepDisputed(
    _ items: [Int],
    _ attributions: inout [Attribution],
    _ holders: [[Purchase]],
    _ userKey: Int64
) {
    let disputes = items.compactMap { place -> (purchase: Int64, attribution: Attribution)? in
        switch attributions[place] {
        case .disagree(let purchase, _): (purchase, attributions[place])
        case .contradicted(let purchase, let account, _):
            (purchase ?? .max, .contradicted(purchase: purchase, accountKey: account, account: nil))
        default: nil
        }
    }
    guard let dispute = disputes.min(by: { $0.purchase < $1.purchase }) else { return }
    for place in items where attributions[place].counts && !holders[place].contains(where: { $0.ownerKey == userKey }) {
        attributions[place] = dispute.attribution
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
