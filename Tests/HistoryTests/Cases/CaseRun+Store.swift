@testable import Entitlements
import Foundation
import Postgres
import Queue
import Reconciliation
@testable import SupportDesk
import TestSupport
import UserRequests

/// What readings and evidence are made of: the store's word at this moment.
extension CaseRun {
    /// RevenueCat's customers as they are called.
    static func customerID(_ customer: Int?) -> String { customer.map(userID) ?? "$RCAnonymousID:0" }

    /// What a claimant says.
    static let proof = #"[{"store":"app_store","kind":"transaction_id","value":"st-0"}]"#

    // MARK: Users are read

    mutating func startWorker() async throws {
        epoch = try await Leases(pool: floor.lane.pool(.a), duration: .seconds(3600))
            .register(.init(host: "a", pid: 1, version: "test"))
    }

    /// Asks for a restore, with the purchase's id as a claim, or for a reconcile; nothing where there is no such user.
    func request(_ user: Int, restore: Bool) async throws {
        do {
            if restore {
                try await host.query(
                    "SELECT entitlement_sync.request_restore(\(userID(user)), \(PostgresJSON(Self.proof)), '7')"
                )
            } else {
                _ = try await Requests(pool: host).reconcile(userID(user), reason: "manual")
            }
        } catch {
            guard error.sqlState == "ES001" else { throw error }
        }
    }

    /// Claims what is queued, and reads it; it is applied later.
    mutating func readAll() async throws {
        try await endAll()
        try await host.query(
            """
            UPDATE entitlement_sync.queue AS q
               SET due = least(q.due, now()),
                   restore_due = CASE WHEN q.restore_due IS NOT NULL THEN least(q.restore_due, now()) END,
                   reconcile_due = CASE WHEN q.reconcile_due IS NOT NULL THEN least(q.reconcile_due, now()) END
            """
        )
        let limits = JobLane.allCases.map { JobQueue.LaneLimit(lane: $0, limit: 5) }
        let queue = JobQueue(pool: floor.lane.pool(.a), ignoresPause: false)
        let claimed = try await queue.claim(limits, upTo: 5, for: epoch)
        guard !claimed.isEmpty else { return }
        let asked = Instant(try await now())
        for job in claimed {
            let user = job.userID.flatMap(userIndex)
            let items = user.map { truth.listing(for: $0) } ?? []
            var reading = Reading(
                coverage: .full,
                askedAt: asked,
                observations: items.map { item in item.observation(for: user ?? -1) }
            )
            reading.claims = ClaimFindings(clientError: job.request.clientError.map { ClientError($0) })
            let shown = Run.values(in: job.request.proofs)
            reading.claims.found = truth.items.filter(\.isListed).flatMap { item in
                item.identifiers.filter { shown.contains($0.value) }.map { identifier in
                    FoundPurchase(
                        identifier: identifier,
                        store: item.store,
                        customerID: Self.customerID(item.customer)
                    )
                }
            }
            readings.append(ReadJob(job: job, reading: reading))
        }
        trace.append("read \(claimed.compactMap(\.userID))")
    }

    /// Applies all that was read; nobody's transaction is open meanwhile.
    mutating func applyAll() async throws {
        guard !readings.isEmpty else { return }
        try await endAll()
        let apply = Apply(
            pool: floor.lane.pool(.a),
            settings: ApplySettings(
                decision: DecisionSettings(mode: .full, absenceMargin: .zero, absenceMarginGooglePlay: .zero),
                brake: DemotionBrake(percent: 0, minimum: 1_000_000),
                retry: RetryPolicy(
                    maxAttempts: 3,
                    backoffBase: .zero,
                    backoffCap: .seconds(1),
                    maxAge: .seconds(86_400)
                ),
                assetBatch: 1000
            ),
            logger: .quiet
        )
        let report = try await apply(readings, epoch: epoch)
        let kept = Set(report.postponed.map(\.job.id))
        trace.append("applied \(report.ended.count), postponed \(kept.count)")
        readings.removeAll { !kept.contains($0.job.id) }
    }

    func now() async throws -> PostgresTimestamp {
        guard let row = try await host.query("SELECT clock_timestamp()").first else { throw fail("no clock") }
        return try row.decode(PostgresTimestamp.self)
    }

    // MARK: Evidence is collected

    /// What a transfer needs to know beside the evidence.
    struct Collected: Sendable {
        var id: Int64
        /// RevenueCat's customer whose purchases are moved; `nil`: nothing to call for.
        var source: String?
        var moves: [String]
    }

    /// Collects the evidence of a ticket as a worker does.
    ///
    /// - Returns: `nil`: it could not be collected now, or nobody needs it any more.
    mutating func collect(_ ticket: Int64) async throws -> Collected? {
        do {
            guard try await records.namePurchase(of: ticket), let file = try await records.file(of: ticket) else {
                return nil
            }
            guard let inputs = try await inputs(file) else { return nil }
            let evidence = CaseEvidence(inputs, settings)
            let encoder = JSONEncoder()
            encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
            let document = String(decoding: try encoder.encode(evidence), as: UTF8.self)
            let hash = try await host.query("SELECT sha256(convert_to(\(document), 'UTF8'))")
            let found = CaseRecords.Found(
                evidence: evidence,
                document: document,
                hash: try hash.first?.decode(PostgresBytes.self).bytes ?? [],
                askedAt: file.readAt,
                settings: settings
            )
            let id = try await records.keep(found, for: ticket)
            trace.append("evidence of \(ticket): \(id.map { "\($0)" } ?? "nobody's") \(evidence.facts)")
            guard let id else { return nil }
            return Collected(
                id: id,
                source: inputs.needsCall ? inputs.source : nil,
                moves: inputs.needsCall ? inputs.held.flatMap { $0.observation.identifiers.prefix(1).map(\.value) } : []
            )
        } catch let error as PostgresError where error.sqlState == SQLState.lockNotAvailable {
            note("evidence met a lock")
            return nil
        }
    }

    private func inputs(_ file: CaseRecords.File) async throws -> CaseInputs? {
        let names = Set(file.identifiers.map(\.key))
        var inputs = CaseInputs(claimant: file.claimant, now: file.readAt)
        inputs.owner = file.owner
        inputs.purchase = file.purchase
        inputs.identifiers = names
        inputs.isProven = file.isProven
        inputs.isNamedByID = file.isNamedByID
        inputs.ownerObjected = file.ownerObjected
        inputs.ownerReleased = file.ownerReleased
        guard file.purchase != nil, let claimant = file.claimant.id else { return inputs }
        let subjects = truth.items.filter { $0.isListed && !names.isDisjoint(with: $0.identifiers.map(\.key)) }
        for (id, side) in [(claimant, CaseWord.Side.claimant), (file.owner?.id, .owner)] {
            guard let user = id.flatMap(userIndex) else { continue }
            inputs.words += subjects.filter { $0.customer == user }.map {
                CaseWord($0.observation(for: user), asked: side)
            }
        }
        guard let subject = subjects.first else { return inputs }
        let customer = Self.customerID(subject.customer)
        if customer == claimant {
            inputs.holder = .claimant
        } else if customer == file.owner?.id {
            inputs.holder = .owner
        } else {
            let known = try await host.query("SELECT u.id FROM users AS u WHERE u.id = \(customer)")
            inputs.holder = known.isEmpty ? .unclaimed : .other
            inputs.words += subjects.map { CaseWord($0.observation(for: subject.customer ?? -1), asked: .holder) }
        }
        inputs.source = customer
        let held = truth.items.filter { $0.isListed && $0.customer == subject.customer }
        let owners = try await records.owners(of: held.map { $0.names[0] })
        inputs.held = held.map { item in
            HeldItem(item.observation(for: subject.customer ?? -1), ownerKey: owners[ExactText(item.names[0])])
        }
        return inputs
    }

    // MARK: After a call

    /// With whom purchases are; `nil`: nobody can tell.
    mutating func place(of moves: [String], claimant: Int?) -> Bool? {
        guard let claimant else { return nil }
        let items = truth.items.filter { $0.isListed && moves.contains($0.names[0]) }
        if items.count == moves.count, items.allSatisfy({ $0.customer == claimant }) { return true }
        guard !items.contains(where: { $0.customer == claimant }), items.count == moves.count else { return nil }
        return Set(items.map { Self.customerID($0.customer) }).count == 1 ? false : nil
    }
}
