package import Logging
package import Postgres

/// The lead of one duty that a single process has at a time, whichever it is: a row with an end and a number.
///
/// Every step of a leader is one statement that asks for the number first. A process that stood still through its lead holds no
/// lock meanwhile, and writes nothing when it goes on.
package struct Leadership: Sendable {
    package enum Duty: String, Sendable {
        /// Starts what schedules ask for.
        case scheduler
        /// Plans the stretches of runs, and takes them on to their ends.
        case planner
        /// Keeps users' custom claims at Firebase.
        case claims
    }

    private let pool: PostgresPool
    package let duty: Duty
    private let holder: String
    package let duration: Duration

    /// `holder` names the process, for operators; others wait `duration` before they take over from a silent leader.
    package init(pool: PostgresPool, duty: Duty, holder: String, duration: Duration) {
        self.pool = pool
        self.duty = duty
        self.holder = holder
        self.duration = duration
    }

    /// Takes the lead, or prolongs it under the number that this process led with; `nil`: another process leads now.
    package func take(_ fence: Int64?) async throws(PostgresError) -> Int64? {
        // At rest it is not prolonged before the next pulse.
        let duration = ServiceScope.current?.restingPulse.map { $0 + self.duration } ?? duration
        return try await pool.query(
            """
            SELECT entitlement_sync.take_lead(\(duty.rawValue), \(holder), \(fence),
                                              \(duration.microseconds) * interval '1 microsecond')
            """
        ).first?.decode(Int64?.self, at: 0) ?? nil
    }

    /// Gives the lead up for others to take at once.
    package func stepDown(_ fence: Int64) async throws(PostgresError) {
        try await pool.query("SELECT entitlement_sync.step_down(\(duty.rawValue), \(fence))")
    }

    /// A leader thrown this by its step leaves the lead to other processes for a while.
    package struct Resignation: Error {
        var rest: Duration

        package init(rest: Duration) { self.rest = rest }
    }

    /// Repeats a step for as long as this process leads, and tries to lead for as long as it does not; until the task is
    /// cancelled, then it steps down.
    ///
    /// `complaint` is what the log says of a step that failed; `step` acts under the number and returns how long to wait;
    /// `onChange` is called when this process begins to lead, and when it no longer does.
    package func whileLeading(
        _ complaint: Logger.Message,
        logger: Logger,
        _ step: (Int64) async throws -> Duration,
        onChange: (Bool) -> Void = { _ in }
    ) async {
        let clock = ContinuousClock()
        let metadata: Logger.Metadata = ["lead": "\(duty.rawValue)"]
        var fence: Int64?
        var renewal = clock.now
        while !Task.isCancelled {
            var pause = duration / 4
            let began = clock.now
            do {
                if clock.now >= renewal {
                    let held = fence
                    fence = try await ServiceScope.step { try await take(held) }
                    renewal = clock.now + duration / 4
                    if (fence == nil) != (held == nil) { onChange(fence != nil) }
                    if let fence, fence != held {
                        logger.info("leading", metadata: metadata.merging(["lead.fence": "\(fence)"]) { $1 })
                    } else if fence == nil, held != nil {
                        logger.warning("leadership was lost: another process leads", metadata: metadata)
                    }
                }
                if let fence { pause = min(try await ServiceScope.step { try await step(fence) }, pause) }
            } catch {
                guard !Task.isCancelled else { break }
                logger.warning(complaint, metadata: metadata.merging(["error.code": "\(code(of: error))"]) { $1 })
                pause = .seconds(1)
                if let resignation = error as? Resignation, let held = fence {
                    try? await stepDown(held)
                    fence = nil
                    onChange(false)
                    renewal = clock.now + resignation.rest
                }
            }
            if pause < .seconds(1) {
                ServiceScope.current?.stir()
                try? await Task.sleep(for: pause)
            } else {
                await ServiceScope.pause(pause, after: began)
            }
        }
        guard let fence else { return }
        // A task of its own, because this one is cancelled.
        await Task { try? await stepDown(fence) }.value
    }

    private func code(of error: any Error) -> String {
        (error as? PostgresError).map { $0.sqlState ?? $0.code.rawValue } ?? "\(type(of: error))"
    }
}
