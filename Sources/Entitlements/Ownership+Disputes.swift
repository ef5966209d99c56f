/// How other items of a reading change whose an item is; what tickets follow is in `Tickets.swift`.
extension AttributedReading {
    /// Judges items that are new to the ledger by the rows of each other item of their purchase: it may be another user's.
    mutating func judgeNew(_ items: [Int]) {
        let new = items.filter { attributions[$0] == .new }
        guard !new.isEmpty else { return }
        let isFollowed = items.contains { attributions[$0].isFollowed }
        // An item whose rows have several owners is evidence for none of them.
        let known = Set(items.map { Set(holders[$0]) }).filter {
            !$0.isEmpty && Set($0.compactMap(\.ownerKey)).count <= 1
        }.map(Array.init)
        // An account id that names the asked user agrees with RevenueCat, which moves the purchase to that user.
        for place in new where !isFollowed || observations[place].owner != .account {
            let answers = known.map { judge(place, by: $0) }.filter(\.speaksAgainst)
            if let answer = answers.min(by: { $0.order < $1.order }) { attributions[place] = answer }
        }
    }

    /// Where one witness names the asked user and another names another user, neither decides.
    ///
    /// A dispute on record goes on: a second read with the same answers makes no owner.
    mutating func contradict() {
        let alone = attributions
        for (place, observation) in observations.enumerated() {
            guard case .otherAccount(let id) = observation.owner, !alone[place].counts else { continue }
            let keys = Set(observation.identifiers.map(\.key))
            let witnesses = observations.indices.filter { other in
                guard observations[other].owner == .askedUser else { return false }
                return (alone[other].counts || alone[other].isContradicted)
                    && !keys.isDisjoint(with: observations[other].identifiers.map(\.key))
            }
            guard !witnesses.isEmpty else { continue }
            // Of several rows the oldest is named, whatever the order of the items.
            let disputed = witnesses.compactMap { alone[$0].target ?? alone[$0].disputedPurchase }.min()
            // An item whose rows have several owners is not written.
            let isOnSeveral = disputed == nil && Set(holders[place].compactMap(\.ownerKey)).count > 1
            if !isOnSeveral {
                let purchase = disputed ?? holders[place].map(\.id).min()
                attributions[place] = .contradicted(purchase: purchase, accountKey: nil, account: id)
            }
            for other in witnesses where alone[other].counts {
                attributions[other] = .contradicted(purchase: alone[other].target, accountKey: nil, account: nil)
            }
        }
    }

    /// Gives no access by an item whose purchase is in dispute, save where the ledger has the item as the user's own.
    ///
    /// A purchase that support moved, or whose account id names another user, gives the asked user nothing under a new name.
    mutating func keepDisputed(_ items: [Int]) {
        let disputes = items.compactMap { place -> Attribution? in
            switch attributions[place] {
            case .disagree, .foreign(_, nil, _?): attributions[place]
            case .contradicted(let purchase, let account, _):
                .contradicted(purchase: purchase, accountKey: account, account: nil)
            default: nil
            }
        }
        guard !disputes.isEmpty else { return }
        let isOwn = { [userKey] (row: Purchase) in row.ownerKey == userKey }
        for place in items where attributions[place].counts && !holders[place].contains(where: isOwn) {
            // Beside the user's own purchase only a dispute about that one counts.
            let isJoined = rows[place].contains(where: isOwn)
            let about = disputes.filter { dispute in
                !isJoined || rows[place].contains { $0.id == dispute.disputedPurchase }
            }
            guard let dispute = about.min(by: { $0.order < $1.order }) else { continue }
            guard case .foreign(let purchase, _, _) = dispute, observations[place].owner != .unnamed else {
                attributions[place] = dispute
                continue
            }
            attributions[place] = .contradicted(purchase: purchase, accountKey: nil, account: nil)
        }
    }
}

extension Attribution {
    /// Whether the item is not the user's own, by rows of one owner.
    fileprivate var speaksAgainst: Bool {
        switch self {
        case .disagree, .contradicted, .foreign, .unowned, .unattributed: true
        case .new, .own, .followed, .overtaken, .collision, .otherUser, .anonymous, .sameAccount: false
        }
    }

    fileprivate var isContradicted: Bool { if case .contradicted = self { true } else { false } }

    fileprivate var disputedPurchase: Int64? {
        switch self {
        case .disagree(let purchase, _): purchase
        case .contradicted(let purchase, _, _), .foreign(let purchase, _, _): purchase
        default: nil
        }
    }

    /// Ranks answers, so that the one that is kept does not depend on the order of the items.
    fileprivate var order: (purchase: Int64, kind: Int, user: Int64, account: ExactText) {
        let last = Int64.max
        return switch self {
        case .disagree(let purchase, let owner): (purchase, 0, owner, ExactText(""))
        case .contradicted(let purchase, let account, _): (purchase ?? last, 1, account ?? last, ExactText(""))
        case .foreign(let purchase, let owner, let account):
            (purchase ?? last, 2, owner ?? last, ExactText(account ?? ""))
        default: (target ?? last, 3, last, ExactText(""))
        }
    }
}
