package import Testing

/// Gives each test a database of its own, dropped afterwards: `@Test(.database) func …` with `TestDatabase.current`.
package struct DatabaseTrait: TestTrait, SuiteTrait, TestScoping {
    private let template: DatabaseTemplate

    fileprivate init(_ template: DatabaseTemplate) { self.template = template }

    package var isRecursive: Bool { true }

    @concurrent package func provideScope(
        for test: Test,
        testCase: Test.Case?,
        performing function: @Sendable @concurrent () async throws -> Void
    ) async throws {
        // Called for the suite as a whole too, which runs no statement.
        guard testCase != nil else { return try await function() }
        let server = try await PrivatePostgres.shared
        let database = try await server.database(template)
        try await run {
            try await TestDatabase.$current.withValue(database, operation: function)
        } finally: {
            try await server.drop(database)
        }
    }
}

extension Trait where Self == DatabaseTrait {
    package static var database: Self { DatabaseTrait(.empty) }

    package static func database(_ template: DatabaseTemplate) -> Self { DatabaseTrait(template) }
}
