/// Whose an observed item is, given what the ledger holds under its identifiers.
package enum Attribution: Hashable, Sendable {
    /// Nobody holds it: it becomes the user's.
    case new
    /// The user's, or nobody's so far: row `purchase` is updated; further rows of the same owner are merged into it.
    case own(purchase: Int64, merging: [Int64])
    /// RevenueCat names the user where the ledger named another: the row moves, both are read again; further rows of
    /// that owner are merged into it.
    case followed(purchase: Int64, from: Int64, merging: [Int64])
    /// The ledger learnt of another owner after this read began: the read has to be done again.
    case overtaken
    /// An exception of following: nothing is written.
    case disagree(purchase: Int64, owner: Int64)
    /// The identifiers lead to purchases of different owners: nothing is written.
    case collision(purchase: Int64, owner: Int64)
    /// Another of our users is named by the store itself.
    case otherUser(id: String)
    /// An anonymous customer who is not our user.
    case anonymous

    /// Whether the item speaks for the user.
    package var counts: Bool {
        switch self {
        case .new, .own, .followed: true
        case .overtaken, .disagree, .collision, .otherUser, .anonymous: false
        }
    }

    /// The row that stays and the rows that become part of it.
    package var merger: (into: Int64, from: [Int64])? {
        switch self {
        case .own(let purchase, let rest), .followed(let purchase, _, let rest): (purchase, rest)
        case .new, .overtaken, .disagree, .collision, .otherUser, .anonymous: nil
        }
    }

    /// The name in explanations and observations.
    package var name: String {
        switch self {
        case .new: "new"
        case .own: "own"
        case .followed: "owner_followed_revenuecat"
        case .overtaken: "overtaken"
        case .disagree: "sources_disagree"
        case .collision: "identity_collision"
        case .otherUser: "other_user"
        case .anonymous: "anonymous"
        }
    }
}

/// Decides whose an item is.
///
/// - Parameters:
///   - observation: the item, read for the user.
///   - holders: the ledger rows under its identifiers, without repeats.
///   - userKey: the user who was asked for.
///   - eligible: whether the user may gain access.
///   - askedAt: when the read began.
/// - Returns: whose the item is; the same whatever the order of the holders.
package func attribute(
    _ observation: Observation,
    holders: [Purchase],
    userKey: Int64,
    eligible: Bool,
    askedAt: Instant
) -> Attribution {
    switch observation.owner {
    case .otherUser(let id): return .otherUser(id: id)
    case .anonymous: return .anonymous
    case .askedUser: break
    case .account, .otherAccount, .nobody, .unattributable: break
    }
    // The oldest row survives a merger; ids break ties so that every worker picks the same one.
    let rows = holders.sorted { ($0.firstSeenAt, $0.id) < ($1.firstSeenAt, $1.id) }
    guard let oldest = rows.first else { return .new }
    let owners = Set(rows.compactMap(\.ownerKey))
    guard owners.count <= 1 else {
        let foreign = rows.first { $0.ownerKey != nil && $0.ownerKey != userKey } ?? oldest
        return .collision(purchase: foreign.id, owner: foreign.ownerKey ?? userKey)
    }
    let rest = rows.dropFirst().map(\.id)
    guard let owner = owners.first, owner != userKey else { return .own(purchase: oldest.id, merging: rest) }
    // A read that began before the one the ledger rests on names an owner of the past.
    guard rows.allSatisfy({ $0.observedAt <= askedAt }) else { return .overtaken }
    let isShared = observation.isFamilyShared || rows.contains(where: \.isFamilyShared)
    // A store that names several owners at once would move it to and fro for ever.
    let isContested = rows.contains { $0.formerOwnerKey != nil }
    // What support moved by hand outranks what the store keeps echoing.
    let isTransferred = rows.contains { $0.transferredAt != nil }
    guard eligible, !isShared, !isContested, !isTransferred else { return .disagree(purchase: oldest.id, owner: owner) }
    return .followed(purchase: oldest.id, from: owner, merging: rest)
}
