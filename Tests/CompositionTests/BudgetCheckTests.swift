import Diagnostics
@testable import Composition
import Entitlements
import Runs
import Testing

/// Whether a day suffices, and what would do.
struct BudgetCheckTests {
    /// 480 requests a minute less 30 % for people leave 483,840 a day, which is 403,200 users.
    private static let forecast = RunForecast(requestsPerMinute: 480, reserved: 0.3)

    private static func check(_ looks: Int64, known: Int64 = 0, days: Int64 = 0) -> Check {
        BudgetCheck.check(.init(checks: looks, known: known, backgroundDays: days, perMinute: 480), forecast)
    }

    @Test func `A day that suffices is fine, and one that hardly does is told of before`() {
        let fine = Self.check(40_320)
        #expect(fine.ok && fine.detail.contains("(40320) need about 48384 requests, 10 %"), "\(fine.detail)")
        #expect(Self.check(322_000).ok)
        let scarce = Self.check(323_000)
        #expect(!scarce.ok && scarce.detail.contains("81 %"), "\(scarce.detail)")
        #expect(Self.check(0).ok)
    }

    @Test func `What is proposed would do`() throws {
        let check = Self.check(500_000)
        let wanted = try #require(
            check.fix.firstMatch(of: /REVENUECAT_REQUESTS_PER_MINUTE=(\d+)/).flatMap { Int($0.1) }
        )
        let larger = RunForecast(requestsPerMinute: Double(wanted), reserved: 0.3)
        #expect(BudgetCheck.check(.init(checks: 500_000, known: 0, backgroundDays: 0, perMinute: wanted), larger).ok)
        #expect(!check.fix.contains("BACKGROUND_CHECK_DAYS"))
    }

    @Test func `Where the background is what is too much, fewer looks are proposed, and only where that would do`()
        throws
    {
        // 12 million within 30 days are 400,000 a day; 20,000 are looked at for other reasons.
        let check = Self.check(420_000, known: 12_000_000, days: 30)
        let days = try #require(
            check.fix.firstMatch(of: /BACKGROUND_CHECK_DAYS=(\d+) instead of 30/).flatMap { Int64($0.1) }
        )
        #expect(Self.check(20_000 + 12_000_000 / days, known: 12_000_000, days: days).ok)
        #expect(
            !Self.check(20_000 + 12_000_000 / (days - 2), known: 12_000_000, days: days - 2).ok,
            "no more than needed"
        )
        #expect(!Self.check(800_000, known: 3_000_000, days: 30).fix.contains("BACKGROUND_CHECK_DAYS"))
    }

    @Test func `Where nothing limits looks, or nobody has counted them, nothing is wrong`() {
        #expect(BudgetCheck.check(nil, Self.forecast).ok)
        let day = BudgetCheck.Day(checks: 1_000_000_000, known: 0, backgroundDays: 0, perMinute: 0)
        #expect(BudgetCheck.check(day, RunForecast(requestsPerMinute: nil)).ok)
    }
}
