import Entitlements
import Foundation
import Postgres
import Telemetry

/// Makes reference/outcomes.md.
func outcomesPage() -> String {
    var page = Page("Outcomes, message keys, rules, errors", from: "the program's lists of them")
    func list(_ title: String, _ sentence: String, _ rows: [(String, Meaning)]) {
        page.add("## \(title)")
        page.add(sentence)
        page.table(["value", "meaning and cause", "what to do"], rows.map { ["`\($0)`", $1.meaning, $1.fix] })
    }
    list(
        "Outcomes",
        "`outcome` of a job. The first six are a restore's, in this precedence; a reconcile has the others, `not_eligible` and"
            + " `store_unavailable`.",
        Outcome.allCases.map { ($0.rawValue, $0.reference) }
    )
    list(
        "Message keys",
        "`message_key` of a restore: which text the app shows.",
        MessageKey.allCases.map { ($0.rawValue, $0.reference) }
    )
    list("Rules", "`rule` of a decision: why it came out so.", Rule.allCases.map { ($0.rawValue, $0.reference) })
    page.add("## Errors of jobs")
    page.add(
        "`last_error` of a job whose read failed. After `JOB_MAX_ATTEMPTS` attempts it is dead, and can be queued again."
    )
    page.table(
        ["value", "meaning and cause", "the job", "what to do"],
        ReadFailure.Code.allCases.map { code in
            let treatment = ReadFailure(code).treatment
            return ["`\(code.rawValue)`", code.reference.meaning, treatment.reference, code.reference.fix]
        }
    )
    return page.text
}

/// Makes reference/metrics.md.
func metricsPage() -> String {
    var page = Page("Metrics", from: "the program's names of metrics")
    page.add(
        "Served at `/metrics` of the admin address for Prometheus. `deploy/alerts.yml` has the alerts, `deploy/dashboard.json`"
            + " a dashboard for Grafana."
    )
    page.table(["metric", "meaning"], MetricNames.help.sorted { $0.key < $1.key }.map { ["`\($0.key)`", $0.value] })
    return page.text
}

/// Makes reference/configuration.md.
func configurationPage(_ example: String) -> String {
    var page = Page("Configuration", from: "deploy/entitlement-sync.env.example")
    var comment: [String] = []
    var rows: [[String]] = []
    func flush() {
        if !rows.isEmpty { page.table(["variable", "example or default", "meaning"], rows) }
        rows = []
    }
    for line in example.split(separator: "\n", omittingEmptySubsequences: false).map(String.init) {
        if let section = line.firstMatch(of: /^# -+ (.+?) -+$/) {
            flush()
            page.add("## \(section.1)")
        } else if let variable = line.firstMatch(of: /^#?([A-Z][A-Z0-9_]*)=(.*)$/) {
            rows.append([
                "`\(variable.1)`", variable.2.isEmpty ? "" : "`\(variable.2)`", comment.joined(separator: " "),
            ])
            comment = []
        } else if line.hasPrefix("# ") {
            comment.append(String(line.dropFirst(2)))
        } else if !comment.isEmpty {
            flush()
            page.add(comment.joined(separator: "\n"))
            comment = []
        }
    }
    flush()
    return page.text
}

/// Makes reference/sql.md.
func sqlPage(_ pool: PostgresPool) async throws -> String {
    var page = Page("SQL", from: "the comments of the schema")
    page.add(
        """
        What an application and its team call and read, in the schema `entitlement_sync`, with the database role
        `entitlement_sync_client`. `LISTEN entitlement_sync_outcome` is sent `{"job": uuid, "outcome": text}` when a job ends; it is a
        hint, and `job_status` is the truth.
        """
    )
    let functions = try await pool.query(
        """
        SELECT p.proname::text, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid),
               coalesce(obj_description(p.oid, 'pg_proc'), '')
          FROM pg_proc AS p WHERE p.pronamespace = 'entitlement_sync'::regnamespace
           AND p.proname IN ('request_restore', 'request_reconcile', 'put_access', 'end_access') ORDER BY p.proname DESC
        """
    )
    for row in functions {
        let (name, arguments, result, comment) = try row.decode(String.self, String.self, String.self, String.self)
        page.add("## \(name)")
        page.add("    \(name)(\(arguments)) returns \(result)")
        page.add(comment.split(separator: "\n").joined(separator: "\n\n"))
    }
    for relation in [
        "job_status", "ticket_status", "entitlement_status", "decision_log", "inbox_log", "product", "sandbox_user",
    ] {
        let comment: String? = try await pool.query(
            "SELECT obj_description(('entitlement_sync.' || \(relation))::regclass, 'pg_class')"
        ).one.decode(String?.self)
        page.add("## \(relation)")
        page.add(comment ?? "")
        let columns = try await pool.query(
            """
            SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), coalesce(col_description(a.attrelid, a.attnum), '')
              FROM pg_attribute AS a
             WHERE a.attrelid = ('entitlement_sync.' || \(relation))::regclass AND a.attnum > 0 AND NOT a.attisdropped
             ORDER BY a.attnum
            """
        )
        page.table(
            ["column", "type", "meaning"],
            try columns.map { row in
                let (name, type, meaning) = try row.decode(String.self, String.self, String.self)
                return ["`\(name)`", type, meaning]
            }
        )
    }
    return page.text
}
