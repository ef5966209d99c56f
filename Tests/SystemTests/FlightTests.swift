import Entitlements
import Foundation
@testable import Queue
@testable import Reconciliation
@testable import SyncWorker
import Testing

/// What a worker holds, where a crash of the server has undone a claim and the next one found the same job again.
struct FlightTests {
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

    @Test func `a job that was put off takes no place, up to a bound`() {
        let flight = Flight()
        let jobs = (1...Int64(Flight.mostPutOff + 1)).map { job($0) }
        flight.beginReading(jobs)
        for job in jobs { flight.endReading(read(job), epoch: 1) }
        #expect(flight.placesTaken == jobs.count)
        var taken = flight.take(upTo: jobs.count, at: now)
        for place in taken.indices { taken[place].postponements = 1 }
        flight.settle(
            taken.map { item in
                var item = item
                item.postponements = 0
                return item
            },
            putBack: taken
        )
        #expect(flight.count == jobs.count && flight.placesTaken == 1 && flight.sweeps == 0)
        let again = flight.take(upTo: jobs.count, at: now)
        #expect(flight.placesTaken == 1, "while it is tried again as well")
        flight.settle(again, putBack: [])
        #expect(flight.count == 0 && flight.placesTaken == 0)
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
        let began = ContinuousClock.now
        flight.beginReading(Array(jobs.dropLast()))
        flight.endReading(read(jobs[0]), epoch: 1)
        #expect(flight.gathers(at: .now) == nil, "too few for a stream")
        flight.beginReading([jobs[Flight.stream - 1]])
        flight.endReading(read(jobs[1]), epoch: 1)
        let until = try #require(flight.gathers(at: began))
        #expect(
            until > began && until < .now + .milliseconds(50),
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

    @Test(.timeLimit(.minutes(10)))
    func `nobody waits once all are read that were claimed together, whatever else is being read`() async {
        let flight = Flight()
        let pair = [job(1), job(2)]
        flight.beginReading(pair)
        flight.beginReading((3...20).map { job($0, claimed: .milliseconds(1)) })
        flight.endReading(read(pair[0]), epoch: 1)
        #expect(flight.gathers(at: now) != nil)
        await withTaskGroup(of: Void.self) { group in
            group.addTask { await flight.readTogether.wait() }
            while flight.readTogether.waiterCount == 0 { await Task.yield() }
            flight.endReading(read(pair[1]), epoch: 1)
        }
        #expect(flight.gathers(at: now) == nil)
        #expect(flight.take(upTo: 10, at: now).count == 2)
    }

    @Test(.timeLimit(.minutes(10)))
    func `one is woken for the first that was read, and one for what the first could not take`() async {
        let flight = Flight()
        let jobs = (1...3).map { job($0) }
        flight.beginReading(jobs)
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<2 {
                group.addTask { await flight.readyToApply.wait() }
            }
            while flight.readyToApply.waiterCount < 2 { await Task.yield() }
            for job in jobs { flight.endReading(read(job), epoch: 1) }
            await group.next()
            #expect(flight.readyToApply.waiterCount == 1, "the other two are taken along")
            #expect(flight.take(upTo: 1, at: .now).count == 1)
            await group.waitForAll()
        }
        #expect(flight.take(upTo: 10, at: .now).count == 2)
        // Remembered for whoever waits next.
        flight.readyToApply.raiseForOne()
        await flight.readyToApply.wait()
    }

    @Test(.timeLimit(.minutes(10)))
    func `a restore that comes beside one that was put off is told of, whether that is due by now or not`() async {
        let flight = Flight()
        flight.beginReading([job(1), job(2)])
        flight.endReading(read(job(1)), epoch: 1)
        await flight.readyToApply.wait()
        let taken = flight.take(upTo: 1, at: .now)
        var later = taken
        for index in later.indices { later[index].notBefore = .now - .seconds(1) }
        flight.settle(taken, putBack: later)
        await flight.readyToApply.wait()
        flight.endReading(read(job(2)), epoch: 1)
        await flight.readyToApply.wait()
        #expect(flight.take(upTo: 10, at: .now).count == 2)
    }

    @Test(.timeLimit(.minutes(10)))
    func `ends are in no hurry as long as all of them were told`() async {
        let answers = Answers()
        func end() -> ApplyReport.Ended { .init(id: UUID(), kind: .restore, state: .done, outcome: .restored) }
        let (told, untold, later) = (end(), end(), end())
        answers.add([told], areTold: true)
        await answers.arrived.wait()
        #expect(answers.areTold)
        answers.add([untold])
        answers.add([later], areTold: true)
        await answers.arrived.wait()
        #expect(!answers.areTold)
        #expect(answers.takeAll().map(\.id) == [told.id, untold.id, later.id])
        #expect(answers.takeAll().isEmpty && answers.areTold)
    }

    @Test(.timeLimit(.minutes(10)))
    func `what this process asked for is no news to it, and everything else is`() async {
        let (shared, other) = (WorkerShared(), WorkerShared())
        shared.hear(shared.asker)
        let began = ContinuousClock.now
        await shared.wake.wait(upTo: .milliseconds(50))
        #expect(ContinuousClock.now - began >= .milliseconds(50))
        for payload in ["", other.asker] {
            shared.hear(payload)
            await shared.wake.wait()
        }
    }
}
