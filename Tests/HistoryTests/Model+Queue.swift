@testable import Entitlements
import Foundation
import Queue

extension Model {
    /// Puts a job into the user's row.
    ///
    /// - Returns: the job that answers: the new one, the one that is queued, or the one successor.
    @discardableResult
    mutating func enqueue(_ user: Int, _ kind: JobKind) -> Int {
        people[user].isKnown = true
        jobs.append(Job(user: user, kind: kind))
        let answer = place(jobs.count - 1)
        if answer != jobs.count - 1 { jobs.removeLast() }
        return answer
    }

    /// Finds the place of a job that is not in the queue.
    private mutating func place(_ job: Int) -> Int {
        let (user, kind) = (jobs[job].user, jobs[job].kind)
        var row = people[user].row ?? Row()
        defer { people[user].row = row }
        switch row.enqueue(job, kind) {
        case .queued:
            jobs[job].isDelayed = false
            return job
        case .joined(let other):
            note("join while queued")
            if jobs[other].isDelayed { note("a tap ends a wait") }
            jobs[other].isDelayed = false
            return other
        case .becameSuccessor:
            note("successor while running")
            return job
        case .joinedSuccessor(let successor):
            note("joined the successor")
            return successor
        }
    }

    /// A tap on Restore.
    mutating func tap(_ user: Int, proof: String?, error: String?) -> Int {
        let job = enqueue(user, .restore)
        if let proof { jobs[job].proofs.insert(proof) }
        jobs[job].clientError = error ?? jobs[job].clientError
        return job
    }

    /// Whether a claim may take the user's row, and what would run.
    func claimable(_ user: Int) -> JobKind? { people[user].row?.dequeuable { !jobs[$0].isDelayed } }

    mutating func claim(_ user: Int, by epoch: Int32) -> Int? {
        guard let kind = claimable(user), let job = people[user].row?.jobs[kind] else { return nil }
        people[user].row?.dequeue(kind, by: epoch)
        jobs[job].state = .running
        return job
    }

    /// The job that a lease runs for a user.
    func running(_ user: Int, under epoch: Int32) -> Int? { people[user].row?.running(under: epoch) }

    /// Gives a user's row back; a cancellation that was requested is not forgotten.
    mutating func release(_ user: Int, crashed: Bool = false) {
        guard var row = people[user].row else { return }
        if let kind = row.active, let job = row.jobs[kind] { jobs[job].state = .queued }
        row.release(afterCrash: crashed)
        if row.isQuarantined { note("quarantined") }
        if row.isCanceling { note("canceled job without a worker") }
        people[user].row = row
    }

    /// Gives back everything under a lease.
    mutating func releaseAll(under epoch: Int32, crashed: Bool = false) {
        for user in people.indices where people[user].row?.owner == epoch { release(user, crashed: crashed) }
    }

    /// Takes a job out of its user's row; its successor moves up.
    mutating func remove(_ job: Int) {
        let (user, kind) = (jobs[job].user, jobs[job].kind)
        guard var row = people[user].row else { return }
        row.remove(job, kind)
        people[user].row = row.isEmpty ? nil : row
    }

    /// An operator cancels a job.
    ///
    /// - Returns: what the operator is told.
    mutating func cancel(_ job: Int) -> String {
        switch jobs[job].state {
        case .done, .dead, .canceled: return "not_found"
        case .running:
            people[jobs[job].user].row?.requestCancel()
            return "asked"
        case .queued:
            remove(job)
            jobs[job].state = .canceled
            return "canceled"
        }
    }

    /// Puts a dead job back under its own id.
    mutating func retryDead(_ job: Int) -> Bool {
        guard jobs[job].state == .dead, place(job) == job else { return false }
        note("dead then retried")
        jobs[job].state = .queued
        jobs[job].attempt = 0
        jobs[job].error = nil
        jobs[job].outcome = nil
        jobs[job].key = nil
        return true
    }

    /// The catalogue changes: whoever waited for it is tried again.
    mutating func catalogChanged() {
        let unmapped = ReadFailure.Code.unmapped.rawValue
        // Of two dead jobs of one user and kind the older one comes back.
        for user in people.indices {
            let dead = jobs.indices.filter {
                jobs[$0].user == user && jobs[$0].state == .dead && jobs[$0].error == unmapped
            }
            for job in dead.sorted(by: { order(jobs[$0].id) < order(jobs[$1].id) }) where retryDead(job) {
                note("unmapped, then mapped")
            }
        }
        for job in jobs.indices where jobs[job].state == .queued && jobs[job].error == unmapped {
            jobs[job].isDelayed = false
            jobs[job].attempt = 0
        }
        alarms.remove("product_unmapped")
    }

    private func order(_ id: UUID?) -> String { id?.uuidString ?? "" }
}
