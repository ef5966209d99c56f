/// How a worker process works.
package struct WorkerSettings: Sendable {
    /// Jobs that are claimed and not yet applied, at most.
    package var concurrency: Int
    /// Jobs in one apply transaction, at most.
    package var batch: Int
    package var lease: Duration
    /// How long in-flight work may go on after a shutdown was asked for.
    package var drain: Duration
    /// End as soon as nothing is queued, running or unfinished.
    package var untilIdle: Bool
    package var host: String
    package var pid: Int32
    package var version: String
    /// Its MODE, for the records.
    package var mode: String?
    package var retention: Housekeeping.Retention
    /// Within which time those are looked at of whom nothing is expected; `nil`: not at all.
    package var backgroundCheck: Duration?

    package init(
        concurrency: Int,
        batch: Int,
        lease: Duration,
        drain: Duration = .seconds(5),
        untilIdle: Bool = false,
        host: String,
        pid: Int32,
        version: String,
        mode: String? = nil,
        retention: Housekeeping.Retention = .init(),
        backgroundCheck: Duration? = .seconds(30 * 86_400)
    ) {
        self.backgroundCheck = backgroundCheck
        self.retention = retention
        self.concurrency = concurrency
        self.batch = batch
        self.lease = lease
        self.drain = drain
        self.untilIdle = untilIdle
        self.host = host
        self.pid = pid
        self.version = version
        self.mode = mode
    }
}
