/// One side of a case, as the host and our records have it now.
package struct CaseAccount: Hashable, Sendable {
    package var key: Int64
    /// `nil`: erased, or never one of ours.
    package var id: String?
    /// `nil`: the host has no such user any more.
    package var user: User?
    package var createdAt: Instant?

    package init(key: Int64, id: String?, user: User?, createdAt: Instant?) {
        self.key = key
        self.id = id
        self.user = user
        self.createdAt = createdAt
    }

    /// No user can sign in to it any more.
    var isGone: Bool { id == nil || user == nil }
}

/// What a store said of the purchase in question, and the user that it was asked about.
package struct CaseWord: Hashable, Sendable {
    package enum Side: String, Sendable, Codable {
        case claimant, owner
        /// RevenueCat's customer who has the purchase, where that is neither of the two.
        case holder
    }

    package var observation: Observation
    package var asked: Side

    package init(_ observation: Observation, asked: Side) {
        self.observation = observation
        self.asked = asked
    }
}

/// The customer that RevenueCat has the purchase in question for.
package enum CaseHolder: String, Sendable, CaseIterable, Codable {
    /// RevenueCat is not configured, or has never met the purchase: our own records alone are to be changed.
    case unknown
    case claimant, owner
    /// An anonymous customer, or one whose account with us is gone.
    case unclaimed
    /// A third user of ours, or one customer of RevenueCat that both claimant and owner belong to.
    case other
}

/// Something that RevenueCat holds for a customer, and whose it is in our records.
package struct HeldItem: Hashable, Sendable {
    package var observation: Observation
    /// `nil`: our records do not know it, or give it no owner.
    package var ownerKey: Int64?

    package init(_ observation: Observation, ownerKey: Int64?) {
        self.observation = observation
        self.ownerKey = ownerKey
    }
}

package struct CaseInputs: Sendable {
    package var claimant: CaseAccount
    /// Who owns the purchase in our records.
    package var owner: CaseAccount?
    /// `nil`: it is not known yet which one it is.
    package var purchase: Purchase?
    /// Everything that stores say of the purchase now.
    package var words: [CaseWord] = []
    package var holder = CaseHolder.unknown
    /// Everything that RevenueCat holds for the same customer, the purchase in question included.
    package var held: [HeldItem] = []
    /// Tells one of RevenueCat's customers from another, without naming them; `nil`: nothing is moved there.
    package var source: String?
    /// The names under which our records know the purchase.
    package var identifiers: Set<PurchaseIdentifierKey> = []
    /// The claimant has shown something that a store verified.
    package var isProven = false
    /// A reported id alone says which purchase it is.
    package var isNamedByID = false
    /// The claimant has offered something that was found false.
    package var isDisproven = false
    package var background = CaseBackground()
    package var ownerObjected = false
    package var ownerReleased = false
    package var hasTransferKey = true
    package var now: Instant
    /// A source that has to answer did not: what no source said must not be taken for a no.
    package var isIncomplete = false

    package init(claimant: CaseAccount, now: Instant) {
        self.claimant = claimant
        self.now = now
    }

    package var needsCall: Bool { holder == .owner || holder == .unclaimed }

    func isSubject(_ item: Observation) -> Bool {
        !identifiers.isDisjoint(with: item.identifiers.map(\.key))
    }
}

package struct DeskSettings: Hashable, Sendable {
    package var approvals = ApprovalPolicy()
    /// How long a purchase that was moved is moved again by seniors alone.
    package var cooling = Duration.seconds(90 * 86_400)
    package var ownerWindow = Duration.seconds(72 * 3600)
    /// How long evidence, and an approval on it, holds.
    package var holds = Duration.seconds(24 * 3600)

    package init() {}
}

/// What is known of a case that a transfer is judged by.
package func facts(_ inputs: CaseInputs, _ settings: DeskSettings) -> Set<TransferFact> {
    var facts = peopleFacts(inputs)
    if inputs.isDisproven { facts.insert(.proofFailed) }
    guard let purchase = inputs.purchase else { return facts.union([.purchaseUnknown]) }
    facts.formUnion(purchaseFacts(purchase, inputs))
    if inputs.isProven { facts.insert(.proofVerified) }
    if purchase.ownerKey == inputs.claimant.key { facts.insert(.ownedByClaimant) }
    if let moved = purchase.transferredAt, inputs.now < moved + settings.cooling { facts.insert(.movedLately) }
    switch inputs.holder {
    case .unknown: break
    case .owner, .unclaimed:
        if !inputs.hasTransferKey { facts.insert(.keyMissing) }
        let sides = [inputs.claimant.key, inputs.owner?.key]
        let isForeign = inputs.held.contains { item in item.ownerKey.map { !sides.contains($0) } ?? false }
        if isForeign { facts.insert(.movesForeign) }
    case .claimant: facts.insert(.sourcesDisagree)
    case .other: facts.insert(.heldElsewhere)
    }
    facts.formUnion(tokenFacts(purchase, inputs))
    return facts
}

private func peopleFacts(_ inputs: CaseInputs) -> Set<TransferFact> {
    var facts: Set<TransferFact> = []
    if inputs.claimant.user?.status.isEligible != true { facts.insert(.claimantIneligible) }
    if inputs.purchase != nil {
        switch inputs.owner?.user?.status {
        case .banned, .bannedFinal: facts.insert(.ownerBanned)
        case .active, .onboarding, .toBeDeleted, nil: break
        }
        if inputs.owner?.isGone ?? true { facts.insert(.ownerErased) }
    }
    if inputs.ownerObjected { facts.insert(.ownerObjected) }
    if inputs.ownerReleased { facts.insert(.ownerReleased) }
    return facts
}

private func purchaseFacts(_ purchase: Purchase, _ inputs: CaseInputs) -> Set<TransferFact> {
    var facts: Set<TransferFact> = []
    let items = inputs.words.map(\.observation)
    let accessStates = items.map(\.accessState)
    if items.isEmpty || inputs.isIncomplete { facts.insert(.unseen) }
    if !inputs.isIncomplete, !accessStates.isEmpty, accessStates.allSatisfy({ $0 == .ended }) { facts.insert(.lapsed) }
    if items.contains(where: { $0.status.known == .refunded }) { facts.insert(.refunded) }
    // A buyer who took the money back has had it refunded, whatever its last period shows.
    if inputs.background.chargedBackAt != nil { facts.formUnion([.chargedBack, .refunded]) }
    if inputs.background.movesChargedBack { facts.insert(.chargedBack) }
    if purchase.isSandbox || items.contains(where: \.isSandbox) { facts.insert(.sandbox) }
    if purchase.isFamilyShared || items.contains(where: \.isFamilyShared) { facts.insert(.familyShared) }
    if purchase.store == "promotional" || items.contains(where: { $0.store == "promotional" }) {
        facts.insert(.promotional)
    }
    // The date of a period proves no new payment: renewals have one as well.
    let bought = items.compactMap(\.boughtAt).min()
    if let bought, let joined = inputs.claimant.createdAt, bought > joined { facts.insert(.boughtAfterClaimantJoined) }
    return facts
}

/// The users that the ids name which the app gave the stores for the buyer.
private func tokenFacts(_ purchase: Purchase, _ inputs: CaseInputs) -> Set<TransferFact> {
    func fact<Name: Equatable>(_ name: Name, _ claimant: Name?, _ owner: Name?) -> TransferFact {
        name == claimant ? .tokenNamesClaimant : name == owner ? .tokenNamesOwner : .tokenNamesThird
    }
    var facts = Set(
        inputs.words.compactMap { word -> TransferFact? in
            switch word.observation.owner {
            case .account: fact(word.asked, .claimant, .owner)
            case .otherAccount(let id): fact(id, inputs.claimant.id, inputs.owner?.id)
            case .askedUser, .anonymous, .otherUser, .heldElsewhere, .unnamed, .unattributable: nil
            }
        }
    )
    if let key = purchase.accountKey { facts.insert(fact(key, inputs.claimant.key, inputs.owner?.key)) }
    return facts
}
