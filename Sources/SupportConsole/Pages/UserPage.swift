import Entitlements
import Foundation
import HTTPServing
import Hummingbird
import SupportDesk

/// A user: what they have, what happened, and what to write to them.
struct UserPage: Sendable {
    let desk: Desk

    func add(to routes: RouterGroup<AdminContext>) {
        desk.get("users/:key", on: routes) { visit, request, context in
            try await page(visit, try context.number("key"), Form(queryOf: request), reveal: false)
        }
        desk.post("users/:key/reveal", on: routes) { visit, form, context in
            let key = try context.number("key")
            do { return try await page(visit, key, form, reveal: true) } catch let refused as RevealRefused {
                return .redirect(to: "/console/users/\(key)?not=\(refused.word)", type: .normal)
            }
        }
        // That address, opened again, shows the user.
        desk.get("users/:key/reveal", on: routes) { _, _, context in
            .redirect(to: "/console/users/\(try context.number("key"))", type: .normal)
        }
        desk.post("users/:key/restore", on: routes) { visit, _, context in
            let key = try context.number("key")
            return .going(to: "/console/users/\(key)", unless: try await visit.users.restore(key), did: "restore")
        }
        desk.post("users/:key/dry-run", on: routes) { visit, _, context in
            let key = try context.number("key")
            return .going(to: "/console/users/\(key)", unless: try await visit.users.dryRun(key), did: "dry-run")
        }
    }

    private func page(_ visit: Visit, _ key: Int64, _ query: Form, reveal: Bool) async throws -> Response {
        guard let json = try await visit.users.show(key, reveal: reveal) else { throw ConsoleFault.notFound }
        let user = try DeskUser(json: json)
        let events = try await visit.users.timeline(of: key)
        let values = shown([
            "id": user.userID ?? "erased", "user": key, "erased": user.isErased, "type": user.type ?? "unknown",
            "status": user.status.map(TicketWords.plain) ?? "–", "waiting": user.waiting,
            "may-reveal": visit.may("reveal") && !reveal && !user.isErased,
            "may-restore": visit.may("restore") && !user.isErased,
            "purchases": user.purchases.map(Self.purchase), "no-purchases": user.purchases.isEmpty,
            "grants": user.grants.map(Self.grant), "no-grants": user.grants.isEmpty,
            "jobs": user.jobs.map(Self.job), "no-jobs": user.jobs.isEmpty,
            "tickets": user.tickets.map(Self.ticket), "no-tickets": user.tickets.isEmpty,
            "events": events.map(Self.event),
            "no-events": events.isEmpty, "subscriber": user.type == "subscriber",
            "since": Moments.shown(user.createdAt), "read": Moments.shown(user.fullReadAt),
            "next-check": Moments.shown(user.nextCheckAt), "frozen": user.frozenAssets.map { "\($0)" },
            "dry-run": user.dryRun.map(Self.dryRun),
            // An erased user can't be written to.
            "reply": user.standing.map { Self.reply(to: $0, language: query["language"]) },
        ])
        return desk.pages.page("user", "User \(key)", values, visit)
    }

    /// What may be written to the user, by how they stand now.
    private static func reply(to standing: UserStanding, language: String?) -> [String: Any] {
        let reply = standing.reply(in: language ?? Replies.fallback)
        return [
            "text": reply.text, "lang": reply.language,
            "languages": Replies.languages.map {
                ["code": $0, "name": Self.languages[$0] ?? $0, "chosen": $0 == reply.language] as [String: Any]
            },
        ]
    }

    private static let languages = [
        "de": "Deutsch", "en": "English", "es": "Español", "fr": "Français", "it": "Italiano", "pt": "Português",
    ]

    private static func purchase(_ item: DeskUser.Purchase) -> [String: Any] {
        shown([
            "store": TicketWords.store(item.store), "product": item.product ?? "–",
            "app": item.storeApp, "status": TicketWords.plain(item.status),
            "access": item.givesAccess.map { $0 ? "Gives access" : "No access" } ?? "–",
            "rule": TicketWords.plain(item.rule), "since": Moments.shown(item.ownerSince) as Any,
            "ends": Moments.shown(item.endsAt),
            "environment": item.environment == "production" ? nil : TicketWords.plain(item.environment),
        ])
    }

    private static func grant(_ grant: DeskUser.Grant) -> [String: Any] {
        shown([
            "until": Moments.shown(grant.until), "reason": grant.reason,
            "revoked": Moments.shown(grant.revokedAt),
            "payer": grant.source == "grant" ? nil : grant.source, "entitlement": grant.entitlement,
        ])
    }

    private static func job(_ job: DeskUser.Job) -> [String: Any] {
        [
            "reference": job.reference, "kind": TicketWords.plain(job.kind), "state": TicketWords.plain(job.state),
            "outcome": (job.outcome ?? job.error).map(TicketWords.plain) ?? "–",
            "at": Moments.shown(job.finishedAt) as Any,
        ]
    }

    private static func dryRun(_ run: DeskUser.DryRun) -> [String: Any] {
        guard let ended = Moments.shown(run.endedAt) else { return ["waits": true] }
        var why: [String: Any]?
        if let rule = run.rule, let outcome = run.outcome {
            why = ["rule": rule, "outcome": outcome, "words": run.explanation ?? ""]
        }
        return shown(["at": ended, "sentence": DryRunWords.sentence(run), "paused": run.isPaused, "why": why])
    }

    private static func event(_ event: DeskUsers.Event) -> [String: Any] {
        let kind = TicketWords.plain(event.kind)
        // Sentences such as `Job R-7K3Q-92 ended done.` say it themselves.
        let isSaid = event.words.hasPrefix(kind + " ")
        return shown(["at": Moments.shown(event.at), "words": event.words, "kind": isSaid ? nil : kind])
    }

    private static func ticket(_ ticket: DeskUser.Ticket) -> [String: Any] {
        [
            "href": "/console/tickets/\(ticket.id)", "reference": ticket.reference,
            "kind": TicketWords.kind(ticket.kind),
            "state": TicketWords.state(ticket.state), "code": ticket.state, "side": TicketWords.plain(ticket.side),
            "opened": Moments.shown(ticket.createdAt) as Any,
        ]
    }
}
