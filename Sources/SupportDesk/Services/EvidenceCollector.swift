import Crypto
package import Entitlements
import Foundation
import Ledger
package import Logging
import Postgres
import Queue
package import Reconciliation
import StoreClients
import ServiceLifecycle
import TextFormats

/// Finds out what is to be known of a case before people decide it.
package struct EvidenceCollector: Service {
    let records: CaseRecords
    let stores: StoresReader
    private let settings: DeskSettings
    /// There is a key that RevenueCat takes for transfers.
    private let hasTransferKey: Bool
    /// Whether what becomes of tickets is published in the outbox.
    private let publishes: Bool
    private let logger: Logger

    package init(
        records: CaseRecords,
        stores: StoresReader,
        settings: DeskSettings,
        hasTransferKey: Bool,
        publishes: Bool,
        logger: Logger
    ) {
        self.records = records
        self.stores = stores
        self.settings = settings
        self.hasTransferKey = hasTransferKey
        self.publishes = publishes
        self.logger = logger
    }

    /// What a transfer needs to know beside the evidence.
    struct Collected: Sendable {
        /// The evidence's number in our records.
        var id: Int64
        /// From which of RevenueCat's customers it would move the purchases; `nil`: nothing to call for.
        var source: String?
        /// The claimant's id.
        var target: String?
        /// RevenueCat's ids of all that would be moved.
        var moves: [String]
        /// RevenueCat's projects that they are in.
        var projects: Set<String>
    }

    package func run() async {
        await PeriodicService("evidence collector", every: .seconds(1), logger: logger) {
            if publishes { _ = try await records.tell() }
            _ = try await records.tend()
            return await .handlingAll(try await records.take(upTo: 8), collectDue)
        }.run()
    }

    private func collectDue(_ ticketID: Int64) async {
        do { _ = try await collect(ticketID) } catch {
            let failure = error as? ReadFailure
            do {
                // A shutdown is no failure; a task of its own, because this one is cancelled.
                guard !Task.isCancelled, failure?.code != .interrupted else {
                    return try await Task { [records] in try await records.release(ticketID) }.value
                }
                let fault = (error as? AdapterFault).map { _ in AdapterFault.alarm }
                let code =
                    failure?.code.rawValue ?? (error as? PostgresError)?.sqlState ?? fault ?? "\(type(of: error))"
                logger.warning(
                    "the evidence of a ticket could not be collected",
                    metadata: ["ticket.id": "\(ticketID)", "error.code": "\(code)"]
                )
                if failure == nil || failure?.treatment == .park {
                    try await Alarms.raise(
                        "evidence_uncollected",
                        "The evidence of a ticket can't be collected: see error in the table evidence_request.",
                        in: records.pool
                    )
                }
                try await records.putOff(ticketID, for: failure?.retryAfter ?? .seconds(15), error: code)
            } catch {
                // The hold on it ends by itself.
                logger.info("a ticket could not be put off", metadata: ["ticket.id": "\(ticketID)"])
            }
        }
    }

    /// Collects the evidence of one ticket, and keeps it, also where a source is missing; that is part of it then.
    ///
    /// It never takes the place of evidence in which none was missing: people may have agreed to that, and an outage says nothing
    /// against it. `whole`: every source has to answer, because something is done by it.
    ///
    /// - Returns: `nil`: the ticket is closed, or another process collected newer evidence.
    /// - Throws: `ReadFailure`, where a source is missing and nothing is kept; `PostgresError`.
    func collect(_ ticketID: Int64, whole: Bool = false) async throws -> Collected? {
        // Its owner is being read, which brings the purchase into our records.
        guard try await unlessLocked({ try await records.namePurchase(of: ticketID) }) else {
            throw ReadFailure(.incomplete, retryAfter: .seconds(3))
        }
        guard var file = try await records.file(of: ticketID) else { return nil }
        let named = try await lookup(file)
        if try await name(file, by: named) {
            guard let about = try await records.file(of: ticketID) else { return nil }
            file = about
        }
        var (inputs, source, silent) = try await readSources(file)
        let sources = CaseSource.answers(inputs, asked: stores.sources.asked, silent: silent, before: file.sources)
        let missing = sources.filter { $0.result == .unavailable }
        let failure = missing.compactMap { silent[$0.store] }.first
        if let failure, whole || file.hasWholeEvidence || file.isRefused { throw failure }
        inputs.isIncomplete = failure != nil
        inputs.isDisproven = named.isDisproven || named.failure != nil && file.wasDisproven
        inputs.background = try await records.background(
            of: file,
            moving: inputs.needsCall ? inputs.held.map(\.observation) : []
        )
        let evidence = CaseEvidence(inputs, settings)
        let found = CaseRecords.Found(
            evidence: evidence,
            document: try Self.json(
                CaseDocument(
                    evidence,
                    inputs.background,
                    lookups: named.evidence(about: file.purchase?.id),
                    sources: sources
                )
            ),
            hash: Array(SHA256.hash(data: Data(try Self.json(evidence).utf8))),
            askedAt: file.readAt,
            settings: settings
        )
        var waits: [Duration] = []
        if let failure = named.failure {
            // A store did not say what an id leads to.
            waits.append(Self.patience)
            if failure.treatment == .park {
                try await Alarms.raise(
                    "lookup_refused",
                    "A store refuses lookups of ids that claimants named: see the evidence of open tickets, and the store's credentials.",
                    in: records.pool
                )
            }
        }
        if let failure, let since = missing.compactMap(\.since).min() {
            waits.append(Self.askAgain(after: failure, since: Instant(microseconds: since), at: file.readAt))
        }
        guard let id = try await records.keep(found, for: ticketID, again: waits.min()) else { return nil }
        return Collected(
            id: id,
            source: inputs.needsCall ? source : nil,
            target: file.claimant.id,
            moves: inputs.needsCall ? inputs.held.flatMap(\.observation.revenueCatIDs) : [],
            projects: Set(inputs.held.compactMap(\.observation.revenueCatProject))
        )
    }

    // MARK: Collecting

    /// What was found, whence a transfer would move it, and the sources that did not answer in full.
    private typealias Found = (inputs: CaseInputs, source: String?, silent: [Store: ReadFailure])

    private func readSources(_ file: CaseRecords.File) async throws -> Found {
        var inputs = CaseInputs(claimant: file.claimant, now: file.readAt)
        inputs.owner = file.owner
        inputs.purchase = file.purchase
        inputs.identifiers = Set(file.identifiers.map(\.key))
        inputs.hasTransferKey = hasTransferKey
        inputs.isProven = file.isProven
        inputs.isNamedByID = file.isNamedByID
        inputs.ownerObjected = file.ownerObjected
        inputs.ownerReleased = file.ownerReleased
        // Without a purchase there is nothing to ask the stores about, and without a claimant no user to ask for.
        guard file.purchase != nil, file.claimant.id != nil else { return (inputs, nil, [:]) }
        async let claimant = words(of: file.claimant, .claimant, file)
        async let owner = words(of: file.owner, .owner, file)
        let sides = try await [claimant, owner]
        inputs.words = sides.flatMap(\.words)
        var silent = sides.reduce(into: [Store: ReadFailure]()) { $0.merge($1.silent) { first, _ in first } }
        // Whose it is at RevenueCat is not known by one side alone.
        guard silent[.revenueCat] == nil else { return (inputs, nil, silent) }
        let found = inputs
        do {
            guard let customer = try await hold(&inputs, file) else { return (inputs, nil, silent) }
            return (inputs, customer, silent)
        } catch let failure as ReadFailure where !failure.isOurs && failure.code != .locked {
            silent[.revenueCat] = failure
            return (found, nil, silent)
        }
    }

    /// Finds out which customer has the purchase at RevenueCat, and what else RevenueCat holds for that customer.
    ///
    /// - Returns: the customer; `nil`: RevenueCat does not know the purchase.
    private func hold(_ inputs: inout CaseInputs, _ file: CaseRecords.File) async throws -> String? {
        if try await isShared(inputs, file) {
            inputs.holder = .other
            return nil
        }
        guard let customer = try await customer(inputs, file) else { return nil }
        inputs.holder = try await holder(customer, file)
        inputs.source = Self.digest(customer)
        let held = try await stores.everything(of: customer, lane: file.lane)
        let owners = try await records.owners(of: held.flatMap(\.revenueCatIDs))
        inputs.held = held.map { item in
            HeldItem(item, ownerKey: item.revenueCatIDs.compactMap { owners[ExactText($0)] }.first)
        }
        let subjects = held.filter { !inputs.identifiers.isDisjoint(with: $0.identifiers.map(\.key)) }
        // What it holds for a customer by one answer, and not by the next, has moved meanwhile.
        guard !subjects.isEmpty else { throw ReadFailure(.overtaken) }
        if inputs.holder == .unclaimed || inputs.holder == .other {
            inputs.words += subjects.map { CaseWord($0, asked: .holder) }
        }
        return customer
    }

    /// Which of RevenueCat's customers has the purchase, by the lists of the two sides or by a search; `nil`: RevenueCat does not
    /// know it.
    private func customer(_ inputs: CaseInputs, _ file: CaseRecords.File) async throws(ReadFailure) -> String? {
        let sides = Set(inputs.words.filter { $0.observation.source == .revenueCat }.map(\.asked))
        switch (sides.contains(.claimant), sides.contains(.owner)) {
        // It moved between the two readings.
        case (true, true): throw ReadFailure(.overtaken)
        case (true, false): return file.claimant.id
        case (false, true): return file.owner?.id
        case (false, false): return try await stores.customer(holding: file.identifiers, lane: file.lane)
        }
    }

    /// Whether one customer of RevenueCat's stands for both sides, so that nothing there is more the one's than the other's.
    private func isShared(_ inputs: CaseInputs, _ file: CaseRecords.File) async throws(ReadFailure) -> Bool {
        let sides = Set(inputs.words.filter { $0.observation.source == .revenueCat }.map(\.asked))
        guard sides.contains(.claimant), sides.contains(.owner), let claimant = file.claimant.id,
            let owner = file.owner?.id
        else { return false }
        return try await stores.aliases(of: claimant, lane: file.lane).contains(owner)
    }

    /// Who of us a customer of RevenueCat's is: ids are not compared as texts alone, because a customer has many.
    private func holder(_ customer: String, _ file: CaseRecords.File) async throws -> CaseHolder {
        let claimant = file.claimant.id.map(ExactText.init)
        let owner = file.owner?.id.map(ExactText.init)
        if ExactText(customer) == claimant { return .claimant }
        if ExactText(customer) == owner { return .owner }
        let ids = try await stores.aliases(of: customer, lane: file.lane) + [customer]
        let users = Set(try await stores.lookups.spellings(ids.sortedExactly).values.map(ExactText.init))
        if users.contains(where: { $0 == claimant }) { return .claimant }
        guard !users.isEmpty else { return .unclaimed }
        return users.count == 1 && users.first == owner ? .owner : .other
    }

    /// What the stores say of the purchase when they are asked about one side, and which of them did not answer in full.
    private func words(
        of account: CaseAccount?,
        _ side: CaseWord.Side,
        _ file: CaseRecords.File
    ) async throws(ReadFailure) -> (words: [CaseWord], silent: [Store: ReadFailure]) {
        guard let account, let id = account.id else { return ([], [:]) }
        let job = ClaimedJob(
            id: UUID(),
            kind: .reconcile,
            lane: .sweep,
            due: file.readAt,
            userKey: account.key,
            userID: id,
            sandboxAllowed: true,
            claimedAt: file.readAt,
            claimedTick: file.readTick
        )
        let reading = await stores.readAll(job, lane: file.lane)
        var silent = reading.silent
        if reading.coverage != .full, silent.isEmpty {
            let failure = reading.failure ?? ReadFailure(.incomplete)
            guard !failure.isOurs else { throw failure }
            for store in reading.covered { silent[store] = failure }
        }
        if let ours = silent.values.first(where: \.isOurs) { throw ours }
        let names = Set(file.identifiers.map(\.key))
        let words = reading.observations.filter { !names.isDisjoint(with: $0.identifiers.map(\.key)) }
        return (words.map { CaseWord($0, asked: side) }, silent)
    }

    // MARK: After a call

    /// Where purchases are that a call was to move.
    enum Place: Sendable { case source, target }

    /// Reads which customer has purchases, by RevenueCat's ids: the claimant, or a former owner.
    ///
    /// - Returns: `nil`: some are the claimant's and some are not, or the claimant can't be read any more.
    /// - Throws: `ReadFailure`, where that stays unknown; `PostgresError`.
    func place(of moves: [String], ticket ticketID: Int64) async throws -> Place? {
        guard let file = try await records.file(of: ticketID), let target = file.claimant.id else { return nil }
        let there = Set(try await stores.everything(of: target, lane: .support).flatMap(\.revenueCatIDs))
        let arrived = moves.filter(there.contains)
        if arrived.count == moves.count { return .target }
        guard arrived.isEmpty else { return nil }
        // Not there: that they are where they were has to be seen as well.
        guard let customer = try await stores.customer(holding: file.identifiers, lane: .support) else { return nil }
        let here = Set(try await stores.everything(of: customer, lane: .support).flatMap(\.revenueCatIDs))
        return moves.allSatisfy(here.contains) ? .source : nil
    }

    // MARK: Forms

    private static func json(_ value: some Encodable) throws -> String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        return String(decoding: try encoder.encode(value), as: UTF8.self)
    }

    /// Enough to tell one customer from another, and not who it is.
    private static func digest(_ customer: String) -> String {
        Hex.encode(SHA256.hash(data: Data(customer.utf8)).prefix(8))
    }
}

extension CaseRecords.File {
    /// What no user waits for leaves the stores' budgets to those who wait.
    var lane: Lane { isAwaited ? .support : .sweep }
}

extension Observation {
    /// The ids under which RevenueCat itself knows the item.
    fileprivate var revenueCatIDs: [String] {
        source == .revenueCat ? identifiers.filter { $0.kind == "revenuecat_id" }.map(\.value) : []
    }
}
