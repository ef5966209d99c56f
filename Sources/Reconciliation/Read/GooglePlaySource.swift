import Entitlements
package import Ledger
import Queue
package import StoreClients

/// Google Play as a witness.
package struct GooglePlaySource: Sendable {
    let apps: GooglePlayApps
    private let passes: Passes
    /// The packages whose sales others acknowledge.
    private let unacknowledged: Set<String>

    package init(client: GooglePlayClient, lookups: UserLookups) {
        self.init(GooglePlayApps([client]), lookups: lookups)
    }

    package init(_ apps: GooglePlayApps, unacknowledged: Set<String> = [], lookups: UserLookups) {
        self.apps = apps
        self.unacknowledged = unacknowledged
        passes = Passes(lookups: lookups)
    }

    /// Asks about tokens that the user has shown.
    func read(shown tokens: [String], known: [KnownPurchase], _ context: ReadContext) async -> StorePart {
        var part = await read(tokens, known, [:], isFromClient: true, context)
        for index in part.observations.indices { part.observations[index].isSubmitted = true }
        return part
    }

    /// Asks about what our records hold of the user.
    func read(
        _ records: Records,
        except seen: Set<PurchaseIdentifierKey>,
        _ context: ReadContext
    ) async -> StorePart {
        let isPass = { (purchase: KnownPurchase) in !context.catalog.durations(of: purchase.entitlements).isEmpty }
        let hasPasses = records.known.contains { isPass($0) && !$0.isLongOver(at: context.askedAt) }
        let tokens = records.known.compactMap { purchase -> String? in
            guard purchase.store == Store.googlePlay.rawValue, seen.isDisjoint(with: purchase.identifiers.map(\.key)),
                purchase.environment == "production" || context.job.sandboxAllowed,
                // Where a pass ends is reckoned from those before it.
                !purchase.isLongOver(at: context.askedAt) || hasPasses && isPass(purchase)
            else { return nil }
            return purchase.lookupID
        }
        let named = records.eventPurchases(of: .googlePlay)
        let fromEvents = named.map(\.value).filter { value in !seen.contains { $0.value.isExactly(value) } }
        var packages: [ExactText: String] = [:]
        for purchase in named { if let app = purchase.app { packages[ExactText(purchase.value)] = app } }
        let asked = fromEvents.filter { !OrderNumber.isOrder($0) && !tokens.contains($0) } + tokens
        var part = await read(asked, records.known, packages, isFromClient: false, context)
        // An order that an event names is mostly that of a token beside it; what is left has a token of its own.
        let answered = Set(part.observations.flatMap { $0.identifiers.map { ExactText($0.value) } })
        let orders = fromEvents.filter { OrderNumber.isOrder($0) && !answered.contains(ExactText($0)) }
        let found = await self.tokens(behind: orders, in: packages, lane: context.lane)
        let more = found.tokens.filter { !asked.contains($0) }
        if !more.isEmpty { part.add(await read(more, records.known, found.packages, isFromClient: false, context)) }
        if let failure = found.failure {
            part.coverage = part.observations.isEmpty ? .none : .partial
            part.failure = part.failure ?? failure
        }
        return part
    }

    /// The purchase tokens behind what an event names (tokens, or else the numbers of orders), and why not all could be found.
    func tokens(behind names: [String], in packages: [ExactText: String], lane: Lane) async -> Behind {
        let tokens = names.filter { !OrderNumber.isOrder($0) }
        guard tokens.isEmpty else { return Behind(tokens: tokens) }
        var found = Behind()
        // A renewal's order and its first one lead to the same token.
        for order in names {
            do throws(ReadFailure) {
                guard let order = try await apps.order(order, in: packages[ExactText(order)], lane: lane)
                else { continue }
                guard let token = order.purchaseToken else { throw ReadFailure(.malformed, store: .googlePlay) }
                if !found.tokens.contains(token) { found.tokens.append(token) }
                if let package = order.package { found.packages[ExactText(token)] = package }
            } catch {
                found.failure = error
                return found
            }
        }
        return found
    }

    /// The purchase tokens behind some names.
    struct Behind: Sendable {
        var tokens: [String] = []
        /// Those of them that are known.
        var packages: [ExactText: String] = [:]
        /// Why not all could be found.
        var failure: ReadFailure?
    }

    private func read(
        _ tokens: [String],
        _ known: [KnownPurchase],
        _ packages: [ExactText: String],
        isFromClient: Bool,
        _ context: ReadContext
    ) async -> StorePart {
        guard !tokens.isEmpty else { return .nothing(.googlePlay) }
        let own = known.filter { $0.store == Store.googlePlay.rawValue }
        var query = GooglePlayQuery(
            tokens: tokens,
            known: Set(own.flatMap { $0.identifiers.filter { $0.kind == "purchase_token" }.map(\.value) }),
            askedAt: context.askedAt,
            lane: context.lane,
            isFromClient: isFromClient,
            mayGrant: { [catalog = context.catalog] in catalog.mapping(of: $0) == .access }
        )
        query.packages = packages
        for purchase in own {
            guard let app = purchase.storeApp else { continue }
            for identifier in purchase.identifiers where identifier.kind == "purchase_token" {
                query.packages[ExactText(identifier.value)] = app
            }
        }
        let reading = await apps.read(query)
        // Whether a token of which Google says no more is an absence, the records of its purchase tell.
        var part = StorePart(
            store: .googlePlay,
            coverage: reading.coverage,
            observations: reading.observations,
            failure: reading.failure,
            refused: isFromClient ? reading.unknown.map { _ in "purchase_token (unknown)" } : [],
            hasUnreadable: reading.hasUnreadable
        )
        for place in part.observations.indices {
            guard let app = part.observations[place].storeApp, unacknowledged.contains(app) else { continue }
            part.observations[place].acknowledgement = nil
        }
        await part.limit(by: passes, context)
        return part
    }

    /// Finds what a reported order number leads to.
    ///
    /// All packages are asked at once: one after the other, the time would tell in which the order exists.
    func find(_ typed: TypedID, _ context: ReadContext) async -> StorePart {
        guard typed.kind == "order_id" else { return .nothing(.googlePlay) }
        return await .first(ofEach: apps.clients, nothing: .nothing(.googlePlay)) { await search(typed, $0, context) }
    }

    private func search(_ typed: TypedID, _ client: GooglePlayClient, _ context: ReadContext) async -> StorePart {
        do throws(ReadFailure) {
            let order = try await client.order(typed.value, lane: context.lane)
            if let token = order?.purchaseToken {
                let package = [ExactText(token): client.packageName]
                return await read([token], [], package, isFromClient: true, context)
            }
            // Whose a purchase is takes a second request: without one here, the time would tell which orders exist.
            _ = try await client.order(typed.value, lane: context.lane)
            var part = StorePart.nothing(.googlePlay)
            part.hasUnreadable = order != nil
            return part
        } catch {
            return .failed(.googlePlay, error)
        }
    }
}
