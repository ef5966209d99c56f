import Crypto
import Foundation
package import Logging
import Postgres
package import Storage
import Synchronization

/// How many requests a minute one key may make, counted over all processes.
///
/// Requests are taken from the shared count a few at a time, so that most of them cost no round trip; what a process has
/// taken and not used is lost with the minute. Never more than allowed are given, and at worst a few less.
package final class RequestLimit: Sendable {
    private struct Credit {
        var left: Int
        var ends: ContinuousClock.Instant
    }

    /// Keys that are remembered, at most; beyond it all are forgotten, which costs a round trip each.
    private static let mostKeys = 50_000
    /// The share of a minute's requests that is taken at once.
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
        guard !spend(key) else { return }
        let wanted = max(1, perMinute / Self.parts)
        let given: RequestCounts.Given
        do {
            given = try await take(wanted, key)
        } catch {
            logger.info("requests can't be counted", metadata: ["limit.subject": "\(subject)"])
            return
        }
        let now = ContinuousClock.now
        credits.withLock { credits in
            if credits.count >= Self.mostKeys { credits = credits.filter { $0.value.ends > now } }
            if credits.count >= Self.mostKeys { credits = [:] }
            let isOpen = (credits[key]?.ends ?? now) > now
            let left = isOpen ? credits[key]?.left ?? 0 : 0
            credits[key] = Credit(left: left + max(0, given.requests - 1), ends: now + given.wait)
        }
        guard given.requests > 0 else { throw Self.problem(given.wait) }
    }

    /// Uses one of those that were taken before; `false` where there is none.
    private func spend(_ key: [UInt8]) -> Bool {
        let now = ContinuousClock.now
        return credits.withLock { credits in
            guard let credit = credits[key], credit.ends > now, credit.left > 0 else { return false }
            credits[key]?.left -= 1
            return true
        }
    }

    private static func problem(_ wait: Duration) -> Problem {
        Problem(.tooManyRequests, retryAfterSeconds: max(1, Int(wait.components.seconds) + 1))
    }
}
