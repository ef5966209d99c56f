import Entitlements
import FaultPoints
import Foundation
package import Logging
import Postgres
package import StoreClients
import ServiceLifecycle
import Queue

/// Tells the App Store whose a purchase is that was moved, so that it does not go on naming its former owner.
///
/// Our records outrank what the store echoes: nothing waits for this, and nothing is undone where it fails.
package struct TokenWriter: Service {
    /// How often the App Store is asked before it is left alone.
    static let mostTries = 10

    private let tokens: TransferTokens
    /// `nil`: there is no key for it.
    private let appStore: AppStoreApps?
    private let accounts: AccountIDs
    private let logger: Logger

    package init(tokens: TransferTokens, appStore: AppStoreApps?, accounts: AccountIDs, logger: Logger) {
        self.tokens = tokens
        self.appStore = appStore
        self.accounts = accounts
        self.logger = logger
    }

    package func run() async {
        await PeriodicService("account token writer", every: .seconds(1), logger: logger) {
            await .handlingAll(try await tokens.take(upTo: 4), carryOn)
        }.run()
    }

    private func carryOn(_ due: TransferTokens.Due) async {
        do {
            let end: TransferTokens.End
            do throws(ReadFailure) {
                end = try await write(due)
            } catch {
                // A shutdown is no failure; a task of its own, because this one is cancelled.
                guard !Task.isCancelled, error.code != .interrupted else {
                    return try await Task { [tokens] in try await tokens.release(due) }.value
                }
                guard due.tries >= Self.mostTries else {
                    let wait = max(error.retryAfter ?? .zero, Self.pause(due.tries))
                    return try await tokens.putOff(due, for: wait, error: error.code.rawValue)
                }
                try await Alarms.raise(
                    "account_token",
                    "The App Store gave no answer to the account token of a purchase that was transferred, in \(Self.mostTries) "
                        + "tries: see the table transfer_token, and entitlement-sync ticket ID token, which tries again.",
                    in: tokens.pool
                )
                end = .givenUp(error.code.rawValue)
            }
            await reach(.transferToken)
            try await tokens.end(due, end)
            logger.notice(
                "an account token came to its end",
                metadata: ["transfer.id": "\(due.transferID)", "answer": "\(end.word)"]
            )
        } catch {
            // It stands in the records and is taken up again; the same token may be sent again.
            logger.warning(
                "what became of an account token could not be recorded; it is sent again",
                metadata: [
                    "transfer.id": "\(due.transferID)",
                    "error.code": "\((error as? PostgresError)?.sqlState ?? "\(type(of: error))")",
                ]
            )
        }
    }

    /// Writes the token of one purchase at the App Store; throws why there was no usable answer.
    private func write(_ due: TransferTokens.Due) async throws(ReadFailure) -> TransferTokens.End {
        guard due.isOurs else { return .skipped(.movedOn) }
        guard let userID = due.userID else { return .skipped(.claimantGone) }
        guard let appStore else { return .skipped(.appStoreOff) }
        guard let token = accounts.token(for: userID) else { return .skipped(.tokenUnknown) }
        guard let environment = AppStoreEnvironment.allCases.first(where: { $0.ledgerName == due.environment }) else {
            return .skipped(.purchaseUnknown)
        }
        guard let (id, bundleID) = try await original(of: due, in: environment, appStore) else {
            return due.transactionID == nil
                ? .skipped(.purchaseUnknown) : .refused(AppStoreTokenAnswer.unknown.rawValue)
        }
        guard let client = appStore.client(of: bundleID) else { return .skipped(.appStoreOff) }
        let answer = try await client.setAppAccountToken(token, on: id, in: environment, lane: .support)
        return answer == .set ? .set : .refused(answer.rawValue)
    }

    /// The App Store takes a token for the first transaction of a purchase alone; RevenueCat may name a later one.
    private func original(
        of due: TransferTokens.Due,
        in environment: AppStoreEnvironment,
        _ appStore: AppStoreApps
    ) async throws(ReadFailure) -> (id: String, bundleID: String)? {
        let only = appStore.clients.count == 1 ? appStore.clients.first?.bundleID : nil
        if let known = due.originalID, let bundleID = due.bundleID ?? only { return (known, bundleID) }
        guard let any = due.originalID ?? due.transactionID else { return nil }
        let found = try await appStore.transaction(any, in: environment, lane: .support)
        return found.map { ($0.originalTransactionID, $0.bundleID) }
    }

    /// Ten tries take about eight hours.
    static func pause(_ tries: Int) -> Duration {
        min(.seconds(5) * (0..<min(max(tries - 1, 0), 9)).reduce(1) { product, _ in product * 3 }, .seconds(10_800))
    }
}
