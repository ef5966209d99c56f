package import Entitlements
package import Ledger
package import Logging
package import Postgres
import Queue
package import ServiceLifecycle
package import StoreClients
package import StoreEvents
import Synchronization

/// Asks the stores about a claimed job.
package struct JobReader: Sendable {
    package var read: @Sendable (ClaimedJob) async -> Reading

    /// Asks the stores who an event is about; `nil`: it is not known how.
    package var resolve: (@Sendable (Inbox.Ask) async -> Inbox.Answer)?

    package init(
        read: @escaping @Sendable (ClaimedJob) async -> Reading,
        resolve: (@Sendable (Inbox.Ask) async -> Inbox.Answer)? = nil
    ) {
        self.read = read
        self.resolve = resolve
    }
}

/// The reader over every store that is configured.
///
/// RevenueCat and whatever the user has shown are asked at once. The stores themselves are asked about what our records
/// hold only where those do not give access, and typed ids only where nothing does.
package final class StoresReader: Sendable {
    /// The witnesses; a store without credentials is off.
    package struct Sources: Sendable {
        package var revenueCat: RevenueCatSource?
        package var appStore: AppStoreSource?
        package var googlePlay: GooglePlaySource?
        package var onside: OnsideSource?

        package init(
            revenueCat: RevenueCatSource? = nil,
            appStore: AppStoreSource? = nil,
            googlePlay: GooglePlaySource? = nil,
            onside: OnsideSource? = nil
        ) {
            self.revenueCat = revenueCat
            self.appStore = appStore
            self.googlePlay = googlePlay
            self.onside = onside
        }

        /// The stores whose word is needed before a no is an answer.
        package var asked: Set<Store> {
            var stores: Set<Store> = []
            if revenueCat != nil { stores.insert(.revenueCat) }
            if appStore?.canAsk == true { stores.insert(.appStore) }
            if googlePlay != nil { stores.insert(.googlePlay) }
            if onside != nil { stores.insert(.onside) }
            return stores
        }
    }

    package let sources: Sources
    package let lookups: UserLookups
    let naming: OwnerNaming
    let reportedIDTime: Duration
    /// Fills the index by which reads find the user of an account id; `nil`: no store needs it.
    package let accountWalk: (any Service)?
    private let catalog = Mutex<(catalog: ProductCatalog, at: ContinuousClock.Instant)?>(nil)

    /// `accounts`: how apps turn user ids into the ids they give to stores; `pool`: where the index of those ids is, which walks
    /// fill (`nil`: only what is a user's by itself names one); `reportedIDTime`: longer than the stores usually take for one id,
    /// so that an id that exists and one that does not take the same time.
    package init(
        sources: Sources,
        accounts: AccountIDs = AccountIDs(),
        lookups: UserLookups,
        pool: PostgresPool? = nil,
        reportedIDTime: Duration = .seconds(2),
        logger: Logger? = nil
    ) {
        self.sources = sources
        self.lookups = lookups
        self.reportedIDTime = reportedIDTime
        // RevenueCat names its customers, and Onside is given our own ids.
        let isNeeded = sources.appStore != nil || sources.googlePlay != nil
        let index = isNeeded ? pool.map { AccountIndex(pool: $0, fingerprint: accounts.fingerprint) } : nil
        naming = OwnerNaming(accounts: accounts, lookups: lookups, index: index)
        let needed = naming.walkNeeded
        accountWalk = index.flatMap { index in
            logger.map { AccountWalk(index: index, accounts: accounts, needed: needed, logger: $0) }
        }
    }

    /// The reader as the pipeline takes it.
    package var reader: JobReader {
        JobReader(read: { [self] job in await read(job) }, resolve: { [self] ask in await resolve(ask) })
    }

    /// The same for people who ask what a job would come to, and wait for it.
    package var dryRunReader: JobReader { JobReader { [self] job in await read(job, lane: .support) } }

    func read(_ job: ClaimedJob, lane: Lane? = nil, everything: Bool = false) async -> Reading {
        let askedAt = job.databaseTime(at: .now)
        guard let userID = job.userID else { return Reading(coverage: .none, askedAt: askedAt) }
        do throws(ReadFailure) {
            var context = ReadContext(job, userID: userID, askedAt: askedAt, catalog: try await currentCatalog())
            if let lane { context.lane = lane }
            if everything { context.readsAll = true }
            var reading = try await read(JobProofs(job.request.proofs), context)
            reading.revenueCatProjects = sources.revenueCat?.projects.names ?? []
            reading.claims.clientError = job.request.clientError.map { ClientError($0) }
            return reading
        } catch {
            return Reading(coverage: .none, askedAt: askedAt, failure: error, covered: sources.asked)
        }
    }

    private func read(_ proofs: JobProofs, _ context: ReadContext) async throws(ReadFailure) -> Reading {
        let verified = await sources.appStore?.shown(proofs) ?? AppStoreSource.Shown()
        let asksStores = sources.asked != [.revenueCat]
        // Whose they are has to be known before the proofs are read; without proofs RevenueCat may suffice.
        // An event may be the first word of a purchase: that is asked for, whatever gives access without it.
        var eventPurchases: [EventPurchase]? =
            asksStores && context.job.lane == .event ? try await self.eventPurchases(context) : nil
        var known: [KnownPurchase]? = proofs.isEmpty || !asksStores ? nil : try await self.known(context)
        async let customer = sources.revenueCat?.read(context)
        async let shown = read(shown: proofs, verified.subjects, known ?? [], context)
        var parts = await [customer].compactMap(\.self) + shown
        for index in parts.indices { parts[index].dropReplays(of: known ?? []) }
        try await name(&parts, context)
        try await consult(&parts, verified.ids, own: keys(known ?? []), context)
        try await resolveOwners(&parts, known ?? [], context)
        if !context.readsAll, eventPurchases?.isEmpty != false,
            parts.contains(where: { $0.observations.contains(where: context.givesAccess) })
        {
            var reading = Reading(parts, askedAt: context.askedAt, stores: sources.asked)
            // What our records hold was not asked for: enough to say yes, not enough to say no.
            if asksStores, reading.coverage == .full { reading.coverage = .partial }
            reading.claims.accounts = verified.accounts
            return reading
        }
        if asksStores {
            if known == nil { known = try await self.known(context) }
            if eventPurchases == nil { eventPurchases = try await self.eventPurchases(context) }
            let records = Records(known: known ?? [], eventPurchases: eventPurchases ?? [])
            var own = await read(records, except: parts, context)
            for index in own.indices { own[index].dropReplays(of: records.known) }
            try await name(&own, context)
            // RevenueCat is asked about the purchases of events as about a proof: it may hold that for another user.
            let listed = parts.filter { $0.store == .revenueCat }.flatMap(\.observations)
                .filter { $0.owner == .askedUser }.flatMap { $0.identifiers.map(\.key) }
            try await consult(
                &own,
                [],
                eventPurchases: records.eventPurchases,
                own: keys(records.known).union(listed),
                context
            )
            try await resolveOwners(&own, records.known, context)
            parts += own
        }
        if let known, known.count(where: { !$0.isLongOver(at: context.askedAt) }) > KnownPurchase.most {
            for index in parts.indices where parts[index].store != .revenueCat {
                parts[index].coverage = .partial
                parts[index].failure = parts[index].failure ?? ReadFailure(.incomplete)
            }
        }
        var reading = Reading(parts, askedAt: context.askedAt, stores: sources.asked)
        if let failure = unread(proofs, context) ?? verified.unclear {
            reading.failure = reading.failure ?? failure
            if reading.coverage == .full { reading.coverage = .partial }
        }
        reading.claims.refusals = verified.refused + parts.flatMap(\.refused)
        reading.claims.accounts = verified.accounts
        if reading.coverage == .full { await find(reported: proofs, into: &reading, context) }
        return reading
    }

    private func known(_ context: ReadContext) async throws(ReadFailure) -> [KnownPurchase] {
        try await readRecords { try await lookups.purchases(of: context.job.userKey) }
    }

    private func eventPurchases(_ context: ReadContext) async throws(ReadFailure) -> [EventPurchase] {
        try await readRecords { try await lookups.eventPurchases(of: context.job.userKey) }
            .filter { $0.environment != "sandbox" || context.job.sandboxAllowed }
    }

    private func keys(_ known: [KnownPurchase]) -> Set<PurchaseIdentifierKey> {
        Set(known.flatMap { $0.identifiers.map(\.key) })
    }

    func name(_ parts: inout [StorePart], _ context: ReadContext) async throws(ReadFailure) {
        for index in parts.indices { try await naming.name(&parts[index].observations, for: context.userID) }
    }

    /// What the user has shown, by the stores that verify it; those that nothing was shown of are left out.
    private func read(
        shown proofs: JobProofs,
        _ subjects: [AppStoreQuery.Subject],
        _ known: [KnownPurchase],
        _ context: ReadContext
    ) async -> [StorePart] {
        let tokens = proofs.values("purchase_token")
        let histories = proofs.values("onside_history")
        async let appStore = subjects.isEmpty ? nil : sources.appStore?.read(shown: subjects, context)
        async let googlePlay = tokens.isEmpty ? nil : sources.googlePlay?.read(shown: tokens, known: known, context)
        async let onside = histories.isEmpty ? nil : sources.onside?.read(shown: histories, context)
        return await [appStore, googlePlay, onside].compactMap(\.self).filter { sources.asked.contains($0.store) }
    }

    /// What our records hold of the user, asked again; every store that is asked directly answers, if only with nothing.
    private func read(
        _ records: Records,
        except parts: [StorePart],
        _ context: ReadContext
    ) async -> [StorePart] {
        let seen = Set(
            parts.filter { $0.store != .revenueCat }
                .flatMap { $0.observations.flatMap { $0.identifiers.map(\.key) } }
        )
        async let appStore =
            sources.appStore?.canAsk == true
            ? sources.appStore?.read(records, except: seen, asksEnded: sources.revenueCat == nil, context) : nil
        async let googlePlay = sources.googlePlay?.read(records, except: seen, context)
        async let onside = sources.onside?.read(known: records.known, except: seen, context)
        return await [appStore, googlePlay, onside].compactMap(\.self)
    }

    /// Why a store that the claimant speaks of is not read, if no other source can answer for it.
    private func unread(_ proofs: JobProofs, _ context: ReadContext) -> ReadFailure? {
        // RevenueCat speaks for the two stores that it knows.
        let readable = sources.revenueCat == nil ? sources.asked : sources.asked.union([.appStore, .googlePlay])
        switch context.job.request.clientError.map({ ClientError($0) }) {
        case .cancelled, .connectionError, .serviceUnavailable, .internalError:
            if let store = proofs.stores.subtracting(readable).first { return ReadFailure(.unavailable, store: store) }
        case .receiptAlreadyInUse, .loginDiscarded, .appNotRegistered, .other, nil: break
        }
        return proofs.proven.subtracting(readable).first.map { ReadFailure(.storeOff, store: $0) }
    }

    /// The mapping is a table of a few rows that changes rarely: a copy of a second's age decides what is read, and the
    /// apply transaction reads it again before it decides anything.
    func currentCatalog() async throws(ReadFailure) -> ProductCatalog {
        if let known = catalog.withLock({ $0 }), known.at + .seconds(1) > .now { return known.catalog }
        let fresh = try await readRecords { try await lookups.catalog() }
        catalog.withLock { $0 = (fresh, .now) }
        return fresh
    }
}

/// What is on record of a user's purchases.
struct Records: Sendable {
    /// The ledger's.
    var known: [KnownPurchase]
    /// Purchases that events name and the ledger does not hold for the user.
    var eventPurchases: [EventPurchase]

    func eventPurchases(of store: Store) -> [EventPurchase] { eventPurchases.filter { $0.store == store.rawValue } }
}
