import FoundationEssentials

extension RunReport {
    /// The report as one JSON document on one line, always in the same bytes; dates are in UTC with milliseconds.
    ///
    /// Every key is written, so that readers need not ask which there are: `null` for what is not known.
    ///
    /// - Throws: `EncodingError` where a figure is no number.
    package func json() throws -> String {
        let object: JSONObject = [
            "run": run, "scope": scope, "dry_run": isDryRun, "state": state, "schedule": schedule,
            "asked_by": askedBy, "since": since.map(Timestamp.machine), "asked_at": Timestamp.machine(askedAt),
            "started_at": startedAt.map(Timestamp.machine), "ended_at": endedAt.map(Timestamp.machine),
            "predicted_end": predictedEnd.map(Timestamp.machine), "observed": isObserved, "users": users,
            "skipped": skipped, "total": total, "outcomes": outcomes, "rules": rules, "errors": errors,
            "promotions": promotions, "demotions": demotions, "announced_demotions": announcedDemotions,
            "applied": applied, "held": held, "demotion_limit": demotionLimit, "subscribers": subscribers,
            "hash": hash, "users_per_second": usersPerSecond,
            "progress": progress.map { ["at": Timestamp.machine($0.at), "users": $0.users] as JSONObject },
            "drift": drift?.json, "lists": lists, "changes": changes.map(\.json), "changes_total": changesTotal,
        ]
        return try object.jsonLine()
    }
}

extension RunReport.Drift {
    fileprivate var json: JSONObject {
        [
            "compared": compared,
            "agreeing": agreeing,
            "oldest_evidence_seconds": oldestEvidenceSeconds,
            "convergence_seconds": ["p50": convergenceSeconds.p50, "p95": convergenceSeconds.p95] as JSONObject,
        ]
    }
}

extension RunReport.Change {
    fileprivate var json: JSONObject {
        [
            "user_id": userID, "outcome": outcome, "rule": rule, "explanation": explanation,
            "type_before": typeBefore, "type_after": typeAfter, "assets": assets, "state": state,
        ]
    }
}
