import Entitlements
import Ledger
package import Logging
import SignedTokens
package import StoreClients

/// Onside as a witness; it can be asked about orders that we know of and about nothing else.
package struct OnsideSource: Sendable {
    let client: OnsideClient
    private let refusals: ProofRefusals

    package init(client: OnsideClient, logger: Logger) {
        self.client = client
        refusals = ProofRefusals(logger: logger)
    }

    /// Verifies signed histories and asks about the orders in them.
    func read(shown texts: [String], _ context: ReadContext) async -> StorePart {
        var orders: [String] = []
        var failure: ReadFailure?
        var refused: [String] = []
        for text in texts {
            do throws(OnsideProofFailure) {
                let history = try await client.history(text)
                refusals.note("onside_history", nil)
                orders += history.transactions.map(\.originalOrderID).filter { !orders.contains($0) }
            } catch {
                switch error {
                case .refused(let refusal):
                    refused.append("onside_history (\(refusal.code.rawValue))")
                    refusals.note("onside_history", refusal)
                // Whether it is a proof is not known now: the answer must not be that there is nothing.
                case .unread(let why): failure = why
                }
            }
        }
        var part = await read(orders, isFromClient: true, context)
        part.refused = refused
        for index in part.observations.indices { part.observations[index].isSubmitted = true }
        if let failure {
            part.coverage = part.observations.isEmpty ? .none : .partial
            part.failure = part.failure ?? failure
        }
        return part
    }

    /// Asks about what our records hold of the user.
    func read(
        known: [KnownPurchase],
        except seen: Set<PurchaseIdentifierKey>,
        _ context: ReadContext
    ) async -> StorePart {
        let orders = known.compactMap { purchase -> String? in
            guard purchase.store == Store.onside.rawValue, seen.isDisjoint(with: purchase.identifiers.map(\.key)),
                // A line that ended long ago does not begin again: what is bought now has an order of its own.
                !purchase.isLongOver(at: context.askedAt)
            else { return nil }
            return purchase.lookupID ?? purchase.identifiers.first?.value
        }
        return await read(orders, isFromClient: false, context)
    }

    /// Finds what an order id alone leads to; the account in the answer names the owner.
    func find(_ orderID: String, _ context: ReadContext) async -> StorePart {
        await read([orderID], isFromClient: true, isProven: false, context)
    }

    private func read(
        _ orders: [String],
        isFromClient: Bool,
        isProven: Bool = true,
        _ context: ReadContext
    ) async -> StorePart {
        guard !orders.isEmpty else { return .nothing(.onside) }
        let reading = await client.read(
            OnsideQuery(
                orderIDs: orders,
                provenIDs: isProven ? Set(orders) : [],
                askedAt: context.askedAt,
                lane: context.lane,
                isFromClient: isFromClient
            )
        )
        return StorePart(
            store: .onside,
            coverage: reading.coverage,
            observations: reading.observations,
            failure: reading.failure,
            hasUnreadable: reading.hasUnreadable
        )
    }
}
