/// Whether the id that the app gave the store names somebody else, and people have not settled it.
func contradicts(_ row: Purchase, _ userKey: Int64) -> Bool {
    row.transferredAt == nil && row.accountKey.map { $0 != userKey } ?? false
}

/// Decides whose an item is that a store told which knows no users of ours.
///
/// An id that the app gave the store names the owner where the ledger names nobody else; without one, whoever was first to
/// show a proof of a purchase that gives access.
///
/// - Parameters: as of `attribute`.
/// - Returns: whose the item is; the same whatever the order of the holders.
func attributeByStore(
    _ observation: Observation,
    holders: [Purchase],
    userKey: Int64,
    eligible: Bool,
    askedAt: Instant
) -> Attribution {
    let rows = holders.sorted { ($0.firstSeenAt, $0.id) < ($1.firstSeenAt, $1.id) }
    let owners = Set(rows.compactMap(\.ownerKey))
    let oldest = rows.first
    guard owners.count <= 1 else {
        let foreign = rows.first { $0.ownerKey != nil && $0.ownerKey != userKey }
        return .collision(purchase: foreign?.id ?? 0, owner: foreign?.ownerKey ?? userKey)
    }
    let rest = rows.dropFirst().map(\.id)
    let owner = owners.first
    func own() -> Attribution {
        // Seen since this read began and had by nobody: the row would not take an older reading's owner.
        guard !rows.contains(where: { $0.ownerKey == nil && $0.observedAt > askedAt }) else { return .overtaken }
        return oldest.map { .own(purchase: $0.id, merging: rest) } ?? .new
    }
    if let owner, owner != userKey {
        let account: String? =
            switch observation.owner {
            case .otherAccount(let id), .heldElsewhere(let id): id
            default: nil
            }
        return .foreign(purchase: oldest?.id, owner: owner, account: account)
    }
    // What people moved outranks what the store keeps echoing.
    let isTransferred = owner == userKey && rows.contains { $0.transferredAt != nil }
    if isTransferred { return own() }
    switch observation.owner {
    case .otherAccount(let id):
        return owner == userKey
            ? .contradicted(purchase: oldest?.id, accountKey: nil, account: id)
            : .foreign(purchase: oldest?.id, owner: nil, account: id)
    case .heldElsewhere(let id):
        return owner == userKey ? own() : .foreign(purchase: oldest?.id, owner: nil, account: id)
    case .account: return own()
    case .unattributable: return owner == userKey ? own() : .unattributed(purchase: oldest?.id)
    case .nobody, .askedUser, .anonymous, .otherUser:
        if owner == userKey { return own() }
        let givesAccess =
            standing(of: observation.kind, status: observation.status, givesAccess: observation.givesAccess) == .access
        // Nobody becomes the owner of what is over, and nobody who can't use it.
        guard observation.isShown, givesAccess, eligible, !rows.contains(where: { contradicts($0, userKey) }) else {
            return .unowned(purchase: oldest?.id, merging: rest)
        }
        return own()
    }
}

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
