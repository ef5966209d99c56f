import Foundation
import Postgres

/// The same write set as the worker's, in plain SQL by `pgbench`: 500 jobs at a time on one connection, or one by one.
struct PlainSQL {
    /// Jobs in one transaction.
    private static let batch = 500

    var configuration: PostgresConfiguration

    struct Failure: Error, CustomStringConvertible {
        var description: String
    }

    /// Where `pgbench` is: on the `PATH`, or where Debian keeps the server's own programs.
    private static let program: String? = {
        let folders = (ProcessInfo.processInfo.environment["PATH"] ?? "").split(separator: ":").map(String.init)
        let debian = (15...30).map { "/usr/lib/postgresql/\($0)/bin" }
        return (folders + debian).map { "\($0)/pgbench" }.first { FileManager.default.isExecutableFile(atPath: $0) }
    }()

    /// Does so many jobs; `publishes`: with the messages that the worker writes about them.
    ///
    /// - Returns: jobs a second.
    func run(jobs: Int, publishes: Bool = false) async throws -> Double {
        let rounds = (jobs + Self.batch - 1) / Self.batch
        let call = "CALL bench_batch(\(Self.batch), \(publishes));\n"
        let text = try await pgbench(call, ["-c", "1", "-j", "1", "-t", "\(rounds)"])
        let line = text.split(separator: "\n").first { $0.hasPrefix("tps = ") }
        guard let rate = line?.split(separator: " ").dropFirst(2).first.flatMap({ Double($0) }) else {
            throw Failure(description: "pgbench said no rate")
        }
        return rate * Double(jobs) / Double(rounds)
    }

    /// Restores one by one at a rate, as if the worker were SQL: the request's transaction, the claim's, the store's time
    /// and the apply's.
    ///
    /// Each user has one; their ids are the prefix and a number from 1.
    ///
    /// - Returns: how long each took from the moment for which it was planned, in milliseconds.
    /// - Throws: `Failure`.
    func restores(of prefix: String, perSecond: Int, seconds: Int, storeMs: Int) async throws -> [Double] {
        let script = """
            SELECT entitlement_sync.request_restore('\(prefix)' || nextval('bench_restore'));
            SELECT (bench_claim(1))[1] AS key \\gset
            \\sleep \(storeMs) ms
            SELECT bench_apply(ARRAY[:key]::bigint[]);

            """
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("bench-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: false)
        defer { try? FileManager.default.removeItem(at: folder) }
        let log = folder.appendingPathComponent("log").path
        _ = try await pgbench(
            script,
            ["-c", "80", "-j", "2", "-R", "\(perSecond)", "-T", "\(seconds)", "-l", "--log-prefix", log]
        )
        // The third field is the time since the planned start in microseconds, the fifth the second of the end.
        let lines = try FileManager.default.contentsOfDirectory(at: folder, includingPropertiesForKeys: nil).flatMap {
            try String(contentsOf: $0, encoding: .utf8).split(separator: "\n").compactMap { line in
                let fields = line.split(separator: " ").map { Double($0) ?? 0 }
                return fields.count > 4 ? (took: fields[2] / 1000, at: fields[4]) : nil
            }
        }
        // Its connections are new, and their plans: the worker's are not.
        let begins = (lines.map(\.at).min() ?? 0) + 2
        return lines.filter { $0.at >= begins }.map(\.took)
    }

    /// - Returns: what `pgbench` printed.
    private func pgbench(_ text: String, _ arguments: [String]) async throws -> String {
        guard let program = Self.program else {
            throw Failure(description: "pgbench was not found; install PostgreSQL's server or contrib package")
        }
        let script = FileManager.default.temporaryDirectory.appendingPathComponent("bench-\(UUID().uuidString).sql")
        try Data(text.utf8).write(to: script)
        defer { try? FileManager.default.removeItem(at: script) }
        let process = Process()
        process.executableURL = URL(fileURLWithPath: program)
        process.arguments = ["-n", "-f", script.path] + arguments
        // In the environment and not among the arguments, which everybody on the machine can read.
        process.environment = ProcessInfo.processInfo.environment.merging(try configuration.libpqEnvironment()) { $1 }
        let output = Pipe()
        process.standardOutput = output
        process.standardError = FileHandle.nullDevice
        let printed = try await awayFromPool {
            Result {
                try process.run()
                let data = output.fileHandleForReading.readDataToEndOfFile()
                process.waitUntilExit()
                return String(decoding: data, as: UTF8.self)
            }
        }.get()
        guard process.terminationStatus == 0 else {
            throw Failure(description: "pgbench ended with status \(process.terminationStatus)")
        }
        return printed
    }

    /// Claims queued restores, and does their write set.
    static let procedures = """
        CREATE SEQUENCE bench_restore;
        CREATE FUNCTION bench_claim(batch integer) RETURNS bigint[] LANGUAGE plpgsql AS $$
        DECLARE
            keys bigint[];
        BEGIN
            keys := ARRAY(SELECT q.user_key FROM entitlement_sync.queue AS q WHERE q.owner IS NULL AND q.lane = 0
                           ORDER BY q.lane, q.due LIMIT batch FOR UPDATE SKIP LOCKED);
            UPDATE entitlement_sync.queue AS q SET owner = 0, active = 0 WHERE q.user_key = ANY (keys);
            RETURN keys;
        END
        $$;
        CREATE FUNCTION bench_apply(keys bigint[], publishes boolean DEFAULT false) RETURNS void LANGUAGE plpgsql AS $$
        DECLARE
            ids  text[];
            top  bigint := 1000000000;
            held text := '[{"id":"premium","store":"app_store","product_id":"prod1","ends_at":"2027-01-31T09:00:00Z","will_renew":true}]';
        BEGIN
            ids := ARRAY(SELECT s.user_id FROM entitlement_sync.user_sync AS s WHERE s.user_key = ANY (keys));
            UPDATE users AS u SET type = 'subscriber', updated_at = now() WHERE u.id = ANY (ids);
            UPDATE assets AS a SET frozen_reasons = array_remove(a.frozen_reasons, 'subscription_lapsed'), frozen_at = NULL
             WHERE a.user_id = ANY (ids);
            INSERT INTO entitlement_sync.purchase (id, owner_key, observed_at, period_ends_at, gives_access, source,
                        store, environment, kind, status, ownership, renewal, product_id, owner_rule, entitlements)
            SELECT top + k, k, now(), now() + interval '20 days', true, 'revenuecat', 'app_store', 'production',
                   'subscription', 'active', 'purchased', 'will_renew', 'prod1', 'named_by_revenuecat', '{premium}'
              FROM unnest(keys) AS k;
            INSERT INTO entitlement_sync.purchase_identifier
            SELECT v.value || k, v.store, 'production', v.kind, top + k FROM unnest(keys) AS k,
                   (VALUES ('sub', 'revenuecat', 'revenuecat_id'), ('48000', 'app_store', 'store_id'))
                   AS v(value, store, kind);
            INSERT INTO entitlement_sync.observation (user_key, job_id, purchase_id, asked_at, period_ends_at,
                        gives_access, source, coverage, store, environment, kind, status, ownership, renewal,
                        product_id, attribution, entitlements, payload_hash)
            SELECT q.user_key, q.restore_id, top + q.user_key, now(), now(), true, 'revenuecat', 'partial', 'app_store',
                   'production', 'subscription', 'active', 'purchased', 'will_renew', 'prod1', 'new', '{premium}',
                   sha256(q.restore_id::text::bytea)
              FROM entitlement_sync.queue AS q WHERE q.user_key = ANY (keys);
            UPDATE entitlement_sync.user_sync AS s
               SET epoch = s.epoch + 1, read_at = now(), recorded_at = now(), ever_observed = true,
                   decided_subscriber = true, entitlements = held::json, fingerprint = md5(s.user_id)::uuid,
                   next_check_at = now() + interval '19 days'
             WHERE s.user_key = ANY (keys);
            INSERT INTO entitlement_sync.decision (user_key, job_id, assets_changed, kind, rule, outcome, type_before,
                        type_after, explanation, entitlements)
            SELECT q.user_key, q.restore_id, 1, 0, 'store_access', 'restored', 'free', 'subscriber',
                   'A store says that a purchase of this user gives access, so the user became a subscriber.', held::json
              FROM entitlement_sync.queue AS q WHERE q.user_key = ANY (keys);
            IF publishes THEN
                INSERT INTO entitlement_sync.outbox (user_key, topic, data)
                SELECT q.user_key, m.topic, replace(m.data, '$job', q.restore_id::text)::jsonb
                  FROM entitlement_sync.queue AS q
                 CROSS JOIN (VALUES
                       ('user.type_changed', '{"from":"free","to":"subscriber","rule":"store_access"}'),
                       ('entitlements.changed', format('{"before":[],"after":%s}', held)),
                       ('assets.unfrozen', '{"count":1,"more":false}'),
                       ('restore.finished', '{"job":"$job","state":"done","outcome":"restored","message_key":"restored"}'))
                       AS m(topic, data)
                 WHERE q.user_key = ANY (keys);
            END IF;
            WITH gone AS (DELETE FROM entitlement_sync.queue AS q WHERE q.user_key = ANY (keys)
                          RETURNING q.user_key, q.restore_id)
            INSERT INTO entitlement_sync.job_history (id, user_key, finished_at, kind, attempt, state, outcome, message_key)
            SELECT g.restore_id, g.user_key, clock_timestamp(), 0, 0, 'done', 'restored', 'restored' FROM gone AS g;
        END
        $$;
        CREATE PROCEDURE bench_batch(batch integer, publishes boolean) LANGUAGE plpgsql AS $$
        DECLARE
            keys bigint[];
        BEGIN
            keys := bench_claim(batch);
            COMMIT;
            PERFORM bench_apply(keys, publishes);
            COMMIT;
        END
        $$;
        """
}
