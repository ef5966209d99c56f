import Logging
import Postgres
import Synchronization
import Testing
import UserRequests
@testable import WebAPI

/// Restores on their way into the queue.
@Suite struct RestoreIntakeTests {
    @Test(.timeLimit(.minutes(10)))
    func `Whoever works beside it is told even where nobody knows whether they arrived`() async {
        let logger = Logger(label: "intake") { _ in SwiftLogNoOpLogHandler() }
        let nowhere = PostgresConfiguration(
            connectionString: "host=127.0.0.1 port=1",
            acquireTimeout: .milliseconds(50)
        )
        let pool = PostgresPool(configuration: nowhere, logger: logger)
        let told = Atomic(0)
        let intake = RestoreIntake(requests: AppRequests(pool: pool)) { told.add(1, ordering: .relaxed) }
        await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await intake.run() }
            await #expect(throws: PostgresError.self) { try await intake.accept(RestoreWish(userID: "ann")) }
            group.cancelAll()
        }
        #expect(told.load(ordering: .relaxed) == 1)
        await pool.close()
    }
}
