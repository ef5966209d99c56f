import Foundation
import Postgres
import SupportDesk
import TestSupport
import Testing
import UserRequests

/// What claimant and owner of a case see and say.
extension DeskCase {
    /// A worker of a desk that gives owners three days.
    var patient: WorkerSetup {
        WorkerSetup(
            servesDesk: true,
            variables: ["REVENUECAT_TRANSFER_API_KEY": "sk_move", "TRANSFER_OWNER_HOURS": "72"]
        )
    }

    func cases(_ user: String) async throws -> [UserCase] { try #require(try await world.app.cases(of: user)) }

    /// The user's only case.
    func only(_ user: String) async throws -> UserCase {
        let cases = try await cases(user)
        #expect(cases.count == 1, "\(cases)")
        return try #require(cases.first)
    }

    /// Says something to a user's only case.
    func reply(
        _ user: String,
        _ text: String?,
        decision: String? = nil,
        questionID: UUID? = nil,
        key: String? = nil
    ) async throws -> ReplyFate {
        let shown = try await only(user)
        return try await world.app.reply(
            CaseReply(
                text: text,
                decision: decision,
                questionID: questionID ?? (decision == "agree" ? shown.questionID : nil),
                idempotencyKey: key
            ),
            to: shown.id,
            by: user
        )
    }

    func replies() async throws -> Int64 {
        try await world.number("SELECT count(*) FROM entitlement_sync.ticket_reply")
    }

    func events(_ ticket: Int64) async throws -> [String] {
        try await world.texts(
            "SELECT e.kind FROM entitlement_sync.ticket_event AS e WHERE e.ticket_id = \(ticket) ORDER BY e.id"
        )
    }

    /// What a user is to hear, oldest first.
    func news(_ user: String) async throws -> [String] {
        try await world.texts(
            """
            SELECT concat_ws(' ', n.topic, n.data ->> 'role', n.data ->> 'state', n.data ->> 'question')
              FROM entitlement_sync.ticket_news AS n JOIN entitlement_sync.user_sync AS u USING (user_key)
             WHERE u.user_id = \(user) ORDER BY n.id
            """
        )
    }

    /// Has the owner asked: one or two people have agreed to a transfer.
    func askOwner(_ ticket: Int64, approvals: Int = 2) async throws {
        #expect(try await act(bea, .claim, on: ticket) == nil)
        #expect(try await approve(bea, ticket) == nil)
        guard approvals == 2 else { return }
        #expect(try await approve(cid, ticket) == nil)
        #expect(try await state(ticket) == "waiting_owner")
    }

    func ended() async throws -> [String] {
        try await world.texts(
            "SELECT coalesce(a.ended_by, '-') FROM entitlement_sync.ticket_approval AS a ORDER BY a.id"
        )
    }
}
