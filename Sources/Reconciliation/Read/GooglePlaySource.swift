import Entitlements
package import Ledger
import Queue
package import StoreClients

/// Google Play as a witness.
package struct GooglePlaySource: Sendable {
    let client: GooglePlayClient
    private let passes: Passes

    package init(client: GooglePlayClient, lookups: UserLookups) {
        self.client = client
        passes = Passes(lookups: lookups)
    }

    /// Asks about tokens that the user has shown.
    func read(shown tokens: [String], known: [KnownPurchase], _ context: ReadContext) async -> StorePart {
        var part = await read(tokens, known, isFromClient: true, context)
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
        let fromEvents = records.eventPurchases(of: .googlePlay).map(\.value).filter { value in
            !seen.contains { $0.value.isExactly(value) }
        }
        let asked = fromEvents.filter { !OrderNumber.isOrder($0) && !tokens.contains($0) } + tokens
        var part = await read(asked, records.known, isFromClient: false, context)
        // An order that an event names is mostly that of a token beside it; what is left has a token of its own.
        let answered = Set(part.observations.flatMap { $0.identifiers.map { ExactText($0.value) } })
        let orders = fromEvents.filter { OrderNumber.isOrder($0) && !answered.contains(ExactText($0)) }
        let found = await self.tokens(behind: orders, lane: context.lane)
        let more = found.tokens.filter { !asked.contains($0) }
        if !more.isEmpty { part.add(await read(more, records.known, isFromClient: false, context)) }
        if let failure = found.failure {
            part.coverage = part.observations.isEmpty ? .none : .partial
            part.failure = part.failure ?? failure
        }
        return part
    }

    /// The purchase tokens behind what an event names (tokens, or else the numbers of orders), and why not all could be found.
    func tokens(behind names: [String], lane: Lane) async -> (tokens: [String], failure: ReadFailure?) {
        let tokens = names.filter { !OrderNumber.isOrder($0) }
        guard tokens.isEmpty else { return (tokens, nil) }
        var found: [String] = []
        // A renewal's order and its first one lead to the same token.
        for order in names {
            do throws(ReadFailure) {
                guard let order = try await client.order(order, lane: lane) else { continue }
                guard let token = order.purchaseToken else { throw ReadFailure(.malformed, store: .googlePlay) }
                if !found.contains(token) { found.append(token) }
            } catch { return (found, error) }
        }
        return (found, nil)
    }

    private func read(
        _ tokens: [String],
        _ known: [KnownPurchase],
        isFromClient: Bool,
        _ context: ReadContext
    ) async -> StorePart {
        guard !tokens.isEmpty else { return .nothing(.googlePlay) }
        let own = known.filter { $0.store == Store.googlePlay.rawValue }
        let reading = await client.read(
            GooglePlayQuery(
                tokens: tokens,
                known: Set(own.flatMap { $0.identifiers.filter { $0.kind == "purchase_token" }.map(\.value) }),
                askedAt: context.askedAt,
                lane: context.lane,
                isFromClient: isFromClient,
                mayGrant: { [catalog = context.catalog] in catalog.mapping(of: $0) == .access }
            )
        )
        // Whether a token of which Google says no more is an absence, the records of its purchase tell.
        var part = StorePart(
            store: .googlePlay,
            coverage: reading.coverage,
            observations: reading.observations,
            failure: reading.failure,
            refused: isFromClient ? reading.unknown.map { _ in "purchase_token (unknown)" } : [],
            hasUnreadable: reading.hasUnreadable
        )
        await part.limit(by: passes, context)
        return part
    }

    /// Finds what a reported order number leads to.
    func find(_ typed: TypedID, _ context: ReadContext) async -> StorePart {
        guard typed.kind == "order_id" else { return .nothing(.googlePlay) }
        do throws(ReadFailure) {
            let order = try await client.order(typed.value, lane: context.lane)
            if let token = order?.purchaseToken { return await read([token], [], isFromClient: true, context) }
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
