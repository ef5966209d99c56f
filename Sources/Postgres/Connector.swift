import CLibPQ

/// Connects to the first server of a configuration that accepts a session; each has its share of the time that is left.
enum Connector {
    /// - Throws: `PostgresError` with `.connectionFailed` (the last attempt's reason), `.configuration` or
    ///   `.cancelled`.
    static func connect(_ configuration: PostgresConfiguration) async throws(PostgresError) -> ConnectionHandle {
        let parameters = try ConnectParameters(configuration)
        let limit = parameters.effective("connect_timeout").flatMap { Int64($0) }.flatMap { $0 > 0 ? $0 : nil }
        let deadline = ContinuousClock.now + (limit.map { Duration.seconds($0) } ?? configuration.connectTimeout)

        // libpq tries to find a standby first and then takes any server; with one host an attempt, in two rounds.
        let prefersStandby = parameters.effective("target_session_attrs") == "prefer-standby"
        let rounds: [String?] = prefersStandby ? ["standby", "any"] : [nil]
        var failure: PostgresError?
        for (round, attributes) in rounds.enumerated() {
            let wanted = attributes.map { parameters.replacing(["target_session_attrs": $0]) } ?? parameters
            do throws(PostgresError) {
                return try await connect(wanted, until: share(of: deadline, among: rounds.count - round))
            } catch {
                guard error.code == .connectionFailed else { throw error }
                failure = error
            }
        }
        throw failure ?? PostgresError(.configuration, message: "there is no host to connect to")
    }

    private static func connect(
        _ parameters: ConnectParameters,
        until deadline: ContinuousClock.Instant
    ) async throws(PostgresError) -> ConnectionHandle {
        // A service file may name hosts of its own, which only libpq reads.
        if parameters.effective("service") != nil { return try await attempt(parameters.values, until: deadline) }
        let servers = try ServerAddress.list(parameters)
        var failure = PostgresError(.connectionFailed, message: "no server was reached")
        for (index, server) in servers.enumerated() {
            let serverEnd = share(of: deadline, among: servers.count - index)
            let found = try await addresses(of: server, until: serverEnd)
            let addresses = found ?? []
            if addresses.isEmpty {
                let host = "the host name \(server.printableHost ?? "")"
                failure = PostgresError(
                    .connectionFailed,
                    message: found == nil ? "\(host) was not resolved in time" : "\(host) is unknown"
                )
            }
            for (index, address) in addresses.enumerated() {
                let single = parameters.replacing([
                    "host": address.host, "hostaddr": address.hostAddress, "port": address.port,
                ])
                do throws(PostgresError) {
                    return try await attempt(single.values, until: share(of: serverEnd, among: addresses.count - index))
                } catch {
                    // A server that answered and refuses is the answer, as in libpq; one that is just starting is not.
                    let isRefusal = error.sqlState.map { $0 != SQLState.cannotConnectNow } ?? false
                    guard error.code == .connectionFailed, !isRefusal else { throw error }
                    failure = error
                }
            }
        }
        throw failure
    }

    /// The addresses of a host; none where it is unknown, nil where that is not known in time.
    private static func addresses(
        of server: ServerAddress,
        until deadline: ContinuousClock.Instant
    ) async throws(PostgresError) -> [ServerAddress]? {
        guard server.needsLookup else { return [server] }
        let found = await BlockingWork.run(until: deadline, cancellable: true) { server.resolved() }
        if let found { return found }
        guard !Task.isCancelled else { throw PostgresError(.cancelled, message: "the task is cancelled") }
        return nil
    }

    private static func attempt(
        _ values: [String: String],
        until deadline: ContinuousClock.Instant
    ) async throws(PostgresError) -> ConnectionHandle {
        let handle = ConnectionHandle(connectingWith: values)
        guard let raw = handle.raw else { throw PostgresError(.connectionFailed, message: "out of memory") }
        guard PQstatus(raw) != CONNECTION_BAD else { throw refusalAtOnce(raw) }
        // Makes the server's SQLSTATE part of the message, the only place where libpq shows it while connecting.
        PQsetErrorVerbosity(raw, PQERRORS_VERBOSE)
        var polling = PGRES_POLLING_WRITING
        while polling != PGRES_POLLING_OK {
            let interest: Interest = polling == PGRES_POLLING_READING ? .read : .write
            // The socket is asked for each time: libpq opens another when it goes on without encryption.
            switch await Reactor.shared.wait(PQsocket(raw), for: interest, until: deadline, cancellable: true) {
            case .ready: polling = PQconnectPoll(raw)
            case .cancelled: throw PostgresError(.cancelled, message: "the task is cancelled")
            case .timedOut: throw PostgresError(.connectionFailed, message: "the server did not answer in time")
            case .closed: throw PostgresError(.connectionFailed, message: "the socket cannot be watched")
            }
            if polling == PGRES_POLLING_FAILED { throw PostgresError(connecting: raw) }
        }
        PQsetErrorVerbosity(raw, PQERRORS_DEFAULT)
        guard PQsetnonblocking(raw, 1) == 0 else { throw PostgresError(lost: raw) }
        return handle
    }

    /// libpq may have refused a setting without asking a server, which only its words show; they are never translated,
    /// because the program takes no locale from its environment.
    private static func refusalAtOnce(_ raw: OpaquePointer) -> PostgresError {
        var error = PostgresError(connecting: raw)
        if error.message.hasPrefix("invalid "), error.message.contains(" value: ") { error.code = .configuration }
        return error
    }

    /// The end of one attempt's share of the time left.
    private static func share(of deadline: ContinuousClock.Instant, among attempts: Int) -> ContinuousClock.Instant {
        let now = ContinuousClock.now
        return now + (deadline - now) / max(attempts, 1)
    }
}
