/// Why items that were read for the user do not count, if they name somebody else; a collision outranks the rest.
func contradiction(_ situation: Situation) -> Rule? {
    var rule: Rule?
    for attribution in situation.attributions {
        switch attribution {
        case .otherUser, .collision: return .identityCollision
        case .disagree: rule = .sourcesDisagree
        case .new, .own, .followed, .overtaken, .anonymous: continue
        }
    }
    return rule
}

/// The tickets that the attributions of a reading call for: one a purchase, whatever the order of the items.
func ownershipTickets(_ situation: Situation) -> [TicketRequest] {
    var tickets: [TicketRequest] = []
    for (observation, attribution) in zip(situation.reading.observations, situation.attributions) {
        let original = observation.identifiers.first { $0.kind == "store_id" } ?? observation.identifiers.first
        var ticket = TicketRequest(kind: .identityCollision, store: observation.store, originalID: original?.value)
        switch attribution {
        case .new, .own, .overtaken, .anonymous:
            continue
        case .followed(let purchase, let owner, _):
            ticket.kind = .externalTransfer
            ticket.purchase = purchase
            ticket.ownerKey = owner
        case .disagree(let purchase, let owner):
            ticket.kind = .sourcesDisagree
            ticket.purchase = purchase
            ticket.ownerKey = owner
        case .collision(let purchase, let owner):
            ticket.purchase = purchase
            ticket.ownerKey = owner
        case .otherUser(let id):
            ticket.ownerID = id
        }
        tickets.append(ticket)
    }
    var seen: Set<Int64?> = []
    return tickets.sorted(by: comesBefore).filter { seen.insert($0.purchase).inserted }
}

/// The order in which tickets of one verdict stand; of those about one purchase the first is kept.
private func comesBefore(_ left: TicketRequest, _ right: TicketRequest) -> Bool {
    (left.priority, left.purchase ?? .min, left.kind.rawValue, left.ownerID ?? "", left.originalID ?? "")
        < (right.priority, right.purchase ?? .min, right.kind.rawValue, right.ownerID ?? "", right.originalID ?? "")
}

/// Adds the claimant's own case; it takes the place of another ticket about the same purchase, of which one may be open.
func adding(_ own: TicketRequest, to tickets: [TicketRequest]) -> [TicketRequest] {
    tickets.filter { $0.purchase != own.purchase } + [own]
}

/// The ticket of a claimant whose store account's purchases belong to somebody else.
func mismatchTicket(_ situation: Situation) -> TicketRequest {
    guard let claimed = firstClaimed(situation) else { return TicketRequest(kind: .paidNoAccess) }
    return ticket(.ownerMismatch, claimed)
}

/// The ticket behind a typed id that belongs to somebody else; the claimant never learns of it.
func needsProofTicket(_ situation: Situation) -> TicketRequest? {
    guard let claimed = firstClaimed(situation), !claimed.found.isAnonymous else { return nil }
    return ticket(.needsProof, claimed)
}

/// The found purchase that a ticket names: an identified customer's before an anonymous one's, then by identifier.
private func firstClaimed(_ situation: Situation) -> ClaimedPurchase? {
    let identified = situation.claimed.filter { !$0.found.isAnonymous }
    return (identified.isEmpty ? situation.claimed : identified).min { $0.found.identifier < $1.found.identifier }
}

private func ticket(_ kind: TicketRequest.Kind, _ claimed: ClaimedPurchase) -> TicketRequest {
    TicketRequest(
        kind: kind,
        purchase: claimed.purchase,
        ownerKey: claimed.ownerKey,
        ownerID: claimed.ownerID,
        store: claimed.found.store,
        originalID: claimed.found.storeID ?? claimed.found.identifier.value
    )
}
