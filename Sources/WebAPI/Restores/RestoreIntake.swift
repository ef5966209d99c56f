import Postgres
import ServiceLifecycle
import Synchronization
import UserRequests

/// Takes what apps ask for, many in one transaction.
package final class RestoreIntake: Service {
    private enum Answer: Sendable {
        case taken(AppRequests.Accepted)
        case refused(PostgresError)
        /// It would keep the others, or spoil what they ask for.
        case alone
    }

    /// Proofs that take longer than a moment to check, in bytes of JSON.
    private static let large = 32 << 10

    private let requests: AppRequests
    private let databaseWait: Duration
    private let isStopping = Atomic(false)
    private let batcher: RequestBatcher<RestoreWish, Answer>

    /// Makes an intake that takes nothing before it runs.
    ///
    /// `databaseWait`: how long a restore waits for a database that is unavailable. `onArrivals`: called once restores have been
    /// queued, and where it is unknown whether they were.
    init(requests: AppRequests, databaseWait: Duration = .zero, onArrivals: @escaping @Sendable () -> Void = {}) {
        self.requests = requests
        self.databaseWait = databaseWait
        // PostgreSQL keeps the subtransactions of a batch of so many in memory.
        batcher = RequestBatcher(batch: 50, waiting: 20_000, interval: .milliseconds(6), databaseWait: databaseWait) {
            wishes throws(DatabaseUnavailable) in
            do throws(PostgresError) {
                let answers = try await requests.restores(wishes).map(Self.answer)
                if answers.contains(where: { if case .taken = $0 { true } else { false } }) { onArrivals() }
                return answers
            } catch {
                // They may be there all the same; what comes even later is found by polling.
                onArrivals()
                // A restore that arrived is joined when it is asked for again.
                if error.isDatabaseUnavailable { throw DatabaseUnavailable() }
                // One that the database refuses fails the batch: each is asked for alone.
                return error.code == .serverError ? wishes.map { _ in .alone } : nil
            }
        }
    }

    private static func answer(_ result: Result<AppRequests.Accepted, PostgresError>) -> Answer {
        switch result {
        case .success(let accepted): .taken(accepted)
        // Another transaction has locked this user.
        case .failure(let error) where error.isRetryable: .alone
        case .failure(let error): .refused(error)
        }
    }

    /// Asks for a restore; `arrival`: when the request came, from which its wait counts.
    ///
    /// - Throws: `PostgresError`, as `AppRequests.restore(_:)` does; `closed` where the database can't be had, too many
    ///   wait or the process ends.
    func accept(
        _ wish: RestoreWish,
        since arrival: ContinuousClock.Instant = .now
    ) async throws(PostgresError) -> AppRequests.Accepted {
        guard wish.proofs.utf8.count <= Self.large else { return try await alone(wish, since: arrival) }
        switch await batcher.ask(wish, since: arrival) {
        case .taken(let accepted): return accepted
        case .refused(let error): throw error
        case .alone: return try await alone(wish, since: arrival)
        case nil: throw PostgresError(.closed, message: "restores are not taken at the moment")
        }
    }

    /// Asks for it in a transaction of its own.
    private func alone(
        _ wish: RestoreWish,
        since arrival: ContinuousClock.Instant
    ) async throws(PostgresError) -> AppRequests.Accepted {
        while true {
            do throws(PostgresError) { return try await requests.restore(wish) } catch {
                guard error.isDatabaseUnavailable, ContinuousClock.now < arrival + databaseWait,
                    !isStopping.load(ordering: .relaxed), (try? await Task.sleep(for: .milliseconds(500))) != nil
                else { throw error }
            }
        }
    }

    /// Ends the wait for the database.
    func stopWaiting() {
        isStopping.store(true, ordering: .relaxed)
        batcher.stopWaiting()
    }

    /// Takes restores until a graceful shutdown or the task's cancellation; to be ended after its callers.
    package func run() async throws {
        await untilShutdown([{ [batcher] in await batcher.run() }])
    }
}
