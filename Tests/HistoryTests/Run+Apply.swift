import Entitlements
import Foundation
import Postgres
import Queue
import Reconciliation

extension Run {
    /// Applies what a worker has read, as its apply duty does: one lease a batch, different users.
    mutating func apply(_ side: Side, _ limit: Int, turn: Int, held: HeldRow?) async throws {
        let ready = try worker(side).hands.filter { $0.taken != nil }
        guard let epoch = ready.first?.epoch else { return }
        var batch: [Hand] = []
        for hand in ready where hand.epoch == epoch && batch.count < limit {
            if !batch.contains(where: { $0.user == hand.user }) { batch.append(hand) }
        }
        for _ in 0..<(turn % max(batch.count, 1)) { batch.append(batch.removeFirst()) }
        let kept = try await write(batch, side, epoch, held: held)
        let done = Set(batch.map(\.claimed.id)).subtracting(kept)
        workers[side]?.hands.removeAll { $0.epoch == epoch && done.contains($0.claimed.id) }
        workers[side]?.last = batch
    }

    /// Applies the last batch once more.
    mutating func again(_ side: Side) async throws {
        let batch = try worker(side).last
        guard let epoch = batch.first?.epoch else { return }
        model.note("applied twice")
        if batch.contains(where: { hand in model.people[hand.user].row?.owner.map { $0 != epoch } ?? false }) {
            model.note("applied twice, and another worker has the job")
        }
        _ = try await write(batch, side, epoch, held: nil)
    }

    /// Writes a batch in the database and in the model.
    ///
    /// - Returns: the ids of jobs that stay in hand.
    private mutating func write(_ batch: [Hand], _ side: Side, _ epoch: Int32, held: HeldRow?) async throws -> Set<UUID>
    {
        let worker = try worker(side)
        if batch.count > 1 { model.note("batch of several jobs") }
        let ahead = model.ahead
        let (report, locks) = try await send(batch, worker, epoch, held: held)
        guard model.leases[epoch] == true else {
            try expect(report.halted == .leaseLost, "written without a lease")
            model.note("lease lost with a reading in hand")
            let taken = batch.contains { hand in
                model.jobs[hand.job].state == .done || model.people[hand.user].row?.owner.map { $0 != epoch } ?? false
            }
            if taken { model.note("late apply after another worker's") }
            return []
        }
        guard !model.paused.contains("all") || setup.mode == .observe else {
            try expect(report.halted == .paused, "written in spite of a pause")
            model.note("paused with a reading in hand")
            try await worker.queue.release(batch.map(\.claimed.userKey), for: epoch)
            for hand in batch where model.people[hand.user].row?.owner == epoch { model.release(hand.user) }
            workers[side]?.hands.removeAll { hand in batch.contains { $0.user == hand.user } && hand.epoch == epoch }
            return []
        }
        try expect(report.halted == nil, "halted without a reason")
        let dated = try await dated(ahead)
        let postponed = Set(report.postponed.map(\.job.id))
        let ours = batch.filter { model.running($0.user, under: epoch) == $0.job }
        try judgePostponed(batch, ours, postponed, locks, dated)
        let lost = batch.count { hand in !postponed.contains(hand.claimed.id) && !ours.contains { $0.job == hand.job } }
        try expect(report.lost == lost, "\(report.lost) jobs were lost, not \(lost)")
        let items = ours.filter { !postponed.contains($0.claimed.id) }.compactMap { hand in
            hand.taken.map { hand.item($0) }
        }
        noteNeighbours(items, ours)
        let before = model
        let ended = Set(
            model.apply(items, lockedAssets: locks.assets, dated: dated)
                .compactMap { model.jobs[$0].id }
        )
        let reported = Set(report.ended.map(\.id))
        try expect(ended == reported, "other jobs ended", "\(reported) instead of \(ended)")
        try Oracle.judgeLedger(items, before: before, after: model)
        for hand in ours where !postponed.contains(hand.claimed.id) {
            guard let taken = hand.taken else { continue }
            if before.isComped(hand.user) { model.note("a comped user is read") }
            let isFirstWord = taken.truth.contains { item in
                item.isAtStore && item.account == hand.user && item.saysAccess && !item.isAtRevenueCat
                    && !item.identifiers.contains { before.names[$0.key] != nil }
            }
            if isFirstWord, model.people[hand.user].type == .subscriber {
                model.note("a purchase known by its notification alone")
            }
            if taken.hasOthersKey, model.jobs[hand.job].error == "unknown_to_store" {
                model.note("another project's key")
            }
            try Oracle.judge(hand.job, hand.user, taken, before: before, after: model)
            if model.jobs[hand.job].state == .done {
                try Oracle.judgeRecords(hand.user, taken, before: before, after: model)
            }
        }
        return postponed
    }

    /// What a host's transaction holds while the batch is written.
    struct Locks {
        var users: Set<Int> = []
        var rows: Set<Int> = []
        var assets: Set<Int64> = []
    }

    private mutating func send(_ batch: [Hand], _ worker: WorkerHands, _ epoch: Int32, held: HeldRow?) async throws -> (
        ApplyReport, Locks
    ) {
        let reads = batch.compactMap { hand in hand.taken.map { ReadJob(job: hand.claimed, reading: $0.reading) } }
        let users = setup.users.count
        var locks = Locks()
        switch held {
        case .user(let user) where model.people[user % users].exists:
            locks.users = [user % users]
            let report = try await lane.host.withTransaction { host in
                try await host.query("SELECT id FROM users WHERE id = \(userID(user % users)) FOR UPDATE")
                return try await worker.apply(reads, epoch: epoch)
            }
            return (report, locks)
        case .asset(let user):
            let own = model.assets.filter { $0.value.owner == user % users }.keys.sorted().prefix(1)
            locks.assets = Set(own)
            if !own.isEmpty { model.note("an asset was locked") }
            let report = try await lane.host.withTransaction { host in
                try await host.query("SELECT id FROM assets WHERE id = ANY (\(Array(own))) FOR UPDATE")
                return try await worker.apply(reads, epoch: epoch)
            }
            return (report, locks)
        // Unknown users have no row yet that could be held.
        case .queue(let user) where model.people[user % users].exists && model.people[user % users].isKnown:
            locks.rows = [user % users]
            let (report, id) = try await lane.host.withTransaction { host in
                let rows = try await host.query("SELECT entitlement_sync.request_restore(\(userID(user % users)))")
                return (try await worker.apply(reads, epoch: epoch), try rows.first?.decode(UUID.self))
            }
            let job = model.tap(user % users, proof: nil, error: nil)
            guard let id else { throw Failed(kind: "no id", text: "a tap in a host's transaction has no id") }
            try returned(id, for: job)
            return (report, locks)
        default:
            return (try await worker.apply(reads, epoch: epoch), locks)
        }
    }

    /// A job is put off for a host's lock, or for another job of the batch that touches the same purchase; nothing else.
    private mutating func judgePostponed(
        _ batch: [Hand],
        _ ours: [Hand],
        _ postponed: Set<UUID>,
        _ locks: Locks,
        _ dated: Model.Dated
    ) throws {
        var written: [Hand] = []
        for hand in batch {
            let isOurs = ours.contains { $0.job == hand.job }
            let isPostponed = postponed.contains(hand.claimed.id)
            if hand.asks.map(locks.users.contains) == true {
                try expect(isPostponed, "a user whom the host holds was not put off")
                model.note("postponed by a host's lock on the user")
                continue
            }
            guard isOurs else {
                try expect(!isPostponed, "a job of somebody else was put off")
                continue
            }
            if locks.rows.contains(hand.user) {
                try expect(isPostponed, "a job whose row the host holds was not put off")
                model.note("postponed by a host's lock on the queue")
                continue
            }
            if !isPostponed { written.append(hand) }
        }
        for (place, hand) in written.enumerated() {
            for other in written[..<place] where shares(hand, other) {
                // A canceled or overtaken job touches nothing.
                let idle = [hand, other].contains { one in
                    one.taken.map { model.concerns(dated, one.item($0)) } ?? false
                        || model.people[one.user].row?.isCanceling == true
                        || (model.people[one.user].readAt ?? .init(microseconds: 0))
                            > (one.taken?.reading.askedAt ?? .init(microseconds: 0))
                }
                try expect(idle, "two jobs of one batch touched the same purchase")
            }
        }
        for hand in ours where postponed.contains(hand.claimed.id) {
            guard hand.asks.map(locks.users.contains) != true, !locks.rows.contains(hand.user), let taken = hand.taken
            else {
                continue
            }
            let item = hand.item(taken)
            let formers = model.othersReadAgain(item)
            if formers.contains(where: locks.rows.contains) {
                model.note("postponed for the former owner's row")
                // Its other former owners are looked at all the same.
                for former in formers where !locks.rows.contains(former) { model.enqueue(former, .reconcile) }
                continue
            }
            let neighbour = ours.contains { $0.job != hand.job && shares(hand, $0) }
            try expect(neighbour, "a job was put off without a reason")
            model.note("postponed for another job of the batch")
        }
    }

    /// Whether two readings name the same purchase, directly or by way of the ledger.
    private func shares(_ one: Hand, _ other: Hand) -> Bool {
        func touched(_ hand: Hand) -> (Set<PurchaseIdentifierKey>, Set<Int>) {
            let keys = Set((hand.taken?.reading.observations ?? []).flatMap { $0.identifiers.map(\.key) })
            return (keys, Set(keys.compactMap { model.names[$0] }))
        }
        let (left, right) = (touched(one), touched(other))
        return !left.0.isDisjoint(with: right.0) || !left.1.isDisjoint(with: right.1)
    }

    private mutating func noteNeighbours(_ items: [ModelItem], _ ours: [Hand]) {
        for item in items {
            for attribution in model.input(item).1 {
                guard case .followed(_, let owner, _) = attribution else { continue }
                if ours.contains(where: { $0.user == Int(owner) - 1 }) { model.note("followed owner within one batch") }
            }
        }
    }
}
