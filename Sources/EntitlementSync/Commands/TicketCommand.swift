import ArgumentParser
import Composition
import Entitlements
import Reports
import SupportDesk
import TextFormats

struct TicketsCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "tickets",
        abstract: "Lists tickets, or opens one; in an operator's name.",
        examples: ["tickets", "tickets list --state new --state claimed"],
        subcommands: [List.self, Open.self],
        defaultSubcommand: List.self
    )

    struct List: SignedInCommand {
        static let configuration = CommandConfiguration(
            abstract: "Lists tickets, the newest first.",
            json: "a line for each ticket: the columns of ticket_status",
            examples: ["tickets list --state new", "tickets list --reveal"]
        )

        @Option(
            help: """
                Tickets in this state alone; may be repeated (default: all open). States: \
                \(TicketState.allCases.map(\.rawValue).joined(separator: ", ")).
                """
        )
        var state: [TicketState] = []
        @Flag(help: "With the users' ids, of the 20 newest alone; it is recorded.") var reveal = false
        @OptionGroup var session: SessionOptions
        @OptionGroup var options: OutputOptions

        func answer(_ token: SessionToken, _ database: Database) async throws -> Answer {
            let rows = try await DeskTickets(pool: database.pool, session: token.digest)
                .list(states: state.isEmpty ? nil : state.map(\.rawValue), reveal: reveal)
            return Answer(
                ["id", "reference", "state", "kind", "store", "claimant", "owner", "touches", "opened"],
                rows.map {
                    [
                        "\($0.id)", $0.reference, $0.state, $0.kind, $0.store ?? "-", $0.userID ?? "-",
                        $0.ownerID ?? "-", "\($0.touches)", $0.createdAt,
                    ]
                },
                documents: rows
            )
        }
    }

    struct Open: SignedInCommand {
        static let configuration = CommandConfiguration(
            abstract: "Opens a ticket for a claimant who wrote to support, or touches the open one.",
            json: "one object: id, action",
            examples: [
                "tickets open --claimant uid-1 --reason 'paid on the old phone'",
                "tickets open --claimant uid-1 --order-id GPA.3312-7713-1143-23945 --reason 'paid twice'",
            ]
        )

        @Option(help: "The claimant's user id.") var claimant: String
        @Option(help: "The order id that the claimant gave; a claim, which proves nothing.") var orderID: String?
        @Option(help: "What the claimant wrote.") var reason: String
        @OptionGroup var session: SessionOptions
        @OptionGroup var options: OutputOptions

        func answer(_ token: SessionToken, _ database: Database) async throws -> Answer {
            let id = try await DeskTickets(pool: database.pool, session: token.digest)
                .open(claimant: claimant, orderID: orderID, reason: reason)
            guard let id else {
                throw CommandFailure(
                    .notAllowed,
                    "the purchase is the claimant's already, or it is a case of your own account"
                )
            }
            return Answer("ticket \(id) is open", json: ["id": id, "action": "open"])
        }
    }
}

struct TicketCommand: SignedInCommand {
    static let configuration = CommandConfiguration(
        commandName: "ticket",
        abstract: "Shows a ticket, or acts on it; in an operator's name.",
        discussion: """
            claim        take it, for half an hour
            release      put it back
            refresh      have the evidence collected again
            approve      agree to a transfer, on the evidence named by --evidence
            waive        skip the rest of the time that the owner has to object, with
                         --reason; for seniors
            withdraw     take back what you have approved: the case begins again, and
                         others' approvals are void as well
            transfer     have an approved transfer carried out
            token        send the App Store the new owner of the purchases again,
                         where that came to nothing
            resolve      record how a transfer ended that can't end by itself:
                         --how moved or not_moved
            give-access  give access for three days while it is open, where a store
                         has verified a proof
            refuse       end it without a transfer: --how refuse, guide_to_login,
                         store_refund or grant_until_end, which two approvers
                         decide, each on the evidence named by --evidence
            note         add a note: --text
            ask          ask the claimant a question, in their own language:
                         --question proof_of_purchase, order_number, which_store,
                         other_account or sign_in_there
            """,
        json: "show: one object with the ticket and its evidence; else one object: id, action",
        examples: ["ticket T-7K3Q-92", "ticket T-7K3Q-92 approve --evidence 3f9a1c0b77de"]
    )

    enum Action: String, ExpressibleByArgument, CaseIterable {
        case show, claim, release, refresh, approve, waive, withdraw, refuse, giveAccess = "give-access", transfer
        case token, resolve, note, ask
    }

    @Argument(help: "The ticket's id, or its reference, such as T-7K3Q-92.") var ticket: String
    @Argument(
        help: """
            show, claim, release, refresh, approve, waive, withdraw, refuse, give-access, transfer, token, resolve, note
            or ask.
            """
    )
    var action = Action.show
    @Option(
        help:
            "approve, refuse --how grant_until_end: the evidence's hash as show prints it, or at least its first 12 characters."
    )
    var evidence: String?
    @Option(help: "approve: something else that the transfer moves, as show prints it; once for each.")
    var confirm: [String] = []
    @Option(help: "refuse, resolve: how the case, or the transfer, ends.") var how: String?
    @Option(help: "note, refuse, ask: a note of at most 4000 characters, for the desk alone.") var text: String?
    @Option(help: "waive: why the owner is not waited for, at most 4000 characters.") var reason: String?
    @Option(help: "ask: what; the claimant's app shows it.") var question: String?
    @Flag(help: "show: with the users' ids, which is recorded.") var reveal = false
    @OptionGroup var session: SessionOptions
    @OptionGroup var options: OutputOptions

    /// Whether the act counts for the evidence alone that was seen.
    private var bindsEvidence: Bool { action == .approve || action == .refuse && how == "grant_until_end" }

    func validate() throws {
        guard !bindsEvidence || (evidence ?? "").utf8.count >= 12 else {
            throw ValidationError(
                "--evidence: give the hash that `ticket ID show` prints, at least 12 characters of it"
            )
        }
        guard action != .refuse || how != nil else {
            throw ValidationError("--how: give refuse, guide_to_login, store_refund or grant_until_end")
        }
        guard action != .resolve || how == "moved" || how == "not_moved" else {
            throw ValidationError("--how: give moved or not_moved, as you found it at RevenueCat")
        }
        guard action != .note || text?.isEmpty == false else {
            throw ValidationError("--text: give the note")
        }
        guard action != .waive || reason?.isEmpty == false else {
            throw ValidationError("--reason: say why the owner is not waited for")
        }
        guard action != .ask || question != nil else {
            throw ValidationError(
                "--question: give \(DeskQuestion.allCases.map(\.rawValue).joined(separator: ", ")) or one of your own"
            )
        }
    }

    func answer(_ token: SessionToken, _ database: Database) async throws -> Answer {
        let desk = DeskTickets(pool: database.pool, session: token.digest)
        guard let id = try await desk.id(of: ticket) else { throw unknown }
        guard let act = try await act(id, desk) else {
            guard let shown = try await desk.show(id, reveal: reveal) else { throw unknown }
            switch options.output {
            case .json: Output.line(PlainText.escaped(shown))
            case .text: Output.line(try TicketText(shown).text)
            }
            return .printed
        }
        guard let word = try await desk.act(act, on: id) else {
            return Answer("ticket \(id): \(action.done)", json: ["id": id, "action": action.rawValue])
        }
        let refusal = DeskRefusal(word)
        if refusal.isFirstOfSeveral {
            return Answer("ticket \(id): \(refusal.sentence(state: nil))", json: ["id": id, "action": "agreed"])
        }
        let state = try await desk.show(id).map { try DeskTicket(json: $0).state }
        throw CommandFailure(.notAllowed, refusal.sentence(state: state))
    }

    private var unknown: CommandFailure {
        CommandFailure(.data, "there is no ticket \(ticket); see entitlement-sync tickets")
    }

    private func act(_ id: Int64, _ desk: DeskTickets) async throws -> DeskTickets.Act? {
        switch action {
        case .show: return nil
        case .claim: return .claim
        case .release: return .release
        case .refresh: return .refresh
        case .waive: return .waive(reason: reason ?? "")
        case .withdraw: return .withdraw
        case .giveAccess: return .giveAccess
        case .transfer: return .transfer
        case .token: return .token
        case .note: return .note(text ?? "")
        case .ask: return .ask(question: question ?? "", words: text)
        case .refuse:
            return .refuse(how: how ?? "", words: text, hash: bindsEvidence ? try await shownHash(id, desk) : nil)
        case .resolve: return .resolve(hasMoved: how == "moved")
        case .approve: return .approve(hash: try await shownHash(id, desk), confirmed: confirm)
        }
    }

    /// The hash of the evidence as it is now, if it is the one that was seen.
    private func shownHash(_ id: Int64, _ desk: DeskTickets) async throws -> [UInt8] {
        guard let shown = try await desk.show(id) else { throw unknown }
        guard let hash = try DeskTicket(json: shown).evidenceHash, hash.hasPrefix((evidence ?? "").lowercased()) else {
            throw CommandFailure(
                .notAllowed,
                "--evidence: this is not the hash of the evidence as it is now; read it again"
            )
        }
        guard let bytes = Hex.decode(hash.utf8) else { throw unknown }
        return bytes
    }
}

extension TicketCommand.Action {
    /// What has been done by now: what a worker carries out has only begun.
    fileprivate var done: String {
        switch self {
        case .transfer: "the transfer has begun; a worker carries it out"
        case .token: "the App Store will be notified again"
        case .refresh: "the evidence will be collected again"
        case .ask: "the claimant is asked"
        case .waive: "the owner is waited for no longer, and may object until the transfer begins"
        default: "\(rawValue) done"
        }
    }
}

extension TicketState: ExpressibleByArgument {}
