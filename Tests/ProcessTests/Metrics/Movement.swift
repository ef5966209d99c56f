/// A metric, what made it move in the scenes, and how one sees that it did.
struct Movement: Sendable, CustomStringConvertible {
    enum Sign: Sendable {
        /// At least this.
        case least(Double)
        /// Between the two, the ends included.
        case within(Double, Double)
        /// This was seen, and before or after it something else.
        case toggled(Double)
        /// It stays at 0 as long as nothing is wrong with the program itself.
        case none
    }

    var name: String
    var labels: [String: String]
    var sign: Sign
    var cause: String

    var description: String {
        let text = labels.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }.joined(separator: ",")
        return "\(name){\(text)}: \(cause)"
    }

    init(_ subject: String, _ sign: Sign, _ cause: String) { self.init(subject, [:], sign, cause) }

    init(_ subject: String, _ labels: [String: String], _ sign: Sign, _ cause: String) {
        name = "entitlement_sync_" + subject
        self.labels = labels
        self.sign = sign
        self.cause = cause
    }

    /// Whether the sign is in any of the scrapes.
    func isSeen(in scrapes: [Exposition]) -> Bool {
        let values = scrapes.compactMap { $0.value(name, labels) }
        return switch sign {
        case .least(let least): values.contains { $0 >= least }
        case .within(let low, let high): values.contains { (low...high).contains($0) }
        case .toggled(let value): values.contains(value) && values.contains { $0 != value }
        case .none: !values.isEmpty && values.allSatisfy { $0 == 0 }
        }
    }

    static let all: [Movement] =
        outcomes + queue + stores + directly + [
            Movement("jobs_claimed_total", ["lane": "restore"], .least(8), "restores were asked for"),
            Movement("jobs_claimed_total", ["lane": "event"], .least(1), "a restore found that the paid time is over"),
            Movement("jobs_claimed_total", ["lane": "sweep"], .least(4), "reconciles were asked for"),
            Movement("jobs_claimed_total", ["lane": "quarantine"], .least(1), "a job was put aside to run alone"),
            Movement("jobs_retried_total", .least(1), "a store failed for one customer"),
            Movement("jobs_postponed_total", .least(1), "the host held a user's row"),
            Movement("jobs_lost_total", .least(1), "a job was taken away while its store was asked"),
            Movement("jobs_rescued_total", .least(1), "a job stood under the lease of a dead worker"),
            Movement(
                "unknown_statuses_total",
                ["store": "revenuecat"],
                .within(1, 1),
                "47: a store gave a status that nobody knows, and access with it"
            ),
            Movement("build_info", ["mode": "full"], .within(1, 1), "a worker runs"),
            Movement("leases_lost_total", .least(1), "the worker's lease was ended"),
            Movement(
                "service_failures_total",
                ["service": "queue_compactor"],
                .least(1),
                "the function that it calls was away"
            ),
            Movement("apply_batch_jobs", .least(5), "batches were written"),
            Movement("apply_duration_seconds", .least(5), "batches were written"),
            Movement("commit_duration_seconds", .least(5), "batches were committed"),
            Movement("restore_duration_seconds", .least(7), "restores were answered"),
            Movement("assets_changed_total", .least(3), "two assets were unfrozen and one was frozen"),
            Movement("law_broken", ["law": "one_decision"], .within(1, 1), "a decision was deleted"),
            Movement("law_broken", ["law": "none_lost"], .within(0, 0), "nobody's request was"),
            Movement("drift_checked_users", .least(10), "laws were looked at"),
            Movement(
                "drift_users",
                ["kind": "subscriber_without_access"],
                .within(1, 1),
                "the host made a payer of nobody"
            ),
            Movement("drift_users", ["kind": "free_with_access"], .within(1, 1), "the host took a payer's type away"),
            Movement("drift_users", ["kind": "evidence_overdue"], .within(1, 1), "a period ended, and nobody looked"),
            Movement("evidence_oldest_seconds", .within(432_000, 433_000), "a reading is five days old"),
            Movement("record_agreement_ratio", .within(0.5, 0.99), "two records are astray"),
            Movement("convergence_seconds", ["share": "0.95"], .within(0.001, 3600), "users became subscribers"),
            Movement("app_up", ["app": "golf"], .within(0, 0), "an app's file is broken"),
            Movement("app_up", ["app": "games"], .within(1, 1), "another app's file is not"),
            Movement("scheduler_leads", .within(0, 1), "a process follows schedules"),
            Movement(
                "schedule_late_seconds",
                ["schedule": "weekly"],
                .within(3600, 4600),
                "a slot waits since an hour"
            ),
            Movement("due_users", .least(0), "looks are counted"),
            Movement("due_oldest_seconds", .least(0), "looks are counted"),
            Movement("runs", ["state": "reading"], .within(1, 1), "a run goes on"),
            Movement("runs", ["state": "stopped"], .within(1, 1), "a run waits for a person"),
            Movement("run_left_users", ["run": "1"], .within(40, 40), "sixty of a hundred were read"),
            Movement("run_end_seconds", ["run": "1"], .within(1, 60), "one is read each second"),
            Movement("sweep_day_ratio", .least(0), "somebody has looked how many are due within a day"),
            Movement("alarm", ["name": "flapping"], .least(1_700_000_000), "an alarm was raised"),
            Movement("requests_per_read", ["store": "revenuecat"], .least(10), "users were read"),
            Movement("metrics_dropped_series_total", .none, "nothing dropped a series"),
        ]

    private static let outcomes: [Movement] =
        [
            ("restore", "restored"), ("restore", "already_subscriber"), ("restore", "nothing_to_restore"),
            ("restore", "not_eligible"), ("restore", "store_account_mismatch"), ("restore", "store_unavailable"),
            ("restore", "canceled"), ("reconcile", "promoted"), ("reconcile", "demoted"), ("reconcile", "unchanged"),
            ("reconcile", "deferred"), ("reconcile", "not_eligible"), ("reconcile", "store_unavailable"),
        ].map { kind, outcome in
            Movement("jobs_ended_total", ["kind": kind, "outcome": outcome], .least(1), "such a job ended")
        }

    /// Each place of the queue holds as many as its number, so that none is mistaken for another.
    private static let queue: [Movement] = QueuePlace.all.flatMap { place in
        [
            Movement("queue_jobs", place.labels, .within(place.jobs, place.jobs), "jobs were put there"),
            Movement("queue_oldest_seconds", place.labels, .within(3600, 4000), "they are an hour old"),
        ]
    }

    private static let stores: [Movement] = [
        Movement("http_client_requests_total", ["target": "revenuecat", "outcome": "2xx"], .least(10), "it answered"),
        Movement("http_client_requests_total", ["target": "revenuecat", "outcome": "5xx"], .least(1), "it failed"),
        Movement(
            "http_client_request_duration_seconds",
            ["target": "revenuecat", "outcome": "2xx"],
            .least(10),
            "it answered"
        ),
        Movement(
            "store_requests_total",
            ["status": "2xx", "endpoint": "/projects/{project}/customers/{customer}/subscriptions"],
            .least(10),
            "it answered"
        ),
        Movement("store_requests_total", ["status": "4xx"], .least(1), "it does not know a customer"),
        Movement("store_requests_total", ["status": "5xx"], .least(1), "it failed"),
        Movement(
            "store_request_duration_seconds",
            ["store": "revenuecat", "status": "2xx"],
            .least(10),
            "it answered"
        ),
        Movement("store_breaker_open", ["store": "revenuecat"], .toggled(1), "a store was down, and another was not"),
        Movement("store_budget_requests", ["store": "revenuecat"], .within(0, 59.9), "of 60 some were spent"),
        Movement("store_blocked_seconds", ["store": "revenuecat"], .within(1, 120), "a 429 asked for two minutes"),
    ]
}

extension Movement {
    /// What moves where the stores themselves are asked.
    fileprivate static let directly: [Movement] = [
        Movement("proofs_total", ["kind": "storekit_jws", "result": "verified"], .least(1), "a device showed one"),
        Movement(
            "proofs_total",
            ["kind": "storekit_jws", "result": "bad_signature"],
            .least(1),
            "somebody altered one"
        ),
        Movement("proofs_total", ["kind": "app_receipt", "result": "verified"], .least(1), "a device showed one"),
        Movement("proofs_total", ["kind": "onside_history", "result": "verified"], .least(1), "a device showed one"),
        Movement("acknowledgements_total", ["result": "accepted"], .least(1), "a sale was granted"),
        Movement("store_requests_total", ["store": "app_store", "status": "2xx"], .least(2), "it was asked"),
        Movement("store_requests_total", ["store": "google_play", "status": "2xx"], .least(2), "it was asked"),
        Movement("store_requests_total", ["store": "onside", "status": "2xx"], .least(1), "it was asked"),
        Movement("requests_per_read", ["store": "app_store"], .least(1), "a user was read"),
        Movement("http_requests_total", ["route": "/v1/restores", "status": "2xx"], .least(1), "an app asked"),
        Movement("http_requests_total", ["route": "/v1/entitlement", "status": "4xx"], .least(1), "a stranger asked"),
        Movement("http_request_duration_seconds", ["route": "/v1/restores"], .least(1), "an app asked"),
        Movement("http_refusals_total", ["door": "app", "reason": "missing"], .least(1), "a stranger was refused"),
        Movement("events_accepted_total", ["source": "revenuecat"], .least(1), "a store said something"),
        Movement("events_examined_total", .least(1), "whom it is about was looked for"),
        Movement("firebase_claims_total", ["result": "written"], .least(1), "a user was promoted"),
        Movement("outbox_messages_total", ["result": "failed"], .least(1), "nobody could be told"),
        Movement("store_budget_requests", ["store": "onside"], .within(1, 60), "of 60 some were spent"),
    ]
}

/// A lane of the queue and a state of its jobs.
struct QueuePlace: Sendable {
    var lane: Int
    var labels: [String: String]
    var jobs: Double

    static let all: [QueuePlace] = [(0, "restore"), (1, "event"), (2, "sweep"), (9, "quarantine")].enumerated()
        .flatMap { row, lane in
            ["due", "delayed", "running"].enumerated().map { column, state in
                QueuePlace(
                    lane: lane.0,
                    labels: ["lane": lane.1, "state": state],
                    jobs: Double(row * 3 + column + 1)
                )
            }
        }
}
