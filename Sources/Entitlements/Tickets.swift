/// Why items that were read for the user do not count, if they name another user; a collision outranks the rest.
func contradiction(_ input: DecisionInput) -> Rule? {
    var rule: Rule?
    for attribution in input.attributions {
        switch attribution {
        case .otherUser, .collision: return .identityCollision
        case .disagree, .contradicted: rule = .sourcesDisagree
        case .new, .own, .followed, .overtaken, .anonymous, .foreign, .unowned, .sameAccount, .unattributed: continue
        }
    }
    return rule
}

/// The tickets that the attributions of a reading call for: one a purchase, whatever the order of the items.
func ownershipTickets(_ input: DecisionInput) -> [TicketRequest] {
    var tickets: [TicketRequest] = []
    for (observation, attribution) in zip(input.reading.observations, input.attributions) {
        var ticket = TicketRequest(.identityCollision, about: observation)
        switch attribution {
        case .new, .own, .overtaken, .anonymous, .foreign, .unowned, .sameAccount, .unattributed: continue
        // The store that names another user makes the ticket.
        case .contradicted(_, nil, nil): continue
        case .contradicted(let purchase, let owner, let account):
            ticket.kind = .sourcesDisagree
            (ticket.purchase, ticket.ownerKey, ticket.ownerID) = (purchase, owner, account)
        case .followed(let purchase, let owner, _):
            ticket.kind = .externalTransfer
            (ticket.purchase, ticket.ownerKey) = (purchase, owner)
        case .disagree(let purchase, let owner):
            ticket.kind = .sourcesDisagree
            (ticket.purchase, ticket.ownerKey) = (purchase, owner)
        case .collision(let purchase, let owner): (ticket.purchase, ticket.ownerKey) = (purchase, owner)
        case .otherUser(let id): ticket.ownerID = id
        }
        tickets.append(ticket)
    }
    return oneEach(tickets)
}

private func oneEach(_ tickets: [TicketRequest]) -> [TicketRequest] {
    var seen: Set<Int64?> = []
    return tickets.sorted(by: comesBefore).filter { seen.insert($0.purchase).inserted }
}

/// How long after a purchase that an event named another account for a proof is about which of the two came first.
private let firstSeenWindow = Duration.seconds(3 * 86400)

/// The tickets of a restore whose reads are used up, where it is proven all the same that the purchases are others'.
///
/// None where nothing is proven, and for users whose access is in doubt.
package func provenMismatch(_ input: DecisionInput) -> [TicketRequest] {
    guard input.kind == .restore, input.user?.type == .free, contradiction(input) == nil else { return [] }
    return shownTickets(input)
}

/// The tickets about purchases of others that the claimant has shown proofs of.
func shownTickets(_ input: DecisionInput) -> [TicketRequest] {
    var tickets: [TicketRequest] = []
    for (observation, attribution) in zip(input.reading.observations, input.attributions)
    where observation.isSubmitted {
        guard case .foreign(let purchase, let owner, let account) = attribution else { continue }
        let askedAt = input.reading.askedAt
        // Renewed or restored a moment ago proves nothing; bought for the first time a moment ago is money just taken.
        let isNew = observation.boughtAt.map { askedAt < $0 + .seconds(3600) } ?? false
        let isNamedByEvent =
            purchase.flatMap { input.firstSeenByEvent[$0] }.map { askedAt < $0 + firstSeenWindow } ?? false
        let isFresh = observation.boughtAt.map { askedAt < $0 + firstSeenWindow } ?? false
        var ticket = TicketRequest(isNamedByEvent && isFresh ? .firstSeenElsewhere : .ownerMismatch, about: observation)
        (ticket.purchase, ticket.ownerKey, ticket.ownerID) = (purchase, owner, account)
        ticket.isUrgent = isNew
        tickets.append(ticket)
    }
    return oneEach(tickets)
}

/// The tickets about purchases whose owner only an agent may settle, by their store's rules.
func unattributedTickets(_ input: DecisionInput) -> [TicketRequest] {
    let items = zip(input.reading.observations, input.attributions)
    return oneEach(
        items.compactMap { observation, attribution in
            guard case .unattributed(let purchase) = attribution, observation.accessState == .access else { return nil }
            return TicketRequest(
                kind: .onsideUnattributed,
                purchase: purchase,
                store: observation.store,
                originalID: observation.spokenID,
                isSubmitted: observation.isSubmitted
            )
        }
    )
}

/// The order in which tickets of one verdict stand; of those about one purchase the first is kept.
private func comesBefore(_ left: TicketRequest, _ right: TicketRequest) -> Bool {
    let order = { (ticket: TicketRequest) in
        (
            ticket.priority, ticket.purchase ?? .min, ticket.kind.rawValue, ExactText(ticket.ownerID ?? ""),
            ExactText(ticket.originalID ?? ""), ExactText(ticket.store ?? "")
        )
    }
    return order(left) < order(right)
}

/// Adds the claimant's own case; it takes the place of another ticket about the same purchase, of which one may be open.
func adding(_ own: TicketRequest, to tickets: [TicketRequest]) -> [TicketRequest] {
    tickets.filter { $0.purchase != own.purchase } + [own]
}

/// The ticket of a claimant whose store account's purchases belong to another user.
func mismatchTicket(_ input: DecisionInput) -> TicketRequest {
    guard let claimed = firstClaimed(input) else { return TicketRequest(kind: .paidNoAccess) }
    return ticket(.ownerMismatch, claimed)
}

/// The ticket behind a reported id of another user's purchase; the claimant never learns of it.
func needsProofTicket(_ input: DecisionInput) -> TicketRequest? {
    guard let claimed = firstClaimed(input), !claimed.found.isAnonymous else { return nil }
    return ticket(.needsProof, claimed)
}

/// The found purchase that a ticket names: an identified customer's before an anonymous one's, then by identifier.
private func firstClaimed(_ input: DecisionInput) -> ClaimedPurchase? {
    let identified = input.claimed.filter { !$0.found.isAnonymous }
    return (identified.isEmpty ? input.claimed : identified).min { $0.found.identifier < $1.found.identifier }
}

private func ticket(_ kind: TicketRequest.Kind, _ claimed: ClaimedPurchase) -> TicketRequest {
    TicketRequest(
        kind: kind,
        purchase: claimed.purchase,
        ownerKey: claimed.ownerKey,
        ownerID: claimed.ownerID,
        store: claimed.found.store,
        originalID: claimed.found.storeID ?? (claimed.found.identifier.isSecret ? nil : claimed.found.identifier.value)
    )
}

extension TicketRequest {
    init(_ kind: Kind, about item: Observation) {
        self.init(kind: kind, store: item.store, originalID: item.spokenID, deadline: item.acknowledgement?.deadline)
    }
}
