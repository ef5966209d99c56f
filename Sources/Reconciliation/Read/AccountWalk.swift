import Entitlements
import FoundationEssentials
import Ledger
import Logging
import Queue
import ServiceLifecycle
import StoreClients

/// Walks through the host's users, so that the ids that apps derive from theirs lead back to them.
///
/// One process walks at a time. It pauses after each batch for as long as the batch took, except while jobs wait for it.
struct AccountWalk: Service {
    let index: AccountIndex
    let accounts: AccountIDs
    let needed: Signal
    let logger: Logger
    private let holder = UUID()

    /// Users that are read at a time.
    private static let batch = 5000

    package func run() async {
        await PeriodicService(
            "account walk",
            .untilEnd,
            every: .seconds(1),
            retryingAfter: .seconds(2),
            wokenBy: needed,
            logger: logger
        ) {
            try await walk() ? .again : .idle
        }.run()
    }

    /// Makes one walk where one is due; returns whether one was made to its end.
    func walk() async throws -> Bool {
        let clock = ContinuousClock()
        let began = clock.now
        guard try await index.beginWalk(holder) != nil else { return false }
        var ids = try await index.newest(Self.batch)
        var last: String?
        var users = 0
        while true {
            let started = clock.now
            // The next users are read while these are written.
            let seen = last
            async let following = index.page(after: seen, upTo: Self.batch)
            let roots = ids.flatMap { id in accounts.roots(of: id).map { (root: $0, userID: id) } }
            guard let isAwaited = try await index.add(roots, holder) else {
                logger.info("another process walks through the users by now")
                return false
            }
            ids = try await following
            guard let next = ids.last else { break }
            // An adapter that gives out the same page again would never come to an end.
            guard last.map(next.isExactly) != true else { throw EndlessPages() }
            last = next
            users += ids.count
            if !isAwaited { try await clock.sleep(for: min(clock.now - started, .seconds(1))) }
        }
        try await index.endWalk(holder, users: users)
        logger.info(
            "the index of account ids was filled",
            metadata: ["users": "\(users)", "seconds": "\((clock.now - began) / .seconds(1))"]
        )
        return true
    }

    private struct EndlessPages: Error {}
}
