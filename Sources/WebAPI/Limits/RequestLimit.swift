import Crypto
import Foundation
package import Logging
import Postgres
package import Storage
import Synchronization

/// How many requests a minute one key may make, counted over all processes.
///
/// Requests are taken from the shared count a twentieth at a time, and as many are lent to every key before anything is
/// counted at all, so that people who tap now and then cost no round trip. A process lets no more than that twentieth pass
/// beyond the limit; limits below 20 are held exactly.
package final class RequestLimit: Sendable {
    private struct Credit {
        var left: Int
        /// Lent, and not counted yet.
        var owed: Int
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
    private let credits = Mutex<[[UInt8]: Credit]>([:])

    /// Makes a limit; `nil` where it is off.
    ///
    /// - Parameters:
    ///   - perMinute: requests a minute; 0 for no limit.
    ///   - subject: what is counted, such as `address`: keys of different subjects never meet.
    ///   - counts: the count that all processes share.
    ///   - logger: hears that it can't be had.
    package convenience init?(perMinute: Int, of subject: String, counts: RequestCounts, logger: Logger) {
        self.init(perMinute: perMinute, of: subject, logger: logger) { wanted, key in
            try await counts.take(wanted, of: perMinute, for: .init(key))
        }
    }

    init?(
        perMinute: Int,
        of subject: String,
        logger: Logger,
        take: @escaping @Sendable (Int, [UInt8]) async throws -> RequestCounts.Given
    ) {
        guard perMinute > 0 else { return nil }
        self.perMinute = perMinute
        self.subject = subject
        self.take = take
        self.logger = logger
    }

    /// Counts a request.
    ///
    /// A count that can't be had stops nobody: what needs the database fails by itself, and says so better.
    ///
    /// - Parameter name: whose request it is.
    /// - Throws: `Problem` where the minute is used up.
    func count(_ name: String) async throws(Problem) {
        let key = Array(SHA256.hash(data: Data("\(subject) \(name)".utf8)))
        guard let owed = spend(key) else { return }
        let part = perMinute / Self.parts
        let given: RequestCounts.Given
        do {
            given = try await take(owed + max(1, part), key)
        } catch {
            logger.info("requests can't be counted", metadata: ["limit.subject": "\(subject)"])
            return
        }
        let now = ContinuousClock.now
        // What was lent has been used: it comes off first.
        let left = given.requests - owed
        credits.withLock { credits in
            let more = credits[key].map { $0.ends > now ? $0.left : 0 } ?? 0
            credits[key] = Credit(left: more + max(0, left - 1), owed: 0, ends: now + given.wait)
        }
        guard left > 0 else { throw Self.problem(given.wait) }
    }

    /// Uses one of those that were taken before, or of those that each key is lent.
    ///
    /// - Returns: `nil`: the request is free to go; else how many that were lent have to be counted now.
    private func spend(_ key: [UInt8]) -> Int? {
        let now = ContinuousClock.now
        let lends = perMinute / Self.parts
        return credits.withLock { credits in
            if credits.count >= Self.mostKeys { credits = credits.filter { $0.value.ends > now } }
            if credits.count >= Self.mostKeys { credits = [:] }
            guard var credit = credits[key], credit.ends > now else {
                guard lends > 0 else { return 0 }
                credits[key] = Credit(left: lends - 1, owed: lends, ends: now + .seconds(60))
                return nil
            }
            guard credit.left > 0 else {
                defer { credits[key]?.owed = 0 }
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
