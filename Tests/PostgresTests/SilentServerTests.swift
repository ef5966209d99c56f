import Glibc
import TestSupport
import Testing

@testable import Postgres

/// A server process that is stopped stands for a peer that vanished without a word.
@Suite(.database) struct SilentServerTests {
    @Test func `a check with a round trip finds out whether the server answers`() async throws {
        try await withConnection { connection in
            let isAlive = await connection.isAlive(roundTrip: true)
            #expect(isAlive)
            let pid = await connection.backendPID
            #expect(kill(pid, SIGSTOP) == 0)
            defer { kill(pid, SIGCONT) }
            let looksAlive = await connection.isAlive(roundTrip: false)
            let answers = await connection.isAlive(roundTrip: true)
            #expect(looksAlive && !answers)
            #expect(await !connection.isOpen)
        }
    }

    @Test func `a statement that the server does not stop is given up, with its connection`() async throws {
        try await withConnection { connection in
            try await withConnection { observer in
                let task = Task { try await failure { try await connection.query("SELECT pg_sleep(60) /* deaf */") } }
                try await statementRuns("/* deaf */", seenBy: observer)
                let pid = await connection.backendPID
                #expect(kill(pid, SIGSTOP) == 0)
                defer { kill(pid, SIGCONT) }
                let start = ContinuousClock.now
                task.cancel()
                #expect(try await task.value.code == .cancelled)
                #expect(ContinuousClock.now - start >= PostgresConnection.settleLimit)
                #expect(await !connection.isOpen)
            }
        }
    }
}
