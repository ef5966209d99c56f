import Entitlements
package import Ledger
package import Logging
import Queue
import SignedTokens
package import StoreClients

/// The App Store as a witness: what it has signed, and what it says when it is asked.
package struct AppStoreSource: Sendable {
    private let transactions: AppStoreProofs
    private let receipts: AppReceiptProofs
    /// `nil`: the store itself is not asked.
    let apps: AppStoreApps?
    private let lookups: UserLookups
    private let refusals: ProofRefusals

    /// `apps`: `nil` where there are no credentials, and then proofs only lead to what others know.
    package init(
        transactions: AppStoreProofs,
        receipts: AppReceiptProofs,
        apps: AppStoreApps?,
        lookups: UserLookups,
        logger: Logger
    ) {
        self.transactions = transactions
        self.receipts = receipts
        self.apps = apps
        self.lookups = lookups
        refusals = ProofRefusals(logger: logger)
    }

    /// Whether the store itself can be asked.
    var canAsk: Bool { apps != nil }

    /// Verifies proofs: the transactions that they are about, the newest of each receipt; whatever does not verify is left out.
    func shown(_ proofs: JobProofs) async -> Shown {
        var shown = Shown()
        for text in proofs.values("storekit_jws") {
            do throws(ProofRefusal) {
                let transaction = try await transactions.transaction(text)
                let environment = AppStoreEnvironment(rawValue: transaction.environment)
                shown.subjects.append(
                    .init(id: transaction.originalTransactionID, environment: environment, app: transaction.bundleID)
                )
                shown.ids.append([transaction.originalTransactionID, transaction.transactionID])
                refusals.note("storekit_jws", nil)
            } catch {
                shown.refuse("storekit_jws", error)
                refusals.note("storekit_jws", error)
            }
        }
        for text in proofs.values("app_receipt") {
            do throws(ProofRefusal) {
                let receipt = try await receipts.receipt(text)
                refusals.note("app_receipt", nil)
                // One id leads to all that the account has bought.
                let newest = receipt.purchases.max {
                    ($0.purchasedAt ?? Instant(microseconds: 0)) < ($1.purchasedAt ?? Instant(microseconds: 0))
                }
                guard let newest else { continue }
                shown.ids += receipt.lines
                let id = newest.originalTransactionID ?? newest.transactionID
                shown.subjects.append(
                    .init(id: id, environment: receipt.isSandbox ? .sandbox : .production, app: receipt.bundleID)
                )
            } catch {
                shown.refuse("app_receipt", error)
                refusals.note("app_receipt", error)
            }
        }
        await read(appTransactions: proofs.values("app_transaction"), into: &shown)
        return shown
    }

    /// Verifies app transactions: the store accounts that they name.
    ///
    /// They are about no purchase, so one that does not verify leaves nothing unclear.
    private func read(appTransactions texts: [String], into shown: inout Shown) async {
        for text in texts {
            do throws(ProofRefusal) {
                let transaction = try await transactions.appTransaction(text)
                refusals.note("app_transaction", nil)
                guard let id = transaction.appTransactionID,
                    let environment = AppStoreEnvironment(rawValue: transaction.environment)
                else { continue }
                let account = SubmittedAccount(id: id, environment: environment.ledgerName, app: transaction.bundleID)
                if !shown.accounts.contains(account) { shown.accounts.append(account) }
            } catch {
                shown.refused.append("app_transaction (\(error.code.rawValue))")
                refusals.note("app_transaction", error)
            }
        }
    }

    /// What verified proofs are about.
    struct Shown: Sendable {
        /// A transaction each, whose buyer's purchases are asked for.
        var subjects: [AppStoreQuery.Subject] = []
        /// For each the ids by which another source may know the purchase.
        var ids: [[String]] = []
        /// The store accounts of the user's devices, by verified app transactions.
        var accounts: [SubmittedAccount] = []
        /// What did not verify, by kind and fault.
        var refused: [String] = []
        /// Why a proof says neither yes nor no.
        var unclear: ReadFailure?

        fileprivate mutating func refuse(_ kind: String, _ refusal: ProofRefusal) {
            refused.append("\(kind) (\(refusal.code.rawValue))")
            // Both are found out only once the signature is the store's own, under a root that is pinned.
            if refusal.code == .expired || refusal.code == .notYetValid {
                unclear = ReadFailure(.unclearTrust, store: .appStore)
            }
        }
    }

    /// Asks about transactions that the user has shown, or that are named without a proof.
    func read(
        shown subjects: [AppStoreQuery.Subject],
        isProven: Bool = true,
        _ context: ReadContext
    ) async -> StorePart {
        guard let apps, !subjects.isEmpty else { return .nothing(.appStore) }
        let queries = subjects.map {
            AppStoreQuery($0, lane: context.lane, isFromClient: true, isProven: isProven, mayGrant: context.mayGrant)
        }
        var part = await read(queries, in: apps, context)
        for index in part.observations.indices { part.observations[index].isSubmitted = true }
        return part
    }

    /// Asks about what our records hold of the user.
    ///
    /// What `seen` names was read already. Of what ended long ago one is asked about, and only where `asksEnded` says that
    /// no other source would show that its buyer came back: the answer lists all that an account has.
    func read(
        _ records: Records,
        except seen: Set<PurchaseIdentifierKey>,
        asksEnded: Bool,
        _ context: ReadContext
    ) async -> StorePart {
        let own = records.known.filter { purchase in
            purchase.store == Store.appStore.rawValue
                // A sandbox purchase that counts for nothing is not worth a request.
                && (purchase.environment == "production" || context.job.sandboxAllowed)
        }
        var asked = own.filter { !$0.isLongOver(at: context.askedAt) }
        if asksEnded { asked += ended(own, beside: asked, seen) }
        let queries = asked.compactMap { purchase -> AppStoreQuery? in
            guard seen.isDisjoint(with: purchase.identifiers.map(\.key)),
                // RevenueCat's name for a family member's share is no transaction.
                let id = purchase.lookupID ?? purchase.identifiers.first(where: { !$0.value.contains("#") })?.value
            else { return nil }
            return AppStoreQuery(
                .init(
                    id: id,
                    environment: purchase.environment == "production" ? .production : .sandbox,
                    app: purchase.storeApp
                ),
                lane: context.lane,
                // What was paid for does not vanish before its end: an id that is suddenly unknown is an error somewhere.
                isProven: purchase.isRunning(at: context.askedAt),
                mayGrant: context.mayGrant
            )
        }
        let fromEvents = records.eventPurchases(of: .appStore).compactMap { named -> AppStoreQuery? in
            guard !seen.contains(where: { $0.value == named.value }) else { return nil }
            return AppStoreQuery(
                .init(
                    id: named.value,
                    environment: AppStoreEnvironment(ledgerName: named.environment),
                    app: named.app
                ),
                lane: context.lane,
                // What the App Store has sent a notification of exists, whether its API shows it yet or not.
                isProven: named.isFresh,
                mayGrant: context.mayGrant
            )
        }
        guard let apps, !(queries + fromEvents).isEmpty else { return .nothing(.appStore) }
        return await read(queries + fromEvents, in: apps, context)
    }

    /// One purchase of each app that nothing else is asked about: the answer lists all that an account has in the app.
    private func ended(
        _ own: [KnownPurchase],
        beside asked: [KnownPurchase],
        _ seen: Set<PurchaseIdentifierKey>
    ) -> [KnownPurchase] {
        guard let apps else { return [] }
        let only = apps.clients.count == 1 ? apps.clients.first?.bundleID : nil
        func app(of purchase: KnownPurchase) -> String? { purchase.storeApp ?? only }
        // With one app it is of that, whatever was seen.
        if only != nil, seen.contains(where: { $0.store == Store.appStore.rawValue }) { return [] }
        var known = asked.map(app)
        known += own.filter { !seen.isDisjoint(with: $0.identifiers.map(\.key)) }.map(app)
        var ended: [KnownPurchase] = []
        for purchase in own {
            let app = app(of: purchase)
            guard !known.contains(app), app.map({ apps.client(of: $0) != nil }) ?? true else { continue }
            known.append(app)
            ended.append(purchase)
        }
        return ended
    }

    /// Asks app by app: trouble with one keeps no other from being asked.
    private func read(
        _ queries: [AppStoreQuery],
        in apps: AppStoreApps,
        _ context: ReadContext
    ) async -> StorePart {
        let only = apps.clients.count == 1 ? apps.clients.first?.bundleID : nil
        func app(of query: AppStoreQuery) -> String? { query.subject.app ?? only }
        var order: [String?] = []
        for app in queries.map(app) where !order.contains(app) { order.append(app) }
        var part: StorePart?
        var seen: Set<String> = []
        for place in order {
            let more = await read(accounts: queries.filter { app(of: $0) == place }, in: apps, seen: &seen, context)
            part?.add(more)
            part = part ?? more
        }
        return part ?? .nothing(.appStore)
    }

    /// Asks account by account, for passes add up within one account alone.
    ///
    /// What an earlier answer contained is not asked for again.
    private func read(
        accounts queries: [AppStoreQuery],
        in apps: AppStoreApps,
        seen: inout Set<String>,
        _ context: ReadContext
    ) async -> StorePart {
        var part = StorePart.nothing(.appStore)
        var isFirst = true
        for query in queries where !seen.contains(query.subject.id) {
            let reading = await apps.read(query)
            part.add(reading.observations, answering: query.subject)
            seen.formUnion(reading.observations.flatMap { $0.identifiers.map(\.value) })
            seen.formUnion(reading.transactionIDs)
            seen.insert(query.subject.id)
            var coverage = reading.coverage
            do throws(ReadFailure) {
                let passes = reading.passes.map { Observation(pass: $0) }
                let limited = try await Passes(lookups: lookups).limit(passes, context)
                part.add(limited.items, answering: query.subject)
                part.hasUnreadable = part.hasUnreadable || limited.hasUnreadable
            } catch {
                coverage = .partial
                part.failure = part.failure ?? ReadFailure(records: error, store: .appStore)
            }
            part.failure = part.failure ?? reading.failure
            part.hasUnreadable = part.hasUnreadable || reading.hasUnreadable
            part.coverage = isFirst || part.coverage == coverage ? coverage : .partial
            isFirst = false
            // A store in trouble is left alone; what one answer is bad for, the next may be good for.
            let goesOn: Set<ReadFailure.Code> = [.malformed, .rejected]
            if let failure = reading.failure, !goesOn.contains(failure.code), !reading.isDenied {
                part.coverage = part.coverage == .full ? .partial : part.coverage
                break
            }
        }
        return part
    }

    /// Finds what a reported id leads to: the purchase, fully read where it is the user's own; or why it could not be found.
    ///
    /// `isOwn`: whether an id that the app gave the store stands for the user.
    ///
    /// All apps are asked at once: one after the other, the time would tell in which the id exists.
    func find(
        _ typed: TypedID,
        _ context: ReadContext,
        isOwn: @escaping @Sendable (String) -> Bool
    ) async -> StorePart {
        guard let apps else { return .nothing(.appStore) }
        return await .first(ofEach: apps.clients, nothing: .nothing(.appStore)) { client in
            do throws(ReadFailure) { return try await search(typed, in: client, context, isOwn: isOwn) } catch {
                return .failed(.appStore, error)
            }
        }
    }

    private func search(
        _ typed: TypedID,
        in client: AppStoreClient,
        _ context: ReadContext,
        isOwn: (String) -> Bool
    ) async throws(ReadFailure) -> StorePart {
        let transactions: [SignedTransaction]
        if typed.kind == "order_id" {
            transactions = try await client.order(typed.value, lane: context.lane)
        } else {
            transactions = try await client.transaction(typed.value, in: nil, lane: context.lane).map { [$0] } ?? []
        }
        guard let first = transactions.first else { return .nothing(.appStore) }
        // For all but what the app's id names as the user's own, the number of requests, and so the time, is that of an id
        // which leads nowhere: such a transaction is asked for in the sandbox as well.
        guard let account = first.appAccountToken, isOwn(account) else {
            if typed.kind != "order_id", first.environment == AppStoreEnvironment.production.rawValue {
                _ = try await client.transaction(typed.value, in: .sandbox, lane: context.lane)
            }
            return StorePart(store: .appStore, coverage: .full, observations: [Observation(named: first)])
        }
        let environment = AppStoreEnvironment(rawValue: first.environment)
        let query = AppStoreQuery(
            .init(id: first.originalTransactionID, environment: environment, app: first.bundleID),
            lane: context.lane,
            isFromClient: true,
            mayGrant: context.mayGrant
        )
        var part = await read([query], in: AppStoreApps([client]), context)
        // An id leads to one purchase, not to whatever else its buyer has.
        part.observations = part.observations.filter { item in
            item.identifiers.contains { $0.value == first.originalTransactionID }
        }
        return part
    }
}

extension StorePart {
    /// Adds what one answer lists: all of it is of one account.
    fileprivate mutating func add(_ items: [Observation], answering subject: AppStoreQuery.Subject) {
        for var item in items {
            item.storeAccount = StoreAccount(answer: subject.id, id: item.storeAccount?.id)
            observations.append(item)
        }
    }
}

extension AppReceipt {
    /// The ids of each purchase: a receipt lists every renewal, and gems as well.
    fileprivate var lines: [[String]] {
        let consumable: Int64 = 1
        var lines: [String: (newest: Instant, ids: [String])] = [:]
        for item in purchases where item.kind != consumable {
            // What ended long before the receipt was made is not worth a question.
            if let end = item.expiresAt, end + .seconds(61 * 86_400) < createdAt { continue }
            let original = item.originalTransactionID ?? item.transactionID
            let at = item.purchasedAt ?? Instant(microseconds: 0)
            if let known = lines[original], known.newest >= at { continue }
            lines[original] = (at, original == item.transactionID ? [original] : [original, item.transactionID])
        }
        return lines.sorted { $0.value.newest > $1.value.newest }.map(\.value.ids)
    }
}
