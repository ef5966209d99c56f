/// How the jobs of a batch end that get no verdict: they are tried again, or die.
extension BatchPlan {
    /// Plans the next try of a job, or its end, with tickets for what was proven all the same.
    mutating func tryAgain(_ item: ReadJob, after failure: ReadFailure, proven: [TicketRequest] = []) {
        switch failure.code {
        case .unauthorized:
            let store = failure.store ?? .revenueCat
            alarms[CredentialAlarm.name(of: store)] = CredentialAlarm.advice(on: store)
        case .unmapped: break
        // Not where the reading is incomplete only because its first part sufficed for a yes: that meets no limit.
        case .incomplete where item.reading.failure?.code == .incomplete:
            alarms["read_limit"] =
                "A user has more purchases\(failure.store.map { " at \($0.name)" } ?? "") than one reading asks about, so"
                + " the reading stays incomplete: find the user with entitlement-sync queue dead, error incomplete."
        case .rejected:
            alarms["request_rejected"] =
                "\((failure.store ?? .revenueCat).name) calls our request wrong: report this with the worker's log."
        case .storeOff:
            alarms["store_not_configured"] =
                "A user submitted a proof of \((failure.store ?? .revenueCat).name), or has a purchase of an app there, that is not"
                + " configured: set its variables, or its entry in STORE_APPS."
        case .ownerUnresolved:
            alarms["owner_unresolved"] =
                "Reading all users of the application took more than ten minutes, so the owners of purchases stay"
                + " unknown: see the worker's log, and measure entitlement_sync_host.page_users."
            if item.job.kind == .restore {
                // Purchases that the claimant has shown, and that may be another user's.
                tickets += item.reading.withheld.filter(\.isSubmitted).prefix(20).map {
                    WantedTicket(TicketRequest(.firstSeenElsewhere, about: $0), for: item.job)
                }
            }
        case .unclearTrust:
            alarms["proof_trust_unclear"] =
                "A proof has a genuine signature, but its certificates were not valid when it was made: check"
                + " APP_STORE_ROOT_CERTIFICATES and RECEIPT_ROOT_CERTIFICATES, and ask the store about its"
                + " certificates. The proof restores nothing."
        case .unusableID:
            alarms["user_id_unusable"] =
                "The application has users with ids that name no user (null, guest, ...): mend how it makes them."
        default: break
        }
        let next = retryPolicy.next(
            after: failure,
            attempt: item.job.attempt,
            age: item.job.queuedFor,
            jitter: jitter(),
            isRepeated: ReadFailure.isImmediateRetry(item.job.lastError)
        )
        switch next {
        case .again(let wait, let attempt):
            retries.append(retry(item, after: wait, attempt: attempt, error: failure.code.rawValue))
        case .dead(let attempt):
            let outcome = proven.isEmpty ? Outcome.storeUnavailable : .storeAccountMismatch
            var dead = JobEnd(item.job, .dead, outcome: outcome)
            dead.attempt = attempt
            if item.job.kind == .restore { dead.messageKey = proven.isEmpty ? .unavailable : .mismatch }
            dead.lastError = failure.code.rawValue
            ends.append(dead)
            tickets += proven.map { WantedTicket($0, for: item.job) }
        }
    }

    private func retry(_ item: ReadJob, after wait: Duration, attempt: Int, error: String) -> JobRetry {
        JobRetry(userKey: item.job.userKey, kind: item.job.kind, after: wait, attempt: attempt, error: error)
    }
}
