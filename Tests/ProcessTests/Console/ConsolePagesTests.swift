import Foundation
import Postgres
import TestSupport
import Testing

/// Every page as people with different windows, eyes and hands meet it.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct ConsolePagesTests {
    @Test func `Every page can be read and reached: desk, phone, dark, 200 %, without scripts`() async throws {
        try await ConsoleSite.with { console in
            try await console.makeCase()
            try await Self.fill(console.site)
            let claimant = try await console.site.number(
                "SELECT u.user_key FROM entitlement_sync.user_sync AS u WHERE u.user_id = 'claimant'"
            )
            try await Browser.with { browser in
                try await browser.open(console.url("/console/sign-in"))
                try await Self.look(at: "sign-in", browser)
                try await console.signIn(console.cid, in: browser)
                try await browser.open(console.url("/console/tickets/1"))
                try await browser.submit("#panel form[action$=claim]")
                let pages = [
                    ("queue", "/console"), ("queue-closed", "/console?lane=closed"), ("ticket", "/console/tickets/1"),
                    ("user", "/console/users/\(claimant)"), ("search", "/console/search?q=claimant"),
                    ("dead", "/console/dead"), ("causes", "/console/causes"), ("figures", "/console/figures"),
                    ("runs", "/console/runs"),
                    ("help", "/console/help"), ("confirm", "/console/confirm"), ("not-found", "/console/tickets/999"),
                ]
                for (name, path) in pages {
                    try await browser.open(console.url(path))
                    try await Self.look(at: name, browser)
                }
                #expect(try await browser.consoleErrors(expecting: 404) == [])
            }
            try await Browser.with { browser in
                try await console.signIn(console.root, in: browser)
                try await browser.open(console.url("/console/log"))
                try await Self.look(at: "log", browser)
            }
        }
    }

    /// What else a desk has to show.
    private static func fill(_ site: Site) async throws {
        try await site.execute(
            """
            SET search_path = entitlement_sync, public;
            INSERT INTO users (id) SELECT 'user-' || n FROM generate_series(1, 40) AS n;
            SELECT user_key_of('user-' || n) FROM generate_series(1, 40) AS n;
            INSERT INTO ticket (claimant_key, kind, store, original_id, visible, priority, clock_from, created_at)
            SELECT u.user_key, (ARRAY['paid_no_access', 'needs_proof', 'identity_collision'])[1 + u.user_key % 3],
                   (ARRAY['app_store', 'google_play', 'onside'])[1 + u.user_key % 3], 'GPA.3345-1234-5678-' || 10000 + u.user_key,
                   true, 1, now() - u.user_key * interval '3 hours', now() - u.user_key * interval '3 hours'
              FROM user_sync AS u WHERE u.user_id LIKE 'user-%';
            UPDATE evidence_request SET due_at = NULL WHERE ticket_id > 1;
            UPDATE ticket AS t SET due_at = due_of(t);
            SELECT move_ticket(t.id, 'cause_gone') FROM ticket AS t WHERE t.id % 7 = 0;
            INSERT INTO job_history (id, user_key, finished_at, kind, attempt, state, last_error)
            SELECT new_id(), u.user_key, now() - u.user_key * interval '1 minute', u.user_key % 2, 4, 'dead', 'store_unreachable'
              FROM user_sync AS u WHERE u.user_id LIKE 'user-1%';
            INSERT INTO run (scope, is_dry, state, asked_by, started_at, total, ended, skipped, outcomes, predicted_end)
            VALUES ('all', false, 'done', 'ann@desk', now() - interval '1 hour', 1000, 990, 10, '{"unchanged": 990}', NULL),
                   ('all', true, 'reading', 'ann@desk', now() - interval '1 minute', 1000000, 123456, 0,
                    '{"promoted": 12, "unchanged": 123444}', now() + interval '8 minutes'),
                   ('due', false, 'stopped', 'ann@desk', now() - interval '1 day', 1000, 1000, 0, '{"deferred": 1000}', NULL);
            """
        )
    }

    private static func look(at name: String, _ browser: Browser) async throws {
        let windows = [
            ("phone", BrowserWindow.phone), ("dark", .desktop.dark), ("desktop", .desktop), ("zoomed", .desktop.zoomed),
        ]
        // Pages share their frame, their colours and their tables.
        for (suffix, window) in Profile.cases(windows, bounded: name == "ticket" ? windows.count : 1) {
            try await browser.apply(window.calm)
            try await browser.screenshot("\(name)-\(suffix)")
            let faults = try await browser.accessibilityFaults()
            #expect(faults == [], "\(name), \(suffix): \(faults)")
            let overflow = try await browser.script(
                "return document.documentElement.scrollWidth > document.documentElement.clientWidth"
            )
            #expect(overflow.flag == false, "\(name), \(suffix): wider than the window")
        }
        try await browser.apply(.desktop.calm)
        let faults = try await browser.walkFocus().faults
        #expect(faults == [], "\(name): \(faults)")
    }
}
