import Foundation

/// A ticket as people read it at a terminal: everything that a decision needs.
struct TicketText {
    private let ticket: Ticket

    /// - Parameter json: what the desk's records give.
    /// - Throws: `DecodingError`, where they give something else.
    init(_ json: String) throws { ticket = try JSONDecoder().decode(Ticket.self, from: Data(json.utf8)) }

    /// Where the ticket stands.
    var state: String { ticket.state }

    /// The hash of the evidence, where there is any.
    var hash: String? { ticket.evidenceHash }

    var text: String {
        var lines = [
            "\(ticket.reference) (\(ticket.id))  \(ticket.kind)  \(ticket.state)",
            "  claimant   \(Self.account(ticket.claimant, ticket.evidence?.claimant))",
            "  owner      \(Self.account(ticket.owner, ticket.evidence?.owner))",
            "  purchase   \(ticket.store ?? "-") \(Self.harmless(ticket.originalID ?? ""))",
        ]
        if let holder = ticket.holder {
            lines.append("  held by    \(holder) until \(Self.moment(ticket.holderUntil ?? ""))")
        }
        if let verdict = ticket.verdict { lines.append("  verdict    \(verdict)") }
        if !ticket.approvedBy.isEmpty { lines.append("  approved   \(ticket.approvedBy.joined(separator: ", "))") }
        if ticket.state == "waiting_owner", let until = ticket.ownerUntil {
            lines.append("  owner may object until \(Self.moment(until))")
        }
        if let step = ticket.transferStep {
            lines.append("  transfer   \(step)\(ticket.transferError.map { " (\($0))" } ?? "")")
        }
        lines += evidence
        lines.append("events")
        lines += ticket.events.map { event in
            let by = event.by.map { " by \($0)" } ?? ""
            let why = [event.detail?.reason ?? event.detail?.verdict ?? event.detail?.how, event.text]
                .compactMap(\.self).map(Self.harmless).joined(separator: ": ")
            return "  \(Self.moment(event.at))  \(event.kind)\(by)\(why.isEmpty ? "" : "  \(why)")"
        }
        return lines.joined(separator: "\n")
    }

    private var evidence: [String] {
        guard let hash = ticket.evidenceHash, let facts = ticket.facts, let reason = ticket.reason else {
            return ["evidence   not collected yet\(ticket.evidenceError.map { " (\($0))" } ?? "")"]
        }
        var lines = [
            "evidence   \(hash)", "  collected  \(Self.moment(ticket.evidenceAt ?? ""))",
            "  facts      \(facts.isEmpty ? "-" : facts.joined(separator: ", "))",
            "  suggests   \(ticket.suggested ?? "nothing") (\(reason))",
            "  hindrance  \(ticket.hindrance ?? "-")", "  approvals  \(ticket.approvalsNeeded ?? 0) needed",
            "  RevenueCat has it for: \(ticket.evidence?.holder ?? "-")",
        ]
        for word in ticket.evidence?.words ?? [] {
            lines.append("  \(word.source), asked about the \(word.asked ?? "-"): \(word.text)")
        }
        for other in ticket.evidence?.alsoMoves ?? [] { lines.append("  would also move \(other.text)") }
        return lines
    }

    /// Words of people, in which nothing looks like a line of ours or steers the terminal.
    private static func harmless(_ text: String) -> String {
        String(
            text.unicodeScalars.map { scalar in
                switch scalar.properties.generalCategory {
                case .control, .format, .lineSeparator, .paragraphSeparator: " "
                default: Character(scalar)
                }
            }
        )
    }

    /// To the second, in UTC as the database gives it.
    private static func moment(_ text: String) -> String { text.prefix(19) + "Z" }

    private static func account(_ id: String?, _ account: Ticket.Evidence.Account?) -> String {
        "\(id ?? "-")\(account.map { " (\($0.standing))" } ?? "")"
    }
}

private struct Ticket: Decodable {
    struct Event: Decodable {
        struct Detail: Decodable {
            var reason: String?
            var verdict: String?
            var how: String?
        }
        var at: String
        var kind: String
        var by: String?
        var detail: Detail?
        var text: String?
    }

    struct Evidence: Decodable {
        struct Account: Decodable { var standing: String }

        struct Item: Decodable {
            var id: String?
            var source: String
            var store: String
            var environment: String
            var product: String?
            var status: String
            var asked: String?
            var givesAccess: Bool?
            var endsAt: Int64?

            enum CodingKeys: String, CodingKey {
                case id, source, store, environment, product, status, asked
                case givesAccess = "gives_access"
                case endsAt = "ends_at"
            }

            var text: String {
                var parts = [id ?? "-", store, product ?? "-", status]
                if environment != "production" { parts.append(environment) }
                if let givesAccess { parts.append(givesAccess ? "gives access" : "no access") }
                if let endsAt {
                    let date = Date(timeIntervalSince1970: Double(endsAt) / 1_000_000)
                    parts.append("period ends \(date.formatted(.iso8601))")
                }
                return parts.joined(separator: ", ")
            }
        }

        var claimant: Account
        var owner: Account?
        var holder: String
        var words: [Item]
        var alsoMoves: [Item]

        enum CodingKeys: String, CodingKey {
            case claimant, owner, holder, words
            case alsoMoves = "also_moves"
        }
    }

    var id: Int64
    var reference: String
    var kind: String
    var state: String
    var store: String?
    var originalID: String?
    var claimant: String?
    var owner: String?
    var holder: String?
    var holderUntil: String?
    var ownerUntil: String?
    var verdict: String?
    var evidenceAt: String?
    var evidenceHash: String?
    var evidenceError: String?
    var facts: [String]?
    var hindrance: String?
    var suggested: String?
    var reason: String?
    var approvalsNeeded: Int?
    var evidence: Evidence?
    var approvedBy: [String]
    var transferStep: String?
    var transferError: String?
    var events: [Event]

    enum CodingKeys: String, CodingKey {
        case id, reference, kind, state, store, claimant, owner, holder, verdict, facts, hindrance, suggested, reason
        case evidence, events
        case originalID = "original_id"
        case holderUntil = "holder_until"
        case ownerUntil = "owner_until"
        case evidenceAt = "evidence_at"
        case evidenceHash = "evidence_hash"
        case evidenceError = "evidence_error"
        case approvalsNeeded = "approvals_needed"
        case approvedBy = "approved_by"
        case transferStep = "transfer_step"
        case transferError = "transfer_error"
    }
}
