/// Whether the id that the app gave the store names another user, and no operator has settled it.
func contradicts(_ row: Purchase, _ userKey: Int64) -> Bool {
    row.transferredAt == nil && row.accountKey.map { $0 != userKey } ?? false
}

/// Decides who owns an item of a store that does not know our users.
///
/// An id that the app gave the store names the owner where the ledger names no other user; without one, the user who was first to
/// show a proof of a purchase that gives access, or the user that an operator names.
///
/// `rows`: the ledger's, the oldest first. `owner`: of all of them.
func attributeByStore(
    _ observation: Observation,
    _ rows: [Purchase],
    _ owner: Int64?,
    userKey: Int64,
    eligible: Bool,
    askedAt: Instant
) -> Attribution {
    let oldest = rows.first
    let rest = rows.dropFirst().map(\.id)
    func own() -> Attribution {
        // Seen since this read began, and without an owner: the row would not take an older reading's owner.
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
    case .unnamed, .askedUser, .anonymous, .otherUser:
        if owner == userKey { return own() }
        let givesAccess = observation.accessState == .access
        // By a proof no user becomes the owner of what is over; and neither way a user who can't use it.
        let isVouchedFor = observation.isImported || observation.isSubmitted && givesAccess
        guard isVouchedFor, eligible, !rows.contains(where: { contradicts($0, userKey) }) else {
            return .unowned(purchase: oldest?.id, merging: rest)
        }
        return own()
    }
}
