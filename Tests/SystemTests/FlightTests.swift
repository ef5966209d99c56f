import Entitlements
import Foundation
import Jobs
import Storage
import Testing

@testable import SyncWorker

/// What a worker holds, where a crash of the server has undone a claim and the next one found the same job again.
struct FlightTests {
    private let now = ContinuousClock.now

    private func job(_ userKey: Int64, _ id: UUID = UUID(), lane: JobLane = .sweep) -> ClaimedJob {
        let moment = Instant(microseconds: 0)
        return ClaimedJob(
            id: id,
            kind: .reconcile,
            lane: lane,
            due: moment,
            userKey: userKey,
            userID: "user-\(userKey)",
            claimedAt: moment,
            claimedTick: now
        )
    }

    private func read(_ job: ClaimedJob) -> ReadJob {
        ReadJob(job: job, reading: Reading(coverage: .full, askedAt: job.claimedAt))
    }

    @Test func `a job that is held twice counts twice, and is held until both have gone`() {
        let flight = Flight()
        let twice = job(1)
        flight.beginReading([twice])
        flight.beginReading([twice])
        #expect(flight.count == 2 && flight.sweeps == 2)
        flight.endReading(read(twice), epoch: 1)
        #expect(flight.count == 2 && flight.sweeps == 2)
        #expect(Set(flight.heldKeys) == [1])
        let first = flight.take(upTo: 10, at: now)
        #expect(flight.count == 2 && Set(flight.heldKeys) == [1])
        flight.settle(first, putBack: [])
        #expect(flight.count == 1 && flight.heldKeys == [1], "the second reading is still under way")
        flight.endReading(read(twice), epoch: 1)
        flight.settle(flight.take(upTo: 10, at: now), putBack: [])
        #expect(flight.count == 0 && flight.heldKeys.isEmpty)
    }

    @Test func `a batch has each user once; the other one is left for the next`() {
        let flight = Flight()
        let (twice, other) = (job(1), job(2))
        for item in [twice, twice, other] {
            flight.beginReading([item])
            flight.endReading(read(item), epoch: 1)
        }
        let first = flight.take(upTo: 10, at: now)
        #expect(first.map(\.read.job.userKey) == [1, 2])
        let second = flight.take(upTo: 10, at: now)
        #expect(second.map(\.read.job.id) == [twice.id])
        #expect(flight.take(upTo: 10, at: now).isEmpty)
    }

    @Test
    func
        `of a stream those that were read first wait for the rest; of a few, of many and of those put back nobody does`()
        throws
    {
        let flight = Flight()
        let jobs = (1...Int64(Flight.stream)).map { job($0) }
        flight.beginReading(Array(jobs.dropLast()))
        flight.endReading(read(jobs[0]), epoch: 1)
        #expect(flight.gathers(at: .now) == nil, "too few for a stream")
        flight.beginReading([jobs[Flight.stream - 1]])
        let began = ContinuousClock.now
        flight.endReading(read(jobs[1]), epoch: 1)
        let until = try #require(flight.gathers(at: began))
        #expect(
            until > began && until < began + .milliseconds(50),
            "no longer than those need that were claimed beside it"
        )
        #expect(flight.gathers(at: until) == nil, "the wait has an end")
        let taken = flight.take(upTo: 10, at: .now)
        #expect(flight.gathers(at: .now) == nil, "nothing to wait with")
        var later = taken
        for index in later.indices { later[index].notBefore = .now + .seconds(60) }
        flight.settle(taken, putBack: later)
        #expect(flight.gathers(at: .now) == nil, "what was put off waits by itself")
        for job in jobs.dropFirst(2) { flight.endReading(read(job), epoch: 1) }
        #expect(flight.gathers(at: .now) == nil, "enough is there")
    }
}
