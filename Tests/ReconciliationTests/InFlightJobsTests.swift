import Entitlements
import Foundation
@testable import Queue
@testable import Reconciliation
import TestSupport
import Testing

/// What a worker holds, where a crash of the server has undone a claim and the next one found the same job again.
struct InFlightJobsTests {
    private let now = ContinuousClock.now

    private func job(
        _ userKey: Int64,
        _ id: UUID = UUID(),
        lane: JobLane = .sweep,
        claimed after: Duration = .zero
    ) -> ClaimedJob {
        let moment = Instant(microseconds: 0)
        return ClaimedJob(
            id: id,
            kind: .reconcile,
            lane: lane,
            due: moment,
            userKey: userKey,
            userID: "user-\(userKey)",
            claimedAt: moment,
            claimedTick: now + after
        )
    }

    private func read(_ job: ClaimedJob) -> ReadJob {
        ReadJob(job: job, reading: Reading(coverage: .full, askedAt: job.claimedAt))
    }

    @Test func `a job that is held twice counts twice, and is held until both have gone`() {
        let jobsInFlight = InFlightJobs()
        let twice = job(1)
        jobsInFlight.beginReading([twice])
        jobsInFlight.beginReading([twice])
        #expect(jobsInFlight.count == 2 && jobsInFlight.background == 2)
        jobsInFlight.endReading(read(twice), epoch: 1)
        #expect(jobsInFlight.count == 2 && jobsInFlight.background == 2)
        #expect(Set(jobsInFlight.heldKeys) == [1])
        let first = jobsInFlight.take(upTo: 10, at: now)
        #expect(jobsInFlight.count == 2 && Set(jobsInFlight.heldKeys) == [1])
        jobsInFlight.giveBack(first, putBack: [])
        #expect(jobsInFlight.count == 1 && jobsInFlight.heldKeys == [1], "the second reading is still under way")
        jobsInFlight.endReading(read(twice), epoch: 1)
        jobsInFlight.giveBack(jobsInFlight.take(upTo: 10, at: now), putBack: [])
        #expect(jobsInFlight.count == 0 && jobsInFlight.heldKeys.isEmpty)
    }

    @Test func `a job that was put off takes no place, up to a bound`() {
        let jobsInFlight = InFlightJobs()
        let jobs = (1...Int64(InFlightJobs.mostPostponed + 1)).map { job($0) }
        jobsInFlight.beginReading(jobs)
        for job in jobs { jobsInFlight.endReading(read(job), epoch: 1) }
        #expect(jobsInFlight.slotsTaken == jobs.count)
        var taken = jobsInFlight.take(upTo: jobs.count, at: now)
        for place in taken.indices { taken[place].postponements = 1 }
        jobsInFlight.giveBack(
            taken.map { item in
                var item = item
                item.postponements = 0
                return item
            },
            putBack: taken
        )
        #expect(jobsInFlight.count == jobs.count && jobsInFlight.slotsTaken == 1 && jobsInFlight.background == 0)
        let again = jobsInFlight.take(upTo: jobs.count, at: now)
        #expect(jobsInFlight.slotsTaken == 1, "while it is tried again as well")
        jobsInFlight.giveBack(again, putBack: [])
        #expect(jobsInFlight.count == 0 && jobsInFlight.slotsTaken == 0)
    }

    @Test func `a background job that is applied is no restore in flight`() {
        let jobsInFlight = InFlightJobs()
        let jobs = [job(1), job(2, lane: .event), job(3, lane: .restore)]
        jobsInFlight.beginReading(jobs)
        for job in jobs { jobsInFlight.endReading(read(job), epoch: 1) }
        let taken = jobsInFlight.take(upTo: 10, at: now)
        #expect(jobsInFlight.slotsTaken == 3 && jobsInFlight.background == 2)
        jobsInFlight.giveBack(taken, putBack: [])
        #expect(jobsInFlight.slotsTaken == 0 && jobsInFlight.background == 0)
    }

    @Test func `a batch has each user once; the other one is left for the next`() {
        let jobsInFlight = InFlightJobs()
        let (twice, other) = (job(1), job(2))
        for item in [twice, twice, other] {
            jobsInFlight.beginReading([item])
            jobsInFlight.endReading(read(item), epoch: 1)
        }
        let first = jobsInFlight.take(upTo: 10, at: now)
        #expect(first.map(\.read.job.userKey) == [1, 2])
        let second = jobsInFlight.take(upTo: 10, at: now)
        #expect(second.map(\.read.job.id) == [twice.id])
        #expect(jobsInFlight.take(upTo: 10, at: now).isEmpty)
    }

    @Test
    func
        `of a stream those that were read first wait for the rest; of a few, of many and of those put back nobody does`()
        throws
    {
        let jobsInFlight = InFlightJobs()
        let jobs = (1...Int64(DequeuePolicy.stream)).map { job($0) }
        let began = ContinuousClock.now
        jobsInFlight.beginReading(Array(jobs.dropLast()))
        jobsInFlight.endReading(read(jobs[0]), epoch: 1)
        #expect(jobsInFlight.gatheringEnd(at: .now) == nil, "too few for a stream")
        jobsInFlight.beginReading([jobs[DequeuePolicy.stream - 1]])
        jobsInFlight.endReading(read(jobs[1]), epoch: 1)
        let until = try #require(jobsInFlight.gatheringEnd(at: began))
        #expect(
            until > began && until < .now + .milliseconds(50),
            "no longer than those need that were claimed beside it"
        )
        #expect(jobsInFlight.gatheringEnd(at: until) == nil, "the wait has an end")
        let taken = jobsInFlight.take(upTo: 10, at: .now)
        #expect(jobsInFlight.gatheringEnd(at: .now) == nil, "nothing to wait with")
        var later = taken
        for index in later.indices { later[index].notBefore = .now + .seconds(60) }
        jobsInFlight.giveBack(taken, putBack: later)
        #expect(jobsInFlight.gatheringEnd(at: .now) == nil, "what was put off waits by itself")
        for job in jobs.dropFirst(2) { jobsInFlight.endReading(read(job), epoch: 1) }
        #expect(jobsInFlight.gatheringEnd(at: .now) == nil, "enough is there")
    }

    @Test(.timeLimit(.minutes(10)))
    func `nobody waits once all are read that were claimed together, whatever else is being read`() async {
        let jobsInFlight = InFlightJobs()
        let pair = [job(1), job(2)]
        jobsInFlight.beginReading(pair)
        jobsInFlight.beginReading((3...20).map { job($0, claimed: .milliseconds(1)) })
        jobsInFlight.endReading(read(pair[0]), epoch: 1)
        #expect(jobsInFlight.gatheringEnd(at: now) != nil)
        await withTaskGroup(of: Void.self) { group in
            group.addTask { await jobsInFlight.readTogether.wait() }
            while jobsInFlight.readTogether.waiterCount == 0 { await Task.yield() }
            jobsInFlight.endReading(read(pair[1]), epoch: 1)
        }
        #expect(jobsInFlight.gatheringEnd(at: now) == nil)
        #expect(jobsInFlight.take(upTo: 10, at: now).count == 2)
    }

    @Test(.timeLimit(.minutes(10)))
    func `one is woken for the first that was read, and one for what the first could not take`() async {
        let jobsInFlight = InFlightJobs()
        let jobs = (1...3).map { job($0) }
        jobsInFlight.beginReading(jobs)
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<2 {
                group.addTask { await jobsInFlight.readyToApply.wait() }
            }
            while jobsInFlight.readyToApply.waiterCount < 2 { await Task.yield() }
            for job in jobs { jobsInFlight.endReading(read(job), epoch: 1) }
            await group.next()
            #expect(jobsInFlight.readyToApply.waiterCount == 1, "the other two are taken along")
            #expect(jobsInFlight.take(upTo: 1, at: .now).count == 1)
            await group.waitForAll()
        }
        #expect(jobsInFlight.take(upTo: 10, at: .now).count == 2)
        // Kept for the next task that waits.
        jobsInFlight.readyToApply.raiseForOne()
        await jobsInFlight.readyToApply.wait()
    }

    @Test(.timeLimit(.minutes(10)))
    func `a restore that comes beside one that was put off is told of, whether that is due by now or not`() async {
        let jobsInFlight = InFlightJobs()
        jobsInFlight.beginReading([job(1), job(2)])
        jobsInFlight.endReading(read(job(1)), epoch: 1)
        await jobsInFlight.readyToApply.wait()
        let taken = jobsInFlight.take(upTo: 1, at: .now)
        var later = taken
        for index in later.indices { later[index].notBefore = .now - .seconds(1) }
        jobsInFlight.giveBack(taken, putBack: later)
        await jobsInFlight.readyToApply.wait()
        jobsInFlight.endReading(read(job(2)), epoch: 1)
        await jobsInFlight.readyToApply.wait()
        #expect(jobsInFlight.take(upTo: 10, at: .now).count == 2)
    }

    @Test(.timeLimit(.minutes(10)))
    func `jobs that this process queued do not wake it, all other jobs do`() async {
        let (own, other) = (DequeueSignal(), DequeueSignal())
        own.receive(own.sender)
        let began = ContinuousClock.now
        await own.signal.wait(upTo: .milliseconds(50))
        #expect(ContinuousClock.now - began >= .milliseconds(50))
        for payload in ["", other.sender] {
            own.receive(payload)
            await own.signal.wait()
        }
    }
}
