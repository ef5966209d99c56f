import Entitlements

/// What tickets are called where people read them.
package enum TicketWords {
    /// What a case is about, in a few words; an unknown kind is shown as it is.
    package static func kind(_ kind: String) -> String { kinds[kind] ?? plain(kind) }

    /// Where a case stands, in a few words.
    package static func state(_ state: String) -> String {
        guard let known = TicketState(rawValue: state) else { return plain(state) }
        switch known {
        case .new: return "New"
        case .claimed: return "Assigned"
        case .waitingClaimant: return "Waiting for the claimant"
        case .waitingOwner: return "Owner may object"
        case .needsSecond: return "Needs a second approval"
        case .approved: return "Approved"
        case .executing: return "Transfer under way"
        case .transferred: return "Transferred"
        case .refused: return "Decided without a transfer"
        case .expired: return "Expired"
        case .autoResolved: return "Closed by itself"
        case .duplicate: return "Duplicate"
        }
    }

    /// Who has to act next, as the queue's filters are called.
    package static func lane(_ lane: String) -> String { lanes[lane] ?? plain(lane) }

    /// How a case ended, in a few words.
    package static func verdict(_ verdict: String) -> String {
        guard let known = CaseVerdict(rawValue: verdict) else { return plain(verdict) }
        switch known {
        case .transfer: return "Transfer to the claimant"
        case .guideToLogin: return "Guide to the original login"
        case .grantUntilEnd: return "Access until the paid period ends"
        case .refuse: return "Refuse"
        case .storeRefund: return "Advise a refund by the store"
        }
    }

    /// A store's name.
    package static func store(_ store: String) -> String { stores[store] ?? plain(store) }

    /// A code as words, where there are no better ones.
    package static func plain(_ code: String) -> String {
        let words = code.replacing("_", with: " ").replacing(".", with: ": ")
        return words.prefix(1).uppercased() + words.dropFirst()
    }

    private static let kinds = [
        "owner_mismatch": "Purchase belongs to another account",
        "paid_no_access": "Paid, but no access",
        "needs_proof": "Purchase without a proof",
        "first_seen_elsewhere": "First seen with another account",
        "identity_collision": "Identifiers of two owners",
        "sources_disagree": "Stores disagree about the owner",
        "external_transfer": "Moved outside of this desk",
        "onside_unattributed": "Onside purchase without an account",
    ]

    private static let lanes = [
        "desk": "Anyone at the desk", "mine": "Me", "others": "Others at the desk", "second": "A second approver",
        "execute": "Ready to transfer", "claimant": "The claimant", "owner": "The owner", "worker": "The worker",
        "closed": "Closed",
    ]

    private static let stores = [
        "app_store": "App Store", "mac_app_store": "Mac App Store", "google_play": "Google Play",
        "play_store": "Google Play", "onside": "Onside", "revenuecat": "RevenueCat", "stripe": "Stripe",
        "promotional": "Promotional",
    ]
}

/// A reference such as `T-7K3Q-92` as people read it out and write it down.
package enum SpokenReference {
    /// What may be meant: without its dashes, with an O for a zero and an I or L for a one, and without its first
    /// letter.
    ///
    /// - Returns: references in their proper form, the likeliest first; empty for what can be none.
    package static func readings(of text: String) -> [String] {
        let signs = text.uppercased().filter { !"- ".contains($0) }
        guard (6...7).contains(signs.count), signs.allSatisfy({ $0.isASCII && ($0.isLetter || $0.isNumber) }) else {
            return []
        }
        let kinds = signs.count == 6 ? ["T", "R"] : [String(signs.prefix(1))]
        guard kinds.allSatisfy({ ["T", "R"].contains($0) }) else { return [] }
        let code = signs.suffix(6).map { sign -> Character in
            switch sign {
            case "O": "0"
            case "I", "L": "1"
            default: sign
            }
        }
        guard !code.contains("U") else { return [] }
        return kinds.map { "\($0)-\(String(code.prefix(4)))-\(String(code.suffix(2)))" }
    }
}
