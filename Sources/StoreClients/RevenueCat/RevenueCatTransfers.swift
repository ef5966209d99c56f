package import Entitlements
import Foundation
package import Logging
package import Transport

/// Moves purchases between RevenueCat's customers, with a key of its own.
///
/// - SeeAlso: https://www.revenuecat.com/docs/api-v2
package struct RevenueCatTransfers: Sendable {
    private let requester: RevenueCatRequester
    /// The project whose purchases it moves.
    package let projectID: String

    /// Makes a client; the configuration has the key that may write.
    ///
    /// The logger hears of failures; of no ids, keys and bodies. `systemSeconds` is the system's clock, in seconds
    /// since 1970, to be compared with the store's.
    package init(
        configuration: RevenueCatConfiguration,
        http: HTTPClient,
        gate: RequestPermit,
        logger: Logger,
        systemSeconds: @escaping @Sendable () -> Int64 = { Int64(Date().timeIntervalSince1970) }
    ) {
        requester = RevenueCatRequester(configuration, http, gate, logger, systemSeconds)
        projectID = configuration.projectID
    }

    /// What came of a transfer's call.
    package enum Called: Sendable, Hashable {
        /// RevenueCat says that it is done.
        case done
        /// It says that it does not know one of the two.
        case missing
        /// It refused, or nothing was sent: nothing was moved.
        case refused(ReadFailure)
        /// No usable answer: only a reading can tell.
        case unknown(ReadFailure)
    }

    /// Makes a customer, where there is none yet; throws why that stays unknown.
    package func create(_ id: String) async throws(ReadFailure) {
        guard PathSegment(id) != nil, !BlockedIDs.contains(id) else { throw ReadFailure(.unusableID) }
        _ = try await requester.post(.createCustomer, body: Self.json(["id": id]), lane: .support)
    }

    /// Moves everything that a customer has to another one.
    ///
    /// Called once: a caller without an answer reads both customers before anything else.
    package func move(from source: String, to target: String) async -> Called {
        guard let segment = PathSegment(source) else { return .refused(ReadFailure(.unusableID)) }
        do throws(ReadFailure) {
            let said = try await requester.post(
                .transfer(from: segment),
                body: Self.json(["target_customer_id": target]),
                lane: .support
            )
            switch said {
            case .done: return .done
            // The target was made a moment ago, or the source is gone.
            case .exists, .missing: return .missing
            }
        } catch {
            switch error.code {
            // The gate said no, or RevenueCat: in words that leave no doubt.
            case .throttled, .budgetExhausted, .breakerOpen, .unauthorized, .rejected, .locked: return .refused(error)
            default: return .unknown(error)
            }
        }
    }

    private static func json(_ fields: [String: String]) -> [UInt8] {
        // Strings alone: nothing that could fail to be written.
        (try? JSONEncoder().encode(fields)).map { Array($0) } ?? []
    }
}
