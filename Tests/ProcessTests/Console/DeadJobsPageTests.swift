import Postgres
import TestSupport
import Testing

/// The console's page of dead jobs.
@Suite(.timeLimit(.minutes(5)))
struct DeadJobsPageTests {
    @Test func `Dead jobs are shown by error and kind, and all of an error are queued again but for one's own`()
        async throws
    {
        try await ConsoleAttackTests.with { console, bea, _ in
            try await console.site.execute(
                """
                SET search_path = entitlement_sync, public;
                INSERT INTO users (id) SELECT 'dead-' || n FROM generate_series(1, 4) AS n;
                INSERT INTO job_history (id, user_key, finished_at, kind, attempt, state, last_error)
                SELECT new_id(), user_key_of('dead-' || n), now(), n % 2, 8, 'dead',
                       CASE n WHEN 4 THEN 'malformed' ELSE 'unavailable' END FROM generate_series(1, 4) AS n;
                UPDATE operator SET role = 'senior' WHERE name = 'bea';
                INSERT INTO operator_account (operator_id, user_key)
                SELECT o.id, user_key_of('dead-3') FROM operator AS o WHERE o.name = 'bea';
                """
            )
            func rows(_ query: String) async throws -> Int {
                try await bea.get("/console/dead\(query)").text.matches(of: /data-row/).count
            }
            let page = try await bea.get("/console/dead")
            #expect(page.status == 200 && page.text.matches(of: /data-row/).count == 3, "\(page.text)")
            #expect(try await rows("?error=unavailable") == 2)
            #expect(try await rows("?error=unavailable&kind=restore") == 1)
            #expect(try await rows("?error=malformed&kind=reconcile") == 0)
            #expect(!(try await bea.get("/console/dead").text.contains("Retry all")))
            #expect(
                try await bea.get("/console/dead?error=unavailable").text.contains("Retry all 2 jobs that ended with")
            )
            let key = try await bea.key()
            let restores = [("key", key), ("error", "unavailable"), ("kind", "restore")]
            let filtered = try await bea.get("/console/dead?error=unavailable&kind=restore").text
            #expect(filtered.contains("Retry all 1 restores that ended with"))
            #expect(try await bea.post("/console/dead/retry", restores)["Location"] == "/console/dead?done=retry-all")
            #expect(try await rows("?error=unavailable&kind=restore") == 0)
            #expect(try await rows("?error=unavailable") == 1)
            let fields = [("key", key), ("error", "unavailable")]
            let answer = try await bea.post("/console/dead/retry", fields)
            #expect(answer.status == 303 && answer["Location"] == "/console/dead?done=retry-all", "\(answer)")
            let jobs =
                "SELECT count(*) FROM entitlement_sync.job_status AS s WHERE s.user_id LIKE 'dead-%' AND s.state"
            // The console's process works them off.
            #expect(try await console.site.number("\(rawSQL: jobs) <> 'dead'") == 2)
            #expect(try await console.site.number("\(rawSQL: jobs) = 'dead'") == 2)
            let again = try await bea.post("/console/dead/retry", fields)
            #expect(again["Location"] == "/console/dead?not=gone", "\(again)")
        }
    }
}
