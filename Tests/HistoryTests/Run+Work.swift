@testable import Entitlements
import Foundation
import Postgres
import Queue
import Reconciliation

extension Run {
    // MARK: Claim and read

    mutating func claim(_ side: Side, _ limit: Int) async throws {
        let worker = try worker(side)
        let limits = JobLane.allCases.map { JobQueue.LaneLimit(lane: $0, limit: limit) }
        let claimed = try await worker.queue.claim(limits, upTo: limit, for: worker.epoch)
        let mayClaim =
            model.leases[worker.epoch] == true && (!model.paused.contains("all") || setup.mode == .observe)
        try expect(mayClaim || claimed.isEmpty, "jobs were claimed without leave")
        guard mayClaim else { return }
        for job in claimed {
            let asks = job.userID.flatMap(userIndex)
            let user = model.user(behind: job.userKey) ?? asks ?? -1
            let kind = model.people.indices.contains(user) ? model.claimable(user) : nil
            try expect(kind == job.kind, "a job was claimed out of turn", "\(user) \(job.kind)")
            guard let number = model.claim(user, by: worker.epoch) else { continue }
            let expected = model.jobs[number]
            try expect(expected.id == job.id, "another job was claimed than the one queued")
            try expect(job.attempt == expected.attempt, "a claimed job counts \(job.attempt) attempts")
            try expect(job.request.clientError == expected.clientError, "the client's error was lost")
            try expect(Self.values(in: job.request.proofs) == expected.proofs, "proofs were lost")
            try expect(
                job.sandboxAllowed == (model.people[user].sandbox == .allowed),
                "the allow-list was not looked at"
            )
            workers[side]?.hands.append(Hand(claimed: job, job: number, user: user, asks: asks, epoch: worker.epoch))
        }
        let left = model.people.indices.filter { model.claimable($0) != nil }
        try expect(claimed.count == limit || left.isEmpty, "due jobs were left", "\(left)")
    }

    private struct Proof: Decodable { var value: String }

    /// The typed ids among the proofs of a request.
    static func values(in proofs: String?) -> Set<String> {
        guard let proofs, let all = try? JSONDecoder().decode([Proof].self, from: Data(proofs.utf8)) else { return [] }
        return Set(all.map { plain($0.value) })
    }

    mutating func read(_ side: Side, pick: Int?, _ manner: Manner) async throws {
        let waiting = try worker(side).hands.indices.filter { workers[side]?.hands[$0].taken == nil }
        guard !waiting.isEmpty else { return }
        let chosen = pick.map { [waiting[$0 % waiting.count]] } ?? waiting
        for place in chosen {
            guard let hand = workers[side]?.hands[place] else { continue }
            let taken = try await taken(hand, manner)
            workers[side]?.hands[place].taken = taken
        }
    }

    /// What the store answers at this moment.
    private mutating func taken(_ hand: Hand, _ manner: Manner) async throws -> Taken {
        let now = try await lane.host.query("SELECT clock_timestamp()")
        guard let askedAt = try now.first?.decode(PostgresTimestamp.self) else {
            throw Failed(kind: "no clock", text: "the database told no time")
        }
        let asked = Instant(askedAt)
        guard let user = hand.asks else {
            // Nobody is asked about an account without a name.
            return Taken(reading: Reading(coverage: .none, askedAt: asked), truth: [], manner: .full)
        }
        var taken: Taken
        switch manner {
        case .full: taken = listing(user, asked, parity: nil)
        case .partial(let parity): taken = listing(user, asked, parity: parity)
        case .failed(let code, let wished):
            let failure = ReadFailure(code, retryAfter: wished ? .seconds(50) : nil)
            taken = Taken(
                reading: Reading(coverage: .none, askedAt: asked, failure: failure),
                truth: [],
                manner: manner
            )
        case .stale(let back):
            let earlier = past[user] ?? []
            taken = earlier.isEmpty ? listing(user, asked, parity: nil) : earlier[back % earlier.count]
        }
        if case .full = manner { past[user, default: []].append(taken) }
        let isFull = taken.reading.coverage == .full
        taken.reading.claims = ClaimFindings(clientError: hand.claimed.request.clientError.map { ClientError($0) })
        if isFull { taken.reading.claims.found = found(Self.values(in: hand.claimed.request.proofs)) }
        return taken
    }

    func listing(_ user: Int, _ asked: Instant, parity: Int?) -> Taken {
        var items = truth.listing(for: user).map { ($0, $0.observation(for: user), $0.customer == user) }
        for (place, item) in truth.items.enumerated() where item.isAtStore && item.isListed {
            let isOwn = item.identifiers.contains { identifier in
                model.names[identifier.key].map { model.purchases[$0].facts.ownerKey == Int64(user + 1) } ?? false
            }
            guard isOwn || notified[user, default: []].contains(place) else { continue }
            items.append((item, item.answer(for: user), item.account.map { $0 == user } ?? isOwn))
        }
        if let parity { items = items.enumerated().filter { ($0.offset + parity) % 2 == 0 }.map(\.element) }
        return Taken(
            reading: Reading(
                coverage: parity == nil ? .full : .partial,
                askedAt: asked,
                observations: items.map(\.1),
                failure: parity == 1 ? ReadFailure(.timeout) : nil
            ),
            truth: items.filter(\.2).map(\.0),
            manner: parity.map { .partial($0) } ?? .full,
            hasOthersKey: truth.hasOthersKey
        )
    }

    private func found(_ ids: Set<String>) -> [FoundPurchase] {
        ids.sorted().flatMap { id in
            truth.items.filter(\.isListed).flatMap { item in
                item.identifiers.filter { plain($0.value) == id }.map {
                    FoundPurchase(
                        identifier: $0,
                        store: item.store,
                        customerID: item.customer.map(userID) ?? "$RCAnonymousID:0"
                    )
                }
            }
        }
    }

    // MARK: Processes

    mutating func expire(_ side: Side) async throws {
        let worker = try worker(side)
        guard model.leases[worker.epoch] != nil else { return }
        try await lane.host.query(
            """
            UPDATE entitlement_sync.worker SET expires_at = clock_timestamp() - interval '1 second'
             WHERE epoch = \(worker.epoch)
            """
        )
        model.leases[worker.epoch] = false
    }

    mutating func rescue(_ side: Side) async throws {
        _ = try await worker(side).leases.rescue()
        for epoch in model.leases.filter({ !$0.value }).keys {
            model.releaseAll(under: epoch, crashed: true)
            model.leases[epoch] = nil
        }
    }

    mutating func beat(_ side: Side) async throws {
        let worker = try worker(side)
        let holds = try await worker.leases.heartbeat(worker.epoch)
        try expect(holds == (model.leases[worker.epoch] == true), "a heartbeat was answered \(holds)")
        guard !holds else { return }
        let epoch = try await worker.leases.register(.init(host: side.rawValue, pid: 1, version: "test"))
        model.leases[epoch] = true
        workers[side]?.epoch = epoch
    }

    mutating func restart(_ side: Side) async throws {
        let worker = try worker(side)
        try await worker.leases.end(worker.epoch)
        model.releaseAll(under: worker.epoch)
        model.leases[worker.epoch] = nil
        try await start(side)
    }

    mutating func assets(_ side: Side, _ user: Int) async throws {
        guard model.people[user].run != nil else { return }
        // Small batches, and this user's alone: whoever decides on the user may have it wait, and another's would be next.
        try await lane.host.query(
            """
            UPDATE entitlement_sync.asset_run AS r
               SET batch = 2, due = CASE WHEN u.user_id = \(userID(user)) THEN now() ELSE 'infinity' END
              FROM entitlement_sync.user_sync AS u WHERE u.user_key = r.user_key
            """
        )
        _ = try await worker(side).assets.step()
        try await lane.host.query("UPDATE entitlement_sync.asset_run SET due = now() WHERE due = 'infinity'")
        model.continueAssets(of: user, limit: 2)
    }
}
