package import Entitlements
import Foundation

/// A ticket as the database shows it to an operator: everything that a decision needs.
package struct DeskTicket: Decodable, Sendable {
    package struct Event: Decodable, Sendable {
        package struct Detail: Decodable, Sendable {
            package var reason: String?
            package var verdict: String?
            package var how: String?
            package var question: String?
            /// What was known of the case, where that forbade a transfer.
            package var facts: [String]?

            private var code: String? { reason ?? verdict ?? how ?? question }
            private var sentences: String? { facts.map(EvidenceWords.forbidding) }

            /// Why it happened: a code, or sentences where facts of the case are the reason.
            package var why: String? { sentences ?? code }
            /// The same in words.
            package var words: String? { sentences ?? code.map(TicketWords.plain) }
        }
        package var at: String
        package var kind: String
        package var by: String?
        package var detail: Detail?
        package var text: String?
    }

    /// What claimant or owner said.
    package struct Reply: Decodable, Sendable {
        package var at: String
        package var side: String
        package var decision: String?
        package var words: String?
    }

    /// Who skipped the rest of the owner's time.
    package struct Waiver: Decodable, Sendable {
        package var at: String
        package var by: String

        enum CodingKeys: String, CodingKey {
            case at
            case by = "operator"
        }
    }

    /// What became of an account token that is to be written at the App Store, after a transfer.
    package struct Token: Decodable, Sendable {
        package var product: String?
        package var state: String
        package var reason: String?
        package var tries: Int
        package var endedAt: String?

        enum CodingKeys: String, CodingKey {
            case state, reason, tries
            case product = "product_id"
            case endedAt = "ended_at"
        }
    }

    /// Another ticket about the same purchase.
    package struct Link: Decodable, Sendable {
        package var id: Int64
        package var reference: String
        package var state: String
    }

    /// What is on record of the case's store accounts and of the claimant's sign-in, read together with the ticket.
    package struct AccountFacts: Decodable, Sendable, Hashable {
        /// `same`, `family` or `other`; `nil`: a store account is not known.
        package var relation: String?
        /// How many users have each store account, at most 100.
        package var purchaseUsers: Int?
        package var claimantUsers: Int?
        /// How and when the claimant had signed in, by the newest restore about the case.
        package var provider: String?
        package var signedInAt: String?

        enum CodingKeys: String, CodingKey {
            case relation, provider
            case purchaseUsers = "purchase_users"
            case claimantUsers = "claimant_users"
            case signedInAt = "signed_in_at"
        }
    }

    package struct Evidence: Decodable, Sendable {
        package var claimant: CaseEvidence.Account
        package var owner: CaseEvidence.Account?
        package var holder: String
        package var words: [Item]
        package var alsoMoves: [Item]
        /// Absent in evidence from before lookups of ids.
        package var lookups: [CaseLookup]?
        /// What people decided before, and what ended by itself; absent in older evidence, as the rest of these.
        package var history: [CasePast]?
        package var passed: [CasePast]?
        package var times: CaseTimes?
        package var frozen: FrozenAssets?
        package var sources: [CaseSource]?

        enum CodingKeys: String, CodingKey {
            case claimant, owner, holder, words, lookups, history, passed, times, frozen, sources
            case alsoMoves = "also_moves"
        }

        /// What is on record around the case, a sentence each, with the tickets that it tells of.
        package var background: [(words: String, tickets: [Int64])] {
            var lines: [(words: String, tickets: [Int64])] = []
            if let times {
                lines += PastWords.said(times, claimant: claimant.createdAt, owner: owner?.createdAt).map { ($0, []) }
            }
            lines += ((history ?? []) + (passed ?? [])).map { (PastWords.said($0), $0.tickets) }
            if let words = frozen.flatMap({ PastWords.said($0) }) { lines.append((words, [])) }
            return lines
        }
    }

    /// One store's word on one purchase.
    package struct Item: Decodable, Sendable {
        package var id: String?
        package var source: String
        package var store: String
        package var environment: String
        package var product: String?
        package var status: String
        package var renewal: String?
        package var ownership: String?
        package var asked: String?
        package var givesAccess: Bool?
        /// Microseconds since 1970.
        package var endsAt: Int64?

        enum CodingKeys: String, CodingKey {
            case id, source, store, environment, product, status, renewal, ownership, asked
            case givesAccess = "gives_access"
            case endsAt = "ends_at"
        }
    }

    package var id: Int64
    package var reference: String
    package var kind: String
    package var state: String
    package var store: String?
    package var originalID: String?
    /// The app that the purchase was seen in, by its store's name; else RevenueCat's project.
    package var storeApp: String?
    package var accountFacts: AccountFacts?
    package var touches: Int
    package var createdAt: String
    package var deadline: String?
    package var claimant: String?
    package var owner: String?
    package var holder: String?
    package var holderUntil: String?
    package var ownerUntil: String?
    package var ownerWaiver: Waiver?
    /// How long the owner gets once an operator has approved; `nil`: there is no owner to ask.
    package var ownerHours: Int?
    package var verdict: String?
    package var evidenceAt: String?
    package var evidenceDue: String?
    package var evidenceHash: String?
    package var evidenceError: String?
    package var facts: [String]?
    package var hindrance: String?
    package var suggested: String?
    package var reason: String?
    package var approvalsNeeded: Int?
    /// What else a transfer moves, as an approval has to confirm it.
    package var alsoMoves: [String]?
    package var evidence: Evidence?
    package var approvedBy: [String]
    package var transferStep: String?
    package var transferError: String?
    package var tokens: [Token]
    package var events: [Event]
    package var replies: [Reply]
    package var linked: [Link]

    enum CodingKeys: String, CodingKey {
        case id, reference, kind, state, store, touches, deadline, claimant, owner, holder, verdict, facts, hindrance
        case suggested, reason, evidence, events, replies, linked, tokens
        case originalID = "original_id"
        case storeApp = "store_app"
        case accountFacts = "account_facts"
        case createdAt = "created_at"
        case holderUntil = "assigned_until"
        case ownerUntil = "owner_until"
        case ownerWaiver = "owner_waiver"
        case ownerHours = "owner_hours"
        case evidenceAt = "evidence_at"
        case evidenceDue = "evidence_due"
        case evidenceHash = "evidence_hash"
        case evidenceError = "evidence_error"
        case approvalsNeeded = "approvals_needed"
        case alsoMoves = "also_moves"
        case approvedBy = "approved_by"
        case transferStep = "transfer_step"
        case transferError = "transfer_error"
    }

    /// The purchase that the case is about: as stores show it, or as it was named where none does.
    package var subject: (store: String?, id: String?, product: String?) {
        let words = evidence?.words ?? []
        guard let shown = words.first(where: { $0.id == originalID }) ?? words.first else {
            return (store, originalID, nil)
        }
        return (shown.store, shown.id ?? originalID, shown.product)
    }

    /// Reads what the desk's records give, one JSON object.
    package init(json: String) throws { self = try JSONDecoder().decode(DeskTicket.self, from: Data(json.utf8)) }
}
