/// What happened, and what a person does next.
package struct Headline: Hashable, Sendable {
    /// How pressing it is.
    package enum Tone: String, Sendable {
        /// Nothing is left to do.
        case good
        /// It goes on by itself.
        case plain
        /// An operator has to act.
        case warning
    }

    package var tone: Tone
    /// One sentence.
    package var happened: String
    /// What to do; before the command, where there is one.
    package var next: String
    /// A line to type at a shell; it holds nothing but digits and letters that need no quotation.
    package var command: String?

    fileprivate static func warning(_ happened: String, next: String, command: String? = nil) -> Headline {
        Headline(tone: .warning, happened: happened, next: next, command: command)
    }
}

extension RunReport {
    /// What happened, and what a person does next.
    package var headline: Headline {
        switch (isDryRun, state) {
        case (_, "reading"):
            Headline(
                tone: .plain,
                happened: isDryRun
                    ? "The dry run is reading, \(usersSoFar) so far, and changes nothing."
                    : "The run is reading: \(usersSoFar) so far.",
                next: waiting
            )
        case (false, "applying"):
            Headline(
                tone: .plain,
                happened: "The run has read \(usersSoFar), and is applying what it decided: "
                    + "\(Figures.count(applied, "change")) so far.",
                next: waiting
            )
        case (false, "stopped"): stopped
        case (false, "done"): done
        case (true, "done"), (true, "applying"), (true, "stopped"): predicted
        case (_, "canceled"): canceled
        default:
            .warning(
                "The \(kind) has read \(usersSoFar); how it stands is not known to this page.",
                next: "See its state below."
            )
        }
    }

    private var kind: String { isDryRun ? "dry run" : "run" }

    private var usersSoFar: String {
        total.map { "\(Figures.grouped(users)) of \(Figures.count($0, "user"))" } ?? Figures.count(users, "user")
    }

    private var waiting: String {
        predictedEnd.map { "Wait: it should end at \(Timestamp.shown($0))." } ?? "Wait: its end is not known yet."
    }

    private var unread: Int64 { outcomes["store_unavailable"] ?? 0 }

    /// The command that applies what is held; what is no hash is not put where a shell would read it.
    private var release: String {
        let digits = hash.map { Array($0.utf8) } ?? []
        let isHex = digits.allSatisfy { (0x30...0x39).contains($0) || (0x41...0x46).contains($0 & 0xDF) }
        return
            "entitlement-sync runs release \(run) --hash \(hash.flatMap { isHex && !digits.isEmpty ? $0 : nil } ?? "HASH")"
    }

    private var stopped: Headline {
        guard exceedsLimit, let demotionLimit else {
            return .warning(
                "The run stopped before its end, after \(usersSoFar): \(Figures.count(applied, "change")) "
                    + "\(applied == 1 ? "was" : "were") applied, \(Figures.grouped(held)) "
                    + "\(held == 1 ? "is" : "are") held.",
                next: held > 0
                    ? "Review the changes; if they are right:" : "See the errors, and ask for another run.",
                command: held > 0 ? release : nil
            )
        }
        let exceeds = "\(countedDemotions == 1 ? "exceeds" : "exceed") the limit of \(Figures.grouped(demotionLimit))"
        let demoted = Figures.count(countedDemotions, "demotion")
        return Headline(
            tone: .warning,
            // Announced demotions count toward no limit, and may have been applied.
            happened: applied == 0 || held >= demotions
                ? "Nothing was demoted: \(demoted) \(exceeds)."
                : held >= countedDemotions
                    ? "\(demoted) \(countedDemotions == 1 ? "is" : "are") held: \(countedDemotions == 1 ? "it" : "they") "
                        + "\(exceeds)."
                    : "The run stopped: \(demoted) \(exceeds).",
            next: "Review the changes; if they are right:",
            command: release
        )
    }

    private var done: Headline {
        guard !isObserved else { return observed }
        let happened =
            usersRead == 0
            ? "The run is done: there were no users to read."
            : promotions == 0 && demotions == 0
                ? "The run is done: \(Figures.count(usersRead, "user")) \(usersRead == 1 ? "was" : "were") read, and no "
                    + "user's type had to change."
                : "The run is done: of \(Figures.count(usersRead, "user")), \(Figures.grouped(promotions)) became "
                    + "\(promotions == 1 ? "a subscriber" : "subscribers") and \(Figures.grouped(demotions)) lost access."
        if held > 0 {
            return .warning(
                happened,
                next:
                    "\(Figures.count(held, "change")) \(held == 1 ? "is" : "are") held. Review them; if they are right:",
                command: release
            )
        }
        if unread > 0 {
            return .warning(
                happened,
                next:
                    "The stores did not answer for \(Figures.count(unread, "user")): see the errors, and ask for them "
                    + "again."
            )
        }
        let keep = keepers
        return Headline(
            tone: keep.isEmpty ? .good : .plain,
            happened: happened,
            next: keep.isEmpty ? "Nothing is left to do." : keep.joined(separator: " ")
        )
    }

    /// Who would have lost access, and what holds that back, a sentence each.
    private var keepers: [String] {
        [
            ("promote_only", "while workers run with MODE=promote_only"),
            ("demotions_paused", "until demotions are resumed (entitlement-sync resume demotions)"),
            ("brake", "until the limit of a day allows more demotions"),
        ].compactMap { rule, reason in
            guard let users = rules[rule], users > 0 else { return nil }
            let keep = users == 1 ? "keeps" : "keep"
            return "\(Figures.count(users, "user")) would have lost access, and \(keep) it \(reason)."
        }
    }

    private var observed: Headline {
        Headline(
            tone: unread > 0 ? .warning : .plain,
            happened: "The run is done, and nothing was written, for it was only observed: of "
                + "\(Figures.count(usersRead, "user")), \(change).",
            next: "Compare it with what the application did:",
            command: "entitlement-sync shadow"
        )
    }

    /// What would become of types.
    private var change: String {
        "\(Figures.grouped(promotions)) would become \(promotions == 1 ? "a subscriber" : "subscribers") and "
            + "\(Figures.grouped(demotions)) would lose access"
    }

    private var predicted: Headline {
        if exceedsLimit, let demotionLimit {
            return .warning(
                "Nothing was changed, and the run would stop: \(Figures.count(countedDemotions, "demotion")) "
                    + "would exceed the limit of \(Figures.grouped(demotionLimit)).",
                next: "Review the changes and the stores' settings; if they are right:",
                command: state == "done" ? release : nil
            )
        }
        let beginning = state == "stopped" ? "The dry run stopped before its end" : "The dry run is done"
        let change = promotions == 0 && demotions == 0 ? "no user's type would change" : change
        return Headline(
            tone: state == "stopped" || unread > 0 ? .warning : .good,
            happened: users == 0
                ? "\(beginning): there were no users to read, and nothing was changed."
                : "\(beginning), and nothing was changed: of \(Figures.count(users, "user")), \(change).",
            next: unread > 0
                ? "The stores did not answer for \(Figures.count(unread, "user")): see the errors, and ask again."
                : promotions == 0 && demotions == 0
                    ? "Nothing is left to do." : "Review the changes; if they are right, have just these written:",
            command: unread == 0 && promotions + demotions > 0 && state == "done" ? release : nil
        )
    }

    private var canceled: Headline {
        .warning(
            isDryRun
                ? "The dry run was canceled after \(usersSoFar), and nothing was changed."
                : "The run was canceled after \(usersSoFar): "
                    + (applied == 0
                        ? "nothing was changed."
                        : "\(Figures.count(applied, "change")) had been applied, and "
                            + "\(applied == 1 ? "stays" : "stay")."),
            next: "Ask for another run to read the others."
        )
    }
}
