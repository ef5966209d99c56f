package import Entitlements
import Queue
package import StoreClients

extension StoresReader {
    /// Everything that the stores say of a user, as evidence for agents; nothing is left out.
    ///
    /// - Parameters:
    ///   - job: names the user; it does not stand in the queue.
    ///   - lane: on whose behalf.
    /// - Returns: the reading.
    package func readAll(_ job: ClaimedJob, lane: Lane) async -> Reading {
        await read(job, lane: lane, everything: true)
    }

    /// Asks RevenueCat which of its customers has a purchase.
    ///
    /// - Parameters:
    ///   - identifiers: the names under which our records know it.
    ///   - lane: on whose behalf.
    /// - Returns: RevenueCat's id of the customer; `nil`: RevenueCat is not configured, or has never met the purchase.
    /// - Throws: why that is not known.
    package func customer(holding identifiers: [PurchaseIdentifier], lane: Lane) async throws(ReadFailure) -> String? {
        guard let revenueCat = sources.revenueCat else { return nil }
        let names = identifiers.filter { $0.kind == "store_id" || $0.kind == "order_id" }.map(\.value)
        for name in names.prefix(Self.mostNames) {
            if let customer = try await revenueCat.customer(holding: name, lane: lane) { return customer }
        }
        // It has met the purchase, and there is no name left to ask by: not knowing is no word.
        guard names.count <= Self.mostNames, !identifiers.contains(where: { $0.kind == "revenuecat_id" }) else {
            throw ReadFailure(.incomplete)
        }
        return nil
    }

    private static let mostNames = 20

    /// Every id under which RevenueCat knows a customer.
    package func aliases(of customer: String, lane: Lane) async throws(ReadFailure) -> [String] {
        try await sources.revenueCat?.aliases(of: customer, lane: lane) ?? []
    }

    /// Everything that RevenueCat holds for one of its customers, any of them.
    ///
    /// - Throws: why the list is not whole.
    package func everything(of customer: String, lane: Lane) async throws(ReadFailure) -> [Observation] {
        guard let revenueCat = sources.revenueCat else { return [] }
        let answer = await revenueCat.everything(of: customer, lane: lane)
        guard answer.coverage == .full, answer.failure == nil else {
            throw answer.failure ?? ReadFailure(.incomplete)
        }
        return answer.observations
    }
}
