/// A statement and the meaning of its answer, apart from when and with what else it is sent.
package struct PostgresRequest<Answer> {
    package var query: PostgresQuery
    fileprivate let read: (PostgresRows) throws -> Answer
    fileprivate let refusal: (PostgresError) -> any Error

    /// `refusal` says what an error of this statement means; by default the error itself.
    package init(
        _ query: PostgresQuery,
        read: @escaping (PostgresRows) throws -> Answer,
        refusal: @escaping (PostgresError) -> any Error = { $0 }
    ) {
        self.query = query
        self.read = read
        self.refusal = refusal
    }
}

extension PostgresRequest {
    /// The same request, with another meaning of its error.
    package func refused(_ refusal: @escaping (PostgresError) -> any Error) -> Self {
        Self(query, read: read, refusal: refusal)
    }

    /// The same request, with its answer handed to a closure.
    package func then(_ receive: @escaping (Answer) throws -> Void) -> PostgresRequest<Void> {
        PostgresRequest<Void>(query, read: { rows in try receive(read(rows)) }, refusal: refusal)
    }
}

extension PostgresRequest<Void> {
    /// A request whose rows do not matter.
    package init(_ query: PostgresQuery, refusal: @escaping (PostgresError) -> any Error = { $0 }) {
        self.init(query, read: { _ in }, refusal: refusal)
    }
}

extension PostgresConnection {
    /// As `pipeline`, with an answer for each request; throws what the request that failed makes of its error.
    nonisolated package func send<each Answer>(
        _ requests: repeat PostgresRequest<each Answer>
    ) async throws -> (repeat each Answer) {
        var queries: [PostgresQuery] = []
        var refusals: [(PostgresError) -> any Error] = []
        for request in repeat each requests {
            queries.append(request.query)
            refusals.append(request.refusal)
        }
        var answers = try await answers(to: queries, refusals).makeIterator()
        return (repeat try (each requests).read(answers.next() ?? Self.missing()))
    }

    /// The same for any number of requests without answers.
    nonisolated package func send(_ requests: [PostgresRequest<Void>]) async throws {
        let answers = try await answers(to: requests.map(\.query), requests.map(\.refusal))
        for (request, rows) in zip(requests, answers) { try request.read(rows) }
    }

    /// Sends the last requests of a transaction together with its COMMIT; see `pipelineAndCommit`.
    nonisolated package func sendAndCommit(_ requests: [PostgresRequest<Void>]) async throws {
        let answers = try await answers(to: requests.map(\.query), requests.map(\.refusal), commits: true)
        do {
            for (request, rows) in zip(requests, answers) { try request.read(rows) }
        } catch {
            throw PostgresError(.commitUnknown, message: "committed, but an answer was not understood: \(error)")
        }
    }

    private nonisolated func answers(
        to queries: [PostgresQuery],
        _ refusals: [(PostgresError) -> any Error],
        commits: Bool = false
    ) async throws -> [PostgresRows] {
        do {
            return commits ? try await pipelineAndCommit(queries) : try await pipeline(queries)
        } catch {
            guard let failed = error.statement, refusals.indices.contains(failed) else { throw error }
            throw refusals[failed](error)
        }
    }

    private static func missing() throws -> PostgresRows {
        throw PostgresError(.protocolViolation, message: "the server did not answer every statement")
    }
}
