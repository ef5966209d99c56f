package import Entitlements
import Foundation
package import Logging
import TextFormats
package import Transport

/// Reads purchases from the Google Play Developer API, and acknowledges them; it changes nothing else there.
///
/// - SeeAlso: https://developers.google.com/android-publisher
package struct GooglePlayClient: Sendable {
    let requester: GooglePlayRequester
    let systemSeconds: @Sendable () -> Int64

    /// Makes a client; metrics go to the system that is bootstrapped by now.
    ///
    /// The gate admits each request and gets each answer, by the limit that the request counts against. The logger
    /// hears of failures; of no ids, keys and bodies. `systemSeconds` is the system's clock, in seconds since 1970, to
    /// be compared with the store's.
    package init(
        configuration: GooglePlayConfiguration,
        http: HTTPClient,
        gate: @escaping @Sendable (GooglePlayBudget) -> RequestPermit,
        logger: Logger,
        systemSeconds: @escaping @Sendable () -> Int64 = { Int64(Date().timeIntervalSince1970) }
    ) {
        requester = GooglePlayRequester(configuration, http, gate, logger, systemSeconds)
        self.systemSeconds = systemSeconds
    }

    /// Reads the purchases behind some tokens, each with the chain of tokens that it replaced.
    ///
    /// A token that Google does not know, or will not tell about any more, is an answer and yields no observation; a
    /// failure never passes for one. A purchase some of whose older tokens could not be read yields none either, as
    /// they may tell whose it is.
    package func read(_ query: GooglePlayQuery) async -> GooglePlayReading {
        await GooglePlayApps([self]).read(query)
    }

    /// The app whose purchases it reads.
    package var packageName: String { requester.packageName }

    /// Reads a token's purchase, whatever kind it is of.
    func page(
        _ token: PurchaseToken,
        mayBeProduct: Bool,
        lane: Lane,
        _ purpose: StoreCall.Purpose
    ) async -> (page: GooglePlayChains.Page, requests: Int) {
        var requests = 0
        do throws(ReadFailure) {
            let page = try await self.page(token, as: .subscription, lane, purpose, &requests)
            // A one-time purchase is answered here as if there had been one, or as if there were none.
            guard mayBeProduct, page.isAbsence else { return (page, requests) }
            let product = try await self.page(token, as: .oneTime, lane, purpose, &requests)
            return (product.isAbsence ? page : product, requests)
        } catch {
            return (.failed(error), requests)
        }
    }

    /// Reads a token's purchase, as a subscription or as a one-time purchase.
    private func page(
        _ token: PurchaseToken,
        as kind: Observation.Kind,
        _ lane: Lane,
        _ purpose: StoreCall.Purpose,
        _ requests: inout Int
    ) async throws(ReadFailure) -> GooglePlayChains.Page {
        let endpoint = kind == .subscription ? GooglePlayEndpoint.subscription(token) : .product(token)
        return try await requester.send(endpoint, lane: lane, purpose: purpose, requests: &requests) {
            said throws(ReadFailure) in
            let page = try said.read { body throws(JSONFault) -> GooglePlayChains.Page in
                kind == .subscription
                    ? .subscription(try SubscriptionPurchase(body)) : .product(try ProductPurchase(body))
            }
            if let page { return page }
            if case .gone = said { return .gone }
            return .unknown
        }
    }

    // MARK: Acknowledgement

    /// Tells Google that the sale was taken note of; where that throws, it may have been carried out all the same.
    ///
    /// `refused` for any answer about the purchase that is no success, such as the one to a second call.
    package func acknowledge(
        _ acknowledgement: Acknowledgement,
        lane: Lane
    ) async throws(ReadFailure) -> GooglePlayAcknowledged {
        guard let token = PurchaseToken(acknowledgement.token), let product = PathSegment(acknowledgement.productID)
        else { throw ReadFailure(.rejected, store: .googlePlay) }
        let endpoint: GooglePlayEndpoint =
            acknowledgement.kind == .subscription
            ? .acknowledgeSubscription(
                product,
                token,
                GooglePlayAccount(account: acknowledgement.accountID, profile: acknowledgement.profileID)
            ) : .acknowledgeProduct(product, token)
        var requests = 0
        return try await requester.send(endpoint, lane: lane, requests: &requests) { said throws(ReadFailure) in
            // Whether there is a body, and what it holds, is nowhere promised.
            if case .content = said { .accepted } else { .refused }
        }
    }

    /// Whether a purchase still waits for its acknowledgement; throws why Google did not tell.
    package func acknowledgementState(
        of acknowledgement: Acknowledgement,
        lane: Lane
    ) async throws(ReadFailure) -> GooglePlayAcknowledgementState {
        guard let token = PurchaseToken(acknowledgement.token) else { return .unknown }
        var requests = 0
        let page = try await page(token, as: acknowledgement.kind, lane, .reading, &requests)
        return page.acknowledgementState
    }
}

extension GooglePlayChains.Page {
    /// Whether Google has nothing to tell.
    fileprivate var isAbsence: Bool {
        switch self {
        case .unknown, .gone: true
        default: false
        }
    }

    fileprivate var acknowledgementState: GooglePlayAcknowledgementState {
        switch self {
        case .subscription(let purchase):
            if purchase.state == .expired || purchase.state == .pendingCanceled { return .over }
            return purchase.awaitsAcknowledgement ? .pending : .acknowledged
        case .product(let purchase):
            if purchase.state == ProductPurchase.cancelled { return .over }
            // To use something up is to acknowledge it.
            return purchase.awaitsAcknowledgement && !purchase.keptItems.isEmpty ? .pending : .acknowledged
        case .unknown, .gone, .failed: return .unknown
        }
    }
}
