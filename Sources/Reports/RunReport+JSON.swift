package import FoundationEssentials

extension RunReport {
    /// Writes reports always in the same bytes: keys in order, dates in UTC with milliseconds, `null` for what is not known.
    package static var encoder: JSONEncoder {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        encoder.dateEncodingStrategy = .custom { date, encoder in
            var container = encoder.singleValueContainer()
            try container.encode(Timestamp.machine(date))
        }
        return encoder
    }

    /// Reads what `encoder` writes.
    package static var decoder: JSONDecoder {
        let decoder = JSONDecoder()
        decoder.dateDecodingStrategy = .custom { decoder in
            let container = try decoder.singleValueContainer()
            guard let date = Timestamp.date(try container.decode(String.self)) else {
                throw DecodingError.dataCorruptedError(in: container, debugDescription: "no instant in UTC")
            }
            return date
        }
        return decoder
    }

    /// Reads a report that `json()` wrote.
    ///
    /// - Parameter json: the document.
    /// - Throws: `DecodingError`.
    package init(json: String) throws { self = try Self.decoder.decode(RunReport.self, from: Data(json.utf8)) }

    /// The report as one JSON document on one line.
    ///
    /// - Returns: the document, without a line's end.
    /// - Throws: `EncodingError` where a figure is no number.
    package func json() throws -> String { String(decoding: try Self.encoder.encode(self), as: UTF8.self) }
}

extension RunReport {
    enum CodingKeys: String, CodingKey {
        case run, scope, state, schedule, since, users, skipped, total, outcomes, rules, errors, promotions, demotions,
            applied
        case isObserved = "observed"
        case held, subscribers, hash, requests, progress, drift, lists, changes
        case isDryRun = "dry_run"
        case askedBy = "asked_by"
        case askedAt = "asked_at"
        case startedAt = "started_at"
        case endedAt = "ended_at"
        case predictedEnd = "predicted_end"
        case announcedDemotions = "announced_demotions"
        case demotionLimit = "demotion_limit"
        case usersPerSecond = "users_per_second"
        case changesTotal = "changes_total"
    }

    // Every key is written, so that readers need not ask which there are.
    package func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(run, forKey: .run)
        try container.encode(scope, forKey: .scope)
        try container.encode(isDryRun, forKey: .isDryRun)
        try container.encode(state, forKey: .state)
        try container.encode(schedule, forKey: .schedule)
        try container.encode(askedBy, forKey: .askedBy)
        try container.encode(since, forKey: .since)
        try container.encode(askedAt, forKey: .askedAt)
        try container.encode(startedAt, forKey: .startedAt)
        try container.encode(endedAt, forKey: .endedAt)
        try container.encode(predictedEnd, forKey: .predictedEnd)
        try container.encode(isObserved, forKey: .isObserved)
        try container.encode(users, forKey: .users)
        try container.encode(skipped, forKey: .skipped)
        try container.encode(total, forKey: .total)
        try container.encode(outcomes, forKey: .outcomes)
        try container.encode(rules, forKey: .rules)
        try container.encode(errors, forKey: .errors)
        try container.encode(promotions, forKey: .promotions)
        try container.encode(demotions, forKey: .demotions)
        try container.encode(announcedDemotions, forKey: .announcedDemotions)
        try container.encode(applied, forKey: .applied)
        try container.encode(held, forKey: .held)
        try container.encode(demotionLimit, forKey: .demotionLimit)
        try container.encode(subscribers, forKey: .subscribers)
        try container.encode(hash, forKey: .hash)
        try container.encode(requests, forKey: .requests)
        try container.encode(usersPerSecond, forKey: .usersPerSecond)
        try container.encode(progress, forKey: .progress)
        try container.encode(drift, forKey: .drift)
        try container.encode(lists, forKey: .lists)
        try container.encode(changes, forKey: .changes)
        try container.encode(changesTotal, forKey: .changesTotal)
    }
}

extension RunReport.Drift {
    enum CodingKeys: String, CodingKey {
        case looked, agreeing
        case oldestEvidenceSeconds = "oldest_evidence_seconds"
        case convergenceSeconds = "convergence_seconds"
    }

    package func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(looked, forKey: .looked)
        try container.encode(agreeing, forKey: .agreeing)
        try container.encode(oldestEvidenceSeconds, forKey: .oldestEvidenceSeconds)
        try container.encode(convergenceSeconds, forKey: .convergenceSeconds)
    }
}

extension RunReport.Convergence {
    enum CodingKeys: String, CodingKey { case p50, p95 }

    package func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(p50, forKey: .p50)
        try container.encode(p95, forKey: .p95)
    }
}

extension RunReport.Change {
    enum CodingKeys: String, CodingKey {
        case outcome, rule, explanation, assets, state
        case userID = "user_id"
        case typeBefore = "type_before"
        case typeAfter = "type_after"
    }

    package func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(userID, forKey: .userID)
        try container.encode(outcome, forKey: .outcome)
        try container.encode(rule, forKey: .rule)
        try container.encode(explanation, forKey: .explanation)
        try container.encode(typeBefore, forKey: .typeBefore)
        try container.encode(typeAfter, forKey: .typeAfter)
        try container.encode(assets, forKey: .assets)
        try container.encode(state, forKey: .state)
    }
}
