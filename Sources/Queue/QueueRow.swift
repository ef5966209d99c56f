package import Entitlements

/// A user's row of the queue: the state machine that the statements of this folder and `sql/functions/queue.sql` carry out.
///
/// The model of the tests' generated histories is made of it, and the database has to agree after each step.
///
/// A user has two slots, one of each kind, and behind each a successor: what is requested while a job of the kind runs. One of
/// the slots at most is active.
///
/// | event | if | then | statement |
/// |---|---|---|---|
/// | enqueue | the kind is active | the job, or the successor that is there, is its successor | `enqueue` |
/// | enqueue | the slot is empty | the job waits in it | `enqueue` |
/// | enqueue | a job waits in the slot | that job is the answer; it is due at once | `enqueue` |
/// | dequeue | no owner, a job is due | the worker owns the row; the restore is active if it is due, or alone | `JobQueue.claim` |
/// | finish | active | the successor moves up; no owner, no crashes | `JobEnds.finish` |
/// | retry | active | the job waits again; no owner, no crashes | `JobEnds.retry` |
/// | release | active | the job waits again; no owner | `JobQueue.release`, `JobQueue.releaseAll`, `Leases.end` |
/// | rescue | the owner's lease has ended | as released, and one crash more; after three it runs alone, until it ends | `Leases.rescue` |
/// | cancel | active and owned | its cancellation is requested, and outlives release and rescue | `JobCommands.cancel` |
/// | cancel | it waits | the successor moves up | `JobCommands.cancel` |
/// | cancel | it is a successor | it goes | `JobCommands.cancel` |
///
/// A kind whose cancellation was requested stays active without an owner, until a worker ends the job. A row without jobs goes.
package struct QueueRow<Job: Hashable & Sendable>: Hashable, Sendable {
    /// Those that wait, and the active one.
    package private(set) var jobs: [JobKind: Job] = [:]
    package private(set) var successors: [JobKind: Job] = [:]
    /// The lease that owns the row.
    package private(set) var owner: Int32?
    package private(set) var active: JobKind?
    package private(set) var isCanceling = false
    /// Workers that died while they owned the row.
    package private(set) var crashes = 0

    /// Crashes after which a job runs alone.
    package static var quarantineAfter: Int { 3 }

    package init() {}

    package var isEmpty: Bool { jobs.isEmpty }
    package var isQuarantined: Bool { crashes >= Self.quarantineAfter }

    package enum Enqueued: Hashable, Sendable {
        case queued, joined(Job), becameSuccessor, joinedSuccessor(Job)
    }

    /// Queues a job.
    ///
    /// - Returns: where it stands, or which job answers the request instead.
    package mutating func enqueue(_ job: Job, _ kind: JobKind) -> Enqueued {
        if active == kind, owner != nil || isCanceling {
            if let successor = successors[kind] { return .joinedSuccessor(successor) }
            successors[kind] = job
            return .becameSuccessor
        }
        if let other = jobs[kind] { return .joined(other) }
        jobs[kind] = job
        return .queued
    }

    /// Which job a worker would run.
    ///
    /// - Parameter isDue: whether a job is due.
    /// - Returns: `nil`: the row has an owner, or no job is due.
    package func dequeuable(_ isDue: (Job) -> Bool) -> JobKind? {
        guard owner == nil, jobs.values.contains(where: isDue) else { return nil }
        if isCanceling, let active { return active }
        guard let restore = jobs[.restore] else { return .reconcile }
        return !isDue(restore) && jobs[.reconcile] != nil ? .reconcile : .restore
    }

    package mutating func dequeue(_ kind: JobKind, by epoch: Int32) {
        owner = epoch
        active = kind
    }

    /// The job that a lease runs.
    package func running(under epoch: Int32) -> Job? { owner == epoch ? active.flatMap { jobs[$0] } : nil }

    /// Gives the row back at a shutdown, or after its worker has died.
    package mutating func release(afterCrash isCrash: Bool = false) {
        if !isCanceling { active = nil }
        owner = nil
        if isCrash { crashes += 1 }
    }

    /// Sends the active job back to wait.
    package mutating func retry() {
        release()
        crashes = 0
    }

    package mutating func requestCancel() { isCanceling = true }

    /// Takes a job out: it has ended, or was canceled while it waited.
    package mutating func remove(_ job: Job, _ kind: JobKind) {
        guard successors[kind] != job else {
            successors[kind] = nil
            return
        }
        if active == kind {
            if owner != nil { crashes = 0 }
            active = nil
            owner = nil
            isCanceling = false
        }
        jobs[kind] = successors.removeValue(forKey: kind)
    }
}
