/// Whose an observed item is, given what the ledger holds under its identifiers.
package enum Attribution: Hashable, Sendable {
    /// It has no owner: it becomes the user's.
    case new
    /// The user's, or without an owner so far: row `purchase` is updated; further rows of the same owner are merged into it.
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
    /// Another user's, in the ledger or by the id that the app gave the store.
    case foreign(purchase: Int64?, owner: Int64?, account: String?)
    /// The witnesses name different owners: what is known stays, and people decide.
    case contradicted(purchase: Int64?, accountKey: Int64?, account: String?)
    /// Kept on record without an owner, and counting for nothing.
    case unowned(purchase: Int64?, merging: [Int64])
    /// Owned by no user, and listed for a store account in which this user owns a line: gives access until it has an owner.
    case sameAccount(purchase: Int64?, merging: [Int64])
    /// Without an owner, and its store's rules let no proof stand in for the account that is missing.
    case unattributed(purchase: Int64?)

    /// Whether the item is the user's own.
    package var counts: Bool {
        switch self {
        case .new, .own, .followed: true
        case .overtaken, .disagree, .collision, .otherUser, .anonymous, .foreign, .contradicted, .unowned, .sameAccount,
            .unattributed:
            false
        }
    }

    /// Whether the item can give this user access: it is the user's own, or has no owner and is of the user's store account.
    package var mayGiveAccess: Bool { if case .sameAccount = self { true } else { counts } }

    /// The row that the item brings up to date.
    package var target: Int64? {
        switch self {
        case .own(let purchase, _), .followed(let purchase, _, _): purchase
        case .unowned(let purchase, _), .sameAccount(let purchase, _), .unattributed(let purchase): purchase
        case .new, .overtaken, .disagree, .collision, .otherUser, .anonymous, .foreign, .contradicted: nil
        }
    }

    /// Whether the item makes a new row of the ledger, be it with an owner or without one.
    package var isNew: Bool {
        switch self {
        case .new, .unowned(nil, _), .sameAccount(nil, _), .unattributed(nil): true
        // The ledger has to remember who was named, or the next witness alone would have its way.
        case .contradicted(nil, nil, _?), .foreign(nil, nil, _?): true
        default: false
        }
    }

    /// Whether a purchase that is new to the ledger has no other owner than the user, if it has one.
    package var hasNoOther: Bool { self == .new || self == .unowned(purchase: nil, merging: []) }

    /// The row that stays and the rows that become part of it.
    package var merger: (into: Int64, from: [Int64])? {
        switch self {
        case .own(let purchase, let rest), .followed(let purchase, _, let rest): (purchase, rest)
        case .unowned(let purchase?, let rest), .sameAccount(let purchase?, let rest): (purchase, rest)
        default: nil
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
        case .foreign: "foreign"
        case .contradicted: "contradicted"
        case .unowned: "unowned"
        case .sameAccount: "same_account"
        case .unattributed: "unattributed"
        }
    }
}

/// Decides whose an item is that was read for a user, the same whatever the order of the holders.
///
/// `holders`: the ledger rows under its identifiers, without repeats. `eligible`: whether the user may gain access.
/// `askedAt`: when the read began.
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
    case .askedUser, .account, .otherAccount, .heldElsewhere, .unnamed, .unattributable: break
    }
    // The oldest row survives a merger; ids break ties so that every worker picks the same one.
    let rows = holders.sorted { ($0.firstSeenAt, $0.id) < ($1.firstSeenAt, $1.id) }
    let owners = Set(rows.compactMap(\.ownerKey))
    if owners.count > 1, let foreign = rows.first(where: { $0.ownerKey != nil && $0.ownerKey != userKey }) {
        return .collision(purchase: foreign.id, owner: foreign.ownerKey ?? userKey)
    }
    guard observation.owner == .askedUser else {
        return attributeByStore(observation, rows, owners.first, userKey: userKey, eligible: eligible, askedAt: askedAt)
    }
    guard let oldest = rows.first else { return .new }
    let rest = rows.dropFirst().map(\.id)
    if let named = rows.first(where: { contradicts($0, userKey) }) {
        return .contradicted(purchase: named.id, accountKey: named.accountKey, account: nil)
    }
    // Seen since this read began, and without an owner: whether it still is as it was read has to be read again.
    guard !rows.contains(where: { $0.ownerKey == nil && $0.observedAt > askedAt }) else { return .overtaken }
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
