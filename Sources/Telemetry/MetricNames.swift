/// The names of the program's metrics, and what each of them tells.
///
/// Lower targets count under these names without importing this one; here they get their help texts. A counter's name
/// ends in `_total` and a timer's in `_seconds`: the registry adds the ending where it is missing.
package enum MetricNames {
    package static let prefix = "entitlement_sync_"

    /// A name of ours, from what is measured, in snake_case, with its base unit: `queue_oldest_seconds`.
    package static func name(_ subject: String) -> String { prefix + subject }

    /// Series that were asked for and not kept; see ``Registry``.
    static let droppedSeries = name("metrics_dropped_series_total")

    package static let help: [String: String] = [
        droppedSeries: "Series that were not kept, because there are too many or their name has another type.",
        name("build_info"): "1, with the version and the MODE of this process.",
        name("http_client_requests_total"): "Requests sent, by kind of host, status class and error.",
        name("http_client_request_duration_seconds"): "Time from sending a request to the end of its answer.",
        name("store_requests_total"): "Requests to stores, by store, endpoint and status class.",
        name("store_request_duration_seconds"): "Time of requests to stores, by store and status class.",
        name("store_breaker_open"): "1 while a store fails so often that it is left alone.",
        name("store_budget_requests"): "Requests that the shared budget would grant at this moment.",
        name("store_blocked_seconds"): "How long a store asked everybody to wait.",
        name("queue_jobs"): "Users' rows in the queue, by lane and state.",
        name("queue_oldest_seconds"): "Age of the oldest job, by lane and state.",
        name("jobs_claimed_total"): "Jobs taken from the queue, by lane.",
        name("jobs_ended_total"): "Jobs that ended, by kind and outcome.",
        name("jobs_retried_total"): "Jobs that went back into the queue after a failed read.",
        name("jobs_postponed_total"): "Times a job waited for a row that another transaction held.",
        name("jobs_lost_total"): "Read jobs that were not this process's any more; others do them.",
        name("jobs_rescued_total"): "Jobs freed from dead workers.",
        name("unknown_statuses_total"):
            "Purchases whose status the rules do not know; their access is followed, by store.",
        name("leases_lost_total"): "Times this process found its lease ended.",
        name("service_failures_total"): "Steps of background services that failed and are repeated, by service.",
        name("apply_batch_jobs"): "Jobs in one transaction.",
        name("apply_duration_seconds"): "Time of one transaction that locks, decides, writes and commits.",
        name("commit_duration_seconds"): "Time of COMMIT alone, of every transaction.",
        name("restore_duration_seconds"): "Time from a restore's request to its committed answer.",
        name("assets_changed_total"): "Assets frozen or unfrozen in the transaction of a verdict.",
        name("law_broken"): "How often the records broke a law at its last check; anything but 0 needs a person.",
        name("drift_users"): "Users whose record and ledger disagree, by kind, among those checked last.",
        name("drift_checked_users"): "Eligible users among those that the last drift check compared.",
        name("evidence_oldest_seconds"):
            "How long ago the subscriber who waits longest was read, among those checked last.",
        name("record_agreement_ratio"):
            "Share of the users checked last whose record agrees with the ledger; 1 is all.",
        name("convergence_seconds"):
            "From a check's job to the change of type: half of a day's changes took no longer, and 95 of 100.",
        name("app_up"): "1 while the app is served, 0 while it can't be; where one process serves several.",
        name("scheduler_leads"): "1 while this process starts what schedules ask for; one process does.",
        name("schedule_late_seconds"): "For how long a schedule's slot has waited for another run's end.",
        name("due_users"): "Users whose next check is due, counted up to 100,000.",
        name("due_oldest_seconds"): "For how long the first of them has been due.",
        name("runs"): "Runs that go on or wait for a person, by state.",
        name("run_left_users"): "Users that an open run has still to read.",
        name("run_end_seconds"): "Seconds until the predicted end of an open run.",
        name("sweep_day_ratio"):
            "What a day's checks need of the requests that the stores' limits leave; above 1 it is too much.",
        name("alarm"): "When an alarm was raised last, in seconds since 1970; gone once it is mended.",
        name("proofs_total"): "Proofs that were checked, by kind and by what came of it.",
        name("acknowledgements_total"): "Calls that acknowledge sales to Google Play, by what came of them.",
        name("http_requests_total"): "Requests that the API answered, by route and status class.",
        name("http_request_duration_seconds"): "Time from a request's head to the beginning of its answer, by route.",
        name("http_refusals_total"): "Requests that were refused because of who sent them, by door and reason.",
        name("events_accepted_total"): "Events of stores that were kept, also those that came before, by source.",
        name("outbox_messages_total"): "Messages to the receiver, by what came of them.",
        name("firebase_claims_total"): "Users whose custom claims at Firebase were compared, by what came of it.",
        name("events_examined_total"): "Events whose users were searched for.",
        name("requests_per_read"): "Store requests that one read of a user took.",
    ]
}
