#if FAULT_POINTS
    import Diagnostics
    import FaultPoints
    import Foundation
    import Glibc
    import Postgres
    import TestSupport
    import Testing

    /// What happens to a transfer on its way, and what has to come of it.
    struct SagaStory: Sendable, CustomTestStringConvertible {
        enum Event: Sendable {
            /// A worker is started, which dies at this point.
            case dies(FaultPoint)
            /// A worker is started, which dies while RevenueCat answers the call.
            case diesInFlight
            /// So long that a call whose fate is unknown has had its time.
            case tenMinutes
            /// Somebody who approved loses the role.
            case roleIsLost
        }

        var events: [Event]
        /// What goes wrong with RevenueCat besides.
        var trouble: String?
        /// Whether the purchase is the claimant's at the end.
        var isMoved = true
        /// How often RevenueCat is called.
        var calls = 1
        /// Whether the App Store is on as well, and is told whose the purchase is.
        var tellsAppStore = false

        var testDescription: String {
            let words = events.map { event in
                switch event {
                case .dies(let point): point.name
                case .diesInFlight: "in flight"
                case .tenMinutes: "ten minutes"
                case .roleIsLost: "role lost"
                }
            }
            return (words + [trouble, tellsAppStore ? "App Store" : nil].compactMap(\.self)).joined(separator: ", ")
        }

        /// Those of the bounded profile: again and again, and while the call is under way.
        static let few = [
            SagaStory(events: [.dies(.transferAllowed), .dies(.transferRead), .dies(.transferRecorded)]),
            SagaStory(events: [.diesInFlight], trouble: #"{"endpoint":"transfer","latency":"20s","times":1}"#),
        ]

        static let all: [SagaStory] =
            FaultPoint.transfer.map { SagaStory(events: [.dies($0)]) } + few
            + [
                SagaStory(
                    events: [.dies(.transferAllowed), .tenMinutes, .dies(.transferTarget), .dies(.transferCalled)]
                ),
                SagaStory(events: [.dies(.transferCalled), .dies(.transferRead), .dies(.transferRecorded)]),
                // While both users are read again.
                SagaStory(
                    events: [
                        .dies(.transferSettled), .dies(.storeBefore), .dies(.storeAfter), .dies(.commitBefore),
                        .dies(.commitLostAnswer),
                    ]
                ),
                // A call that did nothing, in words that leave a doubt; and one that did its work.
                SagaStory(
                    events: [.dies(.transferCalled)],
                    trouble: #"{"endpoint":"transfer","status":503,"times":1}"#,
                    calls: 2
                ),
                SagaStory(
                    events: [.dies(.transferRecorded)],
                    trouble: #"{"endpoint":"transfer","connection":"drop_before","times":1}"#,
                    calls: 2
                ),
                SagaStory(
                    events: [.dies(.transferCalled)],
                    trouble: #"{"endpoint":"transfer","connection":"reset_after","times":1}"#
                ),
                // None, where it may not be any more; what was moved stays moved.
                SagaStory(events: [.dies(.transferTarget), .roleIsLost], isMoved: false, calls: 0),
                SagaStory(events: [.dies(.transferAllowed), .roleIsLost, .tenMinutes], isMoved: false, calls: 0),
                SagaStory(events: [.dies(.transferCalled), .roleIsLost]),
                // The App Store was told, and nobody knows; what was moved is told of until somebody knows.
                SagaStory(events: [.dies(.transferToken)], tellsAppStore: true),
                SagaStory(
                    events: [.dies(.transferSettled), .dies(.transferToken), .dies(.transferToken)],
                    tellsAppStore: true
                ),
                SagaStory(
                    events: [.dies(.transferToken)],
                    trouble: #"{"endpoint":"app_store.token","connection":"reset_after","times":1}"#,
                    tellsAppStore: true
                ),
            ]
    }

    /// Transfers whose workers are killed at each step: exactly one or none, never half, and never called again without a
    /// reading in between.
    struct SagaKillTests {
        private static let scenario = """
            api_keys: [sk_move, {key: sk_process_tests, write: false}]
            customers:
              - {id: owner, subscriptions: [{state: active, store_subscription_identifier: "200000070000001"}]}
            """
        private static let proof = #"[{"store":"app_store","kind":"transaction_id","value":"200000070000001"}]"#

        @Test(
            "141, 142: whoever dies at a step of a transfer is followed by one that ends it once or not at all",
            .timeLimit(.minutes(5)),
            arguments: Profile.isFull ? SagaStory.all : SagaStory.few
        )
        func killed(story: SagaStory) async throws {
            try await Turnstile.shared.pass { try await Self.run(story) }
        }

        private static func run(_ story: SagaStory) async throws {
            let folder = FileManager.default.temporaryDirectory.path + "/saga-\(UUID().uuidString)"
            try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
            defer { try? FileManager.default.removeItem(atPath: folder) }
            let simulator = try await Simulator(
                scenario: scenario + (story.tellsAppStore ? SagaAppStore.scenario : ""),
                files: folder
            )
            var settings = FaultRuns.settings.merging([
                "REVENUECAT_TRANSFER_API_KEY": "sk_move", "TRANSFER_OWNER_HOURS": "0",
            ]) { $1 }
            if story.tellsAppStore { settings.merge(try SagaAppStore.settings(folder)) { $1 } }
            try await Site.with(store: simulator.url, settings: settings) { site in
                if story.tellsAppStore { try await site.execute(SagaAppStore.products) }
                try await approve(site)
                try await simulator.keepLog()
                if let trouble = story.trouble { try await simulator.inject(trouble) }
                #expect(try await act(site, "cid", "begin_transfer") == "done")
                for event in story.events {
                    try await happen(event, site, simulator)
                    try await expectWhole(site)
                }
                try await finish(site, isMoved: story.isMoved)
                try await expectEnd(of: story, site, simulator)
            }
        }

        // MARK: Before

        /// A ticket that two people have approved.
        private static func approve(_ site: Site) async throws {
            try await site.execute(
                """
                INSERT INTO users (id) VALUES ('owner'), ('claimant');
                INSERT INTO assets (user_id, frozen_reasons, frozen_at)
                SELECT 'claimant', '{subscription_lapsed}', now() FROM generate_series(1, 3);
                INSERT INTO entitlement_sync.operator (name, role) VALUES ('bea', 'approver'), ('cid', 'senior');
                INSERT INTO entitlement_sync.operator_session (digest, operator_id, kind)
                SELECT sha256(convert_to(o.name, 'UTF8')), o.id, 'console' FROM entitlement_sync.operator AS o;
                SELECT entitlement_sync.request_reconcile('owner');
                """
            )
            let worker = try await site.start("worker")
            try await site.waitUntil("SELECT count(*) FROM users WHERE id = 'owner' AND type = 'subscriber'")
            _ = try await site.texts(
                """
                SELECT entitlement_sync.request_restore('claimant', \(PostgresJSON(proof)), 'receipt_already_in_use')::text
                """
            )
            try await site.waitUntil(
                """
                WITH asked AS (SELECT entitlement_sync.request_evidence(t.id) FROM entitlement_sync.ticket AS t)
                SELECT count(*) FROM asked
                """
            )
            try await site.waitUntil(
                """
                SELECT count(*) FROM entitlement_sync.ticket AS t
                 WHERE t.evidence_id IS NOT NULL AND t.purchase_id IS NOT NULL
                   AND EXISTS (SELECT 1 FROM entitlement_sync.evidence_request AS r WHERE r.ticket_id = t.id AND r.due_at IS NULL)
                """,
                comment: "no evidence was collected"
            )
            #expect(try await act(site, "bea", "assign_ticket") == "done")
            for person in ["bea", "cid"] {
                let said = try await site.texts(
                    """
                    SELECT coalesce(entitlement_sync.approve_ticket(convert_to(\(person), 'UTF8'), 1, e.hash, '{}'), 'done')
                      FROM entitlement_sync.ticket AS t
                      JOIN entitlement_sync.ticket_evidence AS e ON e.id = t.evidence_id
                    """
                )
                #expect(said == ["done"])
            }
            try await worker.stop()
        }

        private static func act(_ site: Site, _ person: String, _ act: String) async throws -> String? {
            try await site.texts(
                """
                SELECT coalesce(entitlement_sync.\(rawSQL: act)(convert_to(\(person), 'UTF8'), 1), 'done')
                """
            ).first
        }

        // MARK: On the way

        private static func happen(_ event: SagaStory.Event, _ site: Site, _ simulator: Simulator) async throws {
            switch event {
            case .dies(let point):
                var armed = site
                armed.settings[FaultPlan.variable] = "\(point.name)=kill@1"
                let ending = try await armed.start("worker").ending()
                #expect(ending.signal == SIGKILL, "\(ending)")
                #expect(ending.err.contains("fault: \(point.name) kill"), "\(ending)")
            case .diesInFlight:
                let worker = try await site.start("worker")
                try await eventually("RevenueCat was never called") { try await simulator.calls() == 1 }
                try await worker.kill()
            case .tenMinutes:
                try await site.execute(
                    "UPDATE entitlement_sync.transfer SET called_at = called_at - interval '10 minutes'"
                )
            case .roleIsLost:
                try await site.execute("UPDATE entitlement_sync.operator SET role = 'agent' WHERE name = 'bea'")
            }
            // Whoever died holds it for two minutes.
            try await site.execute(
                "UPDATE entitlement_sync.transfer SET due = now() WHERE step NOT IN ('done', 'stopped')"
            )
            try await site.execute("UPDATE entitlement_sync.transfer_token SET due = now() WHERE state = 'due'")
        }

        /// Our records never tell of half a transfer.
        private static func expectWhole(_ site: Site) async throws {
            let halves = try await site.number(
                """
                SELECT count(*) FROM entitlement_sync.transfer AS x
                  JOIN entitlement_sync.purchase AS p ON p.id = x.purchase_id
                  JOIN entitlement_sync.ticket AS t ON t.id = x.ticket_id
                 WHERE (x.step = 'done') <> (p.owner_key = x.to_key) OR (x.step = 'done') <> (t.state = 'transferred')
                    OR (x.step = 'stopped') <> (t.state = 'new')
                """
            )
            #expect(halves == 0)
        }

        /// A worker to which nothing happens.
        private static func finish(_ site: Site, isMoved: Bool) async throws {
            let worker = try await site.start("worker")
            try await site.waitUntil(
                """
                SELECT count(*) FROM entitlement_sync.transfer AS x
                 WHERE x.step IN ('done', 'stopped') OR x.last_error = 'unsettled'
                """,
                comment: "the transfer neither ended nor waits"
            )
            // A call whose fate is unknown is given ten minutes.
            try await site.execute(
                """
                UPDATE entitlement_sync.transfer SET called_at = called_at - interval '10 minutes', due = now()
                 WHERE step = 'begun' AND last_error = 'unsettled'
                """
            )
            try await site.waitUntil("SELECT count(*) FROM entitlement_sync.transfer WHERE step IN ('done', 'stopped')")
            if isMoved {
                try await site.waitUntil("SELECT count(*) FROM users WHERE id = 'claimant' AND type = 'subscriber'")
                try await site.waitUntil("SELECT count(*) FROM users WHERE id = 'owner' AND type = 'free'")
            }
            try await site.waitUntil("SELECT (count(*) = 0)::int::bigint FROM entitlement_sync.queue")
            try await site.waitUntil(
                "SELECT (count(*) = 0)::int::bigint FROM entitlement_sync.transfer_token AS k WHERE k.state = 'due'",
                comment: "the App Store was not told"
            )
            let ending = try await worker.stop()
            #expect(!ending.err.contains(SagaAppStore.token), "tokens stand in no log")
        }

        // MARK: At the end

        private static func expectEnd(of story: SagaStory, _ site: Site, _ simulator: Simulator) async throws {
            try await expectWhole(site)
            let users = try await site.texts("SELECT u.id || ' ' || u.type FROM users AS u ORDER BY u.id")
            #expect(
                users
                    == (story.isMoved ? ["claimant subscriber", "owner free"] : ["claimant free", "owner subscriber"])
            )
            let owners = try await site.texts(
                """
                SELECT u.user_id FROM entitlement_sync.purchase AS p
                  JOIN entitlement_sync.user_sync AS u ON u.user_key = p.owner_key WHERE p.merged_into IS NULL
                """
            )
            #expect(owners == [story.isMoved ? "claimant" : "owner"], "one purchase, one owner")
            let frozen = try await site.number("SELECT count(*) FROM assets WHERE frozen_reasons <> '{}'")
            #expect(frozen == (story.isMoved ? 0 : 3))
            let rows = try await site.texts("SELECT x.step FROM entitlement_sync.transfer AS x")
            #expect(rows == [story.isMoved ? "done" : "stopped"])
            let steps = try await site.texts("SELECT s.step FROM entitlement_sync.transfer_step AS s ORDER BY s.id")
            #expect(steps.filter { $0 == "done" }.count == (story.isMoved ? 1 : 0), "\(steps)")
            let changes = try await site.texts(
                """
                SELECT d.user_id || ' ' || d.type_after FROM entitlement_sync.decision_log AS d
                 WHERE d.type_before <> d.type_after ORDER BY 1
                """
            )
            let moved = ["claimant subscriber", "owner free", "owner subscriber"]
            #expect(changes == (story.isMoved ? moved : ["owner subscriber"]), "each change has one decision")
            #expect(try await simulator.transfers() == (story.isMoved ? 1 : 0), "RevenueCat moved it once or never")
            let log = try await simulator.log()
            expectReadings(log, calls: story.calls)
            try await SagaAppStore.expectTold(of: story, site, simulator, log)
            let watch = InvariantMonitor(pool: site.pool)
            try await site.execute("DELETE FROM entitlement_sync.invariant_check")
            try await watch.run()
            let laws = try await watch.found()
            #expect(laws.count == 9 && laws.allSatisfy { $0.broken == 0 }, "\(laws)")
        }

        /// Between two calls both customers are read.
        private static func expectReadings(_ log: [String], calls expected: Int) {
            let calls = log.indices.filter { log[$0].hasSuffix("/actions/transfer") }
            #expect(calls.count == expected, "\(log)")
            for (call, next) in zip(calls, calls.dropFirst()) {
                for user in ["owner", "claimant"] {
                    let isRead = log[call..<next].contains {
                        $0.hasPrefix("GET ") && $0.contains("/customers/\(user)/")
                    }
                    #expect(isRead, "\(user) was not read between two calls: \(log)")
                }
            }
        }
    }

    extension Simulator {
        /// Keeps requests in their order from now on.
        fileprivate func keepLog() async throws {
            _ = try await fetch("DELETE", "/control/requests?log=true", from: port)
        }

        /// Requests in their order, as `METHOD /path`.
        func log() async throws -> [String] {
            struct Report: Decodable { var log: [String] }
            let body = try await fetch("GET", "/control/requests?log=true", from: port)
            return try JSONDecoder().decode(Report.self, from: body).log
        }

        /// How often it was called to move something.
        fileprivate func calls() async throws -> Int { try await log().count { $0.hasSuffix("/actions/transfer") } }

        /// How often it has moved something.
        fileprivate func transfers() async throws -> Int {
            struct Report: Decodable {
                struct Item: Decodable {
                    struct Event: Decodable { var type: String }
                    var event: Event
                }
                var events: [Item]
            }
            let body = try await fetch("GET", "/control/events", from: port)
            return try JSONDecoder().decode(Report.self, from: body).events.count { $0.event.type == "TRANSFER" }
        }

        /// Makes requests run into a fault; the body is JSON as in a scenario.
        fileprivate func inject(_ json: String) async throws {
            _ = try await fetch("POST", "/control/faults", body: json, from: port)
        }
    }
#endif
