/// From where on something is a finding.
package struct DoctorLimits: Sendable {
    /// How long a due restore or event may wait.
    package var wait = Duration.seconds(300)
    /// How long one of the database's transactions may stay open.
    package var transaction = Duration.seconds(300)
    /// How many transactions ago the oldest one that anybody may still want to see began.
    package var horizon: Int64 = 5_000_000
    /// How old the last check of an invariant may be, while workers run.
    package var lawAge = Duration.seconds(3600)
    /// What the hot table and its indexes may take with nothing in it, and dead rows that vacuum may leave for later.
    package var queueBytes: Int64 = 64 << 20
    package var deadRows: Int64 = 200_000
    /// How full the server's queue of notifications may be; 1 is full.
    package var notifications = 0.1
    /// What a replication slot may keep from being removed.
    package var slotBytes: Int64 = 8 << 30

    package init() {}
}
