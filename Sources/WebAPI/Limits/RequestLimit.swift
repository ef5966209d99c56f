import Crypto
import Foundation
package import Logging
import Postgres
import Synchronization
package import UserRequests

/// How many requests a minute one key may make, counted over all processes.
///
/// Requests are taken from the shared count a twentieth at a time, and as many are advanced to every key before anything is
/// counted at all, so that users who tap now and then cost no round trip. A process lets no more than that twentieth pass
/// beyond the limit; limits below 20 are held exactly.
package final class RequestLimit: Sendable {
    private struct Credit {
        var left: Int
        /// Advanced, and not counted yet.
        var owed: Int
        /// The shared count has no more for this minute.
        var isLast: Bool
        var ends: ContinuousClock.Instant
    }

    /// Keys that are remembered, at most; beyond it all are forgotten, which costs a round trip each.
    private static let mostKeys = 50_000
    /// Into how many parts a minute's requests are divided; one is taken at once.
    private static let parts = 20

    private let perMinute: Int
    private let subject: String
    private let take: @Sendable (Int, [UInt8]) async throws -> RequestCounts.Given
    private let logger: Logger
    private let now: @Sendable () -> ContinuousClock.Instant
    private let credits = Mutex<[[UInt8]: Credit]>([:])

    /// Makes a limit; none for 0 requests a minute.
    ///
    /// Keys of different subjects, such as `address`, never meet.
    package convenience init?(perMinute: Int, of subject: String, counts: RequestCounts, logger: Logger) {
        self.init(perMinute: perMinute, of: subject, logger: logger) { wanted, key in
            try await counts.take(wanted, of: perMinute, for: .init(key))
        }
    }

    init?(
        perMinute: Int,
        of subject: String,
        logger: Logger,
        now: @escaping @Sendable () -> ContinuousClock.Instant = { .now },
        take: @escaping @Sendable (Int, [UInt8]) async throws -> RequestCounts.Given
    ) {
        guard perMinute > 0 else { return nil }
        self.perMinute = perMinute
        self.subject = subject
        self.take = take
        self.now = now
        self.logger = logger
    }

    /// Counts a request under a name; throws a `Problem` where the minute is used up.
    ///
    /// A count that can't be had stops no request: what needs the database fails by itself, and says so better.
    func count(_ name: String) async throws(Problem) {
        let key = Array(SHA256.hash(data: Data("\(subject) \(name)".utf8)))
        guard let owed = try spend(key) else { return }
        let asked = owed + max(1, perMinute / Self.parts)
        let given: RequestCounts.Given
        do { given = try await take(asked, key) } catch {
            logger.info("requests can't be counted", metadata: ["limit.subject": "\(subject)"])
            credits.withLock { $0[key]?.owed += owed }
            return
        }
        let now = now()
        // What was advanced has been used: it comes off first.
        let left = given.requests - owed
        credits.withLock { credits in
            let more = credits[key].map { $0.ends > now ? $0.left : 0 } ?? 0
            let isLast = given.requests < asked
            credits[key] = Credit(left: more + max(0, left - 1), owed: 0, isLast: isLast, ends: now + given.wait)
        }
        guard left > 0 else { throw Self.problem(given.wait) }
    }

    /// Uses one of those that were taken before, or of those that each key is advanced.
    ///
    /// - Returns: where the shared count has to be asked, how many were advanced and have to be counted with it.
    /// - Throws: `Problem` where the minute is used up.
    private func spend(_ key: [UInt8]) throws(Problem) -> Int? {
        let now = now()
        let advance = perMinute / Self.parts
        return try credits.withLock { credits throws(Problem) -> Int? in
            if credits.count >= Self.mostKeys { credits = credits.filter { $0.value.ends > now } }
            if credits.count >= Self.mostKeys { credits = [:] }
            guard var credit = credits[key], credit.ends > now else {
                guard advance > 0 else { return 0 }
                credits[key] = Credit(left: advance - 1, owed: advance, isLast: false, ends: now + .seconds(60))
                return nil
            }
            guard credit.left > 0 else {
                guard !credit.isLast else { throw Self.problem(credit.ends - now) }
                credits[key]?.owed = 0
                return credit.owed
            }
            credit.left -= 1
            credits[key] = credit
            return nil
        }
    }

    private static func problem(_ wait: Duration) -> Problem {
        Problem(.tooManyRequests, retryAfterSeconds: max(1, Int(wait.components.seconds) + 1))
    }
}
