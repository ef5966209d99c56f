import Foundation
import Postgres
import TestSupport
import Testing

/// What users and operators hand over in confidence stays out of logs, metrics and the errors of jobs.
struct SecretsTests {
    /// Every secret has this in it, whatever its form.
    private static let mark = "hunter2"
    private static let person = "jane.hunter2@example.com"

    private static let scenario = """
        customers:
          - {id: \(person), state: active}
          - {id: owner, subscriptions: [{state: active, store_subscription_identifier: "hunter2-order"}]}
          - {id: html-hunter2, state: active}
          - {id: torn-hunter2, state: active}
          - {id: refused-hunter2, state: active}
          - {id: gone-hunter2, state: active}
        faults:
          - {customer: html-hunter2, body: html}
          - {customer: torn-hunter2, body: truncated}
          - {customer: gone-hunter2, connection: drop_midway}
          - {customer: key-hunter2, status: 401}
          - {customer: wrong-hunter2, status: 400}
        """

    /// Every kind of proof, a typed id, an error's text and a key, for a user who is somebody's mail address; and users
    /// whom every kind of trouble meets.
    private static let load = """
        INSERT INTO users (id)
        SELECT unnest('{\(person),owner,html-hunter2,torn-hunter2,refused-hunter2,gone-hunter2,key-hunter2,
                        wrong-hunter2,nobody-hunter2}'::text[]);
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF NEW.id = 'refused-hunter2' THEN RAISE EXCEPTION 'the row of % is refused', NEW.id; END IF;
            RETURN NEW;
        END $$;
        CREATE TRIGGER refuse BEFORE UPDATE ON users FOR EACH ROW EXECUTE FUNCTION refuse();
        SELECT entitlement_sync.request_restore(
                   user_id         => u.id,
                   proofs          => '[{"store": "app_store", "kind": "storekit_jws", "value": "eyJ.hunter2.jws"},
                                        {"store": "app_store", "kind": "app_receipt", "value": "MIIhunter2receipt"},
                                        {"store": "google_play", "kind": "purchase_token", "value": "hunter2-token"},
                                        {"store": "onside", "kind": "onside_history", "value": "hunter2-history"},
                                        {"store": "app_store", "kind": "transaction_id", "value": "hunter2-order"}]',
                   client_error    => 'hunter2 typed this',
                   product_ids     => ARRAY['hunter2.premium'],
                   idempotency_key => 'hunter2-key-' || u.id)
          FROM users AS u
        """

    @Test("Keys, receipts, tokens, JWS and people's names are in no log, no metric and no job's error")
    func secrets() async throws {
        let simulator = try await Simulator(scenario: Self.scenario)
        let settings = [
            "LOG_LEVEL": "trace", "REVENUECAT_API_KEY": "sk_hunter2", "JOB_MAX_ATTEMPTS": "2",
            "JOB_BACKOFF_CAP_MS": "60",
        ]
        try await Site.with(store: simulator.url, settings: settings) { site in
            var site = site
            // The server asks nobody for a password, and libpq has one to lose all the same.
            site.settings["DATABASE_URL"] = try site.database.tcpURL + " password=hunter2"
            try await site.execute(Self.load)
            // They are there to be told: the search below would find them.
            let content = try await site.content()
            for secret in ["eyJ.hunter2.jws", "MIIhunter2receipt", "hunter2-token", "hunter2 typed this", Self.person] {
                #expect(content.contains(secret))
            }
            let worker = try await MeteredWorker(of: site)
            try await site.waitUntil(
                "SELECT (count(*) = 0)::integer::bigint FROM entitlement_sync.queue",
                comment: "jobs do not end"
            )
            let metrics = try await worker.text()
            let log = try await worker.stop().err
            #expect(log.split(separator: "\n").count > 5, "there is a log to look at")
            let errors = try await site.texts(
                "SELECT DISTINCT s.last_error FROM entitlement_sync.job_status AS s WHERE s.last_error IS NOT NULL"
            )
            // The troubles did meet them, so their words had every chance to get out.
            #expect(Set(errors).isSuperset(of: ["malformed", "unauthorized", "data_refused"]), "\(errors)")
            for (name, text) in [("log", log), ("metrics", metrics), ("errors", errors.joined(separator: "\n"))] {
                let lines = text.split(separator: "\n").filter { $0.localizedCaseInsensitiveContains(Self.mark) }
                #expect(lines.isEmpty, "\(name): \(lines.prefix(3))")
            }
        }
    }
}
