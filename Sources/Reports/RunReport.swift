package import FoundationEssentials

/// What a reconciliation run did, or what a dry run would do; all that pages, tables and files show of it.
///
/// Dates keep milliseconds where they are written. Everything that is data may be any text: whatever shows it escapes it.
package struct RunReport: Sendable {
    package var run: Int64
    /// Which users it is about: `due`, `all`, `since`, `users` or `diff`.
    package var scope: String
    package var isDryRun: Bool
    /// How far it is: `reading`, `applying`, `stopped`, `done` or `canceled`.
    package var state: String
    /// The name of the schedule that asked for it; `nil` where a person did.
    package var schedule: String?
    package var askedBy: String
    /// The instant that the scope `since` begins at.
    package var since: Date?
    package var askedAt: Date
    package var startedAt: Date?
    package var endedAt: Date?
    package var predictedEnd: Date?

    /// Users that the run is done with so far.
    package var users: Int64 = 0
    /// Those of them who were not read: the account's status lets nothing be decided, or they had been read since.
    package var skipped: Int64?
    /// How many are to be read; `nil` until that is known.
    package var total: Int64?
    /// Users by outcome: `promoted`, `demoted`, `unchanged`, `deferred`, `not_eligible`, `store_unavailable`.
    package var outcomes: [String: Int64] = [:]
    /// Users by the rule that decided.
    package var rules: [String: Int64] = [:]
    /// Failed readings by their code.
    package var errors: [String: Int64] = [:]

    package var promotions: Int64 = 0
    /// All demotions, those that a store had announced among them.
    package var demotions: Int64 = 0
    /// Demotions at an end that the store had announced: they do not count toward the limit.
    package var announcedDemotions: Int64 = 0
    /// Nothing was written: its workers only observe.
    package var isObserved = false
    /// Changes that were written.
    package var applied: Int64 = 0
    /// Changes that wait for a person.
    package var held: Int64 = 0
    /// How many demotions the run may make by itself.
    package var demotionLimit: Int64?
    /// How many subscribers there were; the limit is a part of them.
    package var subscribers: Int64?
    /// What a person confirms: the hash of the changes, in hexadecimal digits.
    package var hash: String?

    package var usersPerSecond: Double?
    package var progress: [Point] = []
    package var drift: Drift?
    /// What stores listed beside the reading of users, a sentence each.
    package var lists: [String]?

    /// The changes, or the first of them.
    package var changes: [Change] = []
    /// How many changes there are, those that were cut off among them.
    package var changesTotal: Int64 = 0

    /// Makes a report of a run that has read no user yet; the rest is filled in.
    package init(run: Int64, scope: String, isDryRun: Bool, state: String, askedBy: String, askedAt: Date) {
        self.run = run
        self.scope = scope
        self.isDryRun = isDryRun
        self.state = state
        self.askedBy = askedBy
        self.askedAt = askedAt
    }
}

extension RunReport {
    /// Demotions that count toward the limit: no store had announced them.
    package var countedDemotions: Int64 {
        let all = max(0, demotions)
        return all - min(max(0, announcedDemotions), all)
    }

    /// Whether more demotions count toward the limit than it allows.
    package var exceedsLimit: Bool { demotionLimit.map { countedDemotions > $0 } ?? false }

    /// Users who were read.
    var usersRead: Int64 { max(0, users - (skipped ?? 0)) }

    /// How many changes the report leaves out.
    var cutOff: Int64 { max(0, max(0, changesTotal) - Int64(changes.count)) }
}

extension RunReport {
    /// How far a run was at an instant.
    package struct Point: Sendable {
        package var at: Date
        /// Users who had been read.
        package var users: Int64

        package init(at: Date, users: Int64) {
            self.at = at
            self.users = users
        }
    }

    /// How far records had strayed from what the stores say.
    package struct Drift: Sendable {
        /// Users whose records were compared, and how many of them agreed.
        package var compared: Int64
        package var agreeing: Int64
        /// The age of the oldest evidence that a record rests on.
        package var oldestEvidenceSeconds: Double?
        /// Seconds within which half of the records, and 95 of 100, followed the stores.
        package var convergenceSeconds: (p50: Double?, p95: Double?)

        package init(
            compared: Int64,
            agreeing: Int64,
            oldestEvidenceSeconds: Double? = nil,
            convergenceSeconds: (p50: Double?, p95: Double?) = (nil, nil)
        ) {
            self.compared = compared
            self.agreeing = agreeing
            self.oldestEvidenceSeconds = oldestEvidenceSeconds
            self.convergenceSeconds = convergenceSeconds
        }
    }

    /// What becomes of one user.
    package struct Change: Sendable {
        package var userID: String
        package var outcome: String
        package var rule: String?
        package var explanation: String
        package var typeBefore: String?
        package var typeAfter: String?
        /// Assets that freeze or come back.
        package var assets: Int64
        /// How far it is: `predicted`, `held`, `applied` or `void`.
        package var state: String

        package init(
            userID: String,
            outcome: String,
            rule: String?,
            explanation: String,
            typeBefore: String?,
            typeAfter: String?,
            assets: Int64,
            state: String
        ) {
            self.userID = userID
            self.outcome = outcome
            self.rule = rule
            self.explanation = explanation
            self.typeBefore = typeBefore
            self.typeAfter = typeAfter
            self.assets = assets
            self.state = state
        }
    }
}
