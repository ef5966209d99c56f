import FoundationEssentials

/// A name and what stands beside it, for a page as for a terminal.
struct Fact {
    enum Value {
        case text(String)
        case instant(Date)
        case code(String)
    }

    var name: String
    var value: Value

    /// The value for a terminal.
    var text: String {
        switch value {
        case .text(let text), .code(let text): text
        case .instant(let date): Timestamp.shown(date)
        }
    }

    init?(_ name: String, _ value: Value?) {
        guard let value else { return nil }
        self.name = name
        self.value = value
    }

    init?(_ name: String, _ number: Int64?) { self.init(name, number.map { .text(Figures.grouped($0)) }) }

    init?(_ name: String, at date: Date?) { self.init(name, date.map(Value.instant)) }

    init?(_ name: String, seconds: Double?) { self.init(name, seconds.map { .text(Figures.seconds($0)) }) }
}

extension RunReport {
    /// What the run is.
    var identity: [Fact] {
        [
            Fact("Run", .text("\(run)")),
            Fact("Kind", .text(isDryRun ? "dry run: it changes nothing" : isObserved ? "run, only observed" : "run")),
            Fact("State", .text(state)),
            Fact("Scope", .text(scope)),
            Fact("Since", at: since),
            Fact("Schedule", schedule.map(Fact.Value.text)),
            Fact("Asked for by", .text(askedBy.isEmpty ? "–" : askedBy)),
            Fact("Asked for at", at: askedAt),
            Fact("Started", at: startedAt),
            Fact("Ended", at: endedAt),
            endedAt == nil ? Fact("Should end", at: predictedEnd) : Fact("Was to end", at: predictedEnd),
            Fact("Hash of the changes", hash.map(Fact.Value.code)),
        ].compactMap(\.self)
    }

    /// What was counted.
    var numbers: [Fact] {
        [
            Fact("Users read", usersRead),
            Fact("Users not read", skipped),
            Fact("Users to read", total),
            Fact(isObserved ? "Promotions, only observed" : "Promotions", promotions),
            Fact(isObserved ? "Demotions, only observed" : "Demotions", demotions),
            // No limit is asked for what is only observed.
            isObserved ? nil : Fact("Announced by a store", announcedDemotions),
            isObserved ? nil : Fact("Count toward the limit", countedDemotions),
            Fact("Limit of demotions", demotionLimit),
            Fact("Changes applied", applied),
            Fact("Changes held", held),
            Fact("Subscribers", subscribers),
            Fact("Users a second", usersPerSecond.map { .text(Figures.decimal($0)) }),
        ].compactMap(\.self)
    }

    /// How far records had strayed; empty where that was not checked.
    var strayed: [Fact] {
        guard let drift else { return [] }
        return [
            Fact("Users compared", drift.compared),
            Fact("Records that agreed", drift.agreeing),
            Fact("Oldest evidence", seconds: drift.oldestEvidenceSeconds),
            Fact("Half of the changes within", seconds: drift.convergenceSeconds.p50),
            Fact("95 of 100 changes within", seconds: drift.convergenceSeconds.p95),
        ].compactMap(\.self)
    }

    /// Users by outcome: those that are known in their order, then others.
    var orderedOutcomes: [(name: String, number: Int64)] {
        let known = ["promoted", "demoted", "unchanged", "deferred", "not_eligible", "store_unavailable"]
        return known.compactMap { name in outcomes[name].map { (name, $0) } }
            + Self.ordered(outcomes.filter { !known.contains($0.key) })
    }

    /// The largest first.
    static func ordered(_ numbers: [String: Int64]) -> [(name: String, number: Int64)] {
        numbers.sorted { ($1.value, $0.key) < ($0.value, $1.key) }.map { ($0.key, $0.value) }
    }
}
