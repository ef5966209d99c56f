import Crypto
import Entitlements
import FoundationEssentials
import Ledger
package import Logging
import Queue
package import RateLimits
import ServiceLifecycle
import StoreClients

/// Finds out whether the credentials in use lead to our customers, where they differ from those on record.
///
/// A key and a project of another deployment are valid together: every customer is unknown there, and no request fails.
package struct CredentialCheck: Service {
    private let records: StoreCredentials
    private let stores: StoresReader
    private let credentials: [StoreCredential]
    private let logger: Logger

    /// `credentials`: what each store is asked with; never logged, and on record as a digest alone.
    package init(records: StoreCredentials, stores: StoresReader, credentials: [StoreCredential], logger: Logger) {
        self.records = records
        self.stores = stores
        self.credentials = credentials
        self.logger = logger
    }

    package func run() async {
        await PeriodicService("credential check", every: .seconds(30), logger: logger) {
            try await check() ? .never : .idle
        }.run()
    }

    /// Asks each store whose credentials are in question; returns whether all of them are settled.
    package func check() async throws -> Bool {
        var areSettled = true
        for credential in credentials.sorted(by: { $0.name < $1.name }) {
            let digest = Self.digest(of: credential.values, salt: try await records.salt(of: credential))
            guard try await records.note(digest, of: credential) != .confirmed else { continue }
            let customers = try await records.customers(of: credential)
            guard let knows = await isKnown(credential, by: customers) else {
                areSettled = false
                continue
            }
            if try await records.judge(digest, of: credential, knows: knows, detail: Self.detail(credential)) {
                let metadata: Logger.Metadata = ["store": "\(credential.name)"]
                if customers.isEmpty {
                    logger.notice("no customer on record can check the credentials in use", metadata: metadata)
                } else if knows {
                    logger.notice("the store knows our customers with the credentials in use", metadata: metadata)
                } else {
                    logger.error("the store knows no customer with the credentials in use", metadata: metadata)
                }
            }
            if !knows { areSettled = false }
        }
        return areSettled
    }

    /// Whether the store knows one of some customers; `nil` where it did not answer.
    ///
    /// No customer to ask for is no doubt.
    private func isKnown(_ credential: StoreCredential, by customers: [StoreCredentials.Customer]) async -> Bool? {
        var isDenied = false
        for customer in customers {
            switch await stores.knows(customer, by: credential) {
            case true?: return true
            case false?: isDenied = true
            case nil: break
            }
        }
        // One who can't be read is no reason to trust a store that knows none of the others: the check goes on.
        return customers.isEmpty ? true : isDenied ? false : nil
    }

    /// A digest that reveals nothing of the credentials; each value is written with its length.
    private static func digest(of values: [String], salt: [UInt8]) -> [UInt8] {
        var code = HMAC<SHA256>(key: SymmetricKey(data: salt))
        for value in values {
            code.update(data: Array("\(value.utf8.count):".utf8))
            code.update(data: Array(value.utf8))
        }
        return Array(code.finalize())
    }

    private static func detail(_ credential: StoreCredential) -> String {
        let store = credential.store
        let variables =
            switch store {
            case .revenueCat: "REVENUECAT_PROJECT_ID and REVENUECAT_API_KEY"
            case .appStore: "APP_STORE_ISSUER_ID, APP_STORE_KEY_ID and APP_STORE_BUNDLE_ID"
            case .googlePlay: "GOOGLE_PLAY_SERVICE_ACCOUNT and GOOGLE_PLAY_PACKAGE_NAME"
            case .onside: "ONSIDE_MERCHANT_ID, ONSIDE_MERCHANT_SECRET and ONSIDE_BUNDLE_ID"
            }
        let app = credential.app.map { " of \($0)" } ?? ""
        return "With the changed credentials\(app), \(store.name) knows none of our customers who were asked for: check"
            + " \(variables). Demotions stay paused until it knows one or an operator resumes them (resume demotions)."
    }
}

extension StoresReader {
    /// Whether a store knows a customer's purchases; `nil`: it did not answer.
    func knows(_ customer: StoreCredentials.Customer, by credential: StoreCredential) async -> Bool? {
        let store = credential.store
        if store == .revenueCat {
            let reading = await sources.revenueCat?.everything(
                of: customer.userID,
                in: credential.app,
                lane: .support
            )
            guard let reading else { return nil }
            if !reading.observations.isEmpty { return true }
            return reading.coverage == .full ? false : nil
        }
        guard let known = try? await lookups.purchases(of: customer.userKey), let catalog = try? await lookups.catalog()
        else { return nil }
        let own = known.filter { $0.store == store.rawValue && $0.isRunning(at: customer.at) }
            .filter { credential.app == nil || $0.storeApp == credential.app }.prefix(1)
        // A reading that no job asked for.
        let job = ClaimedJob(
            id: .init(),
            kind: .reconcile,
            lane: .sweep,
            due: customer.at,
            userKey: customer.userKey,
            userID: customer.userID,
            claimedAt: customer.at,
            claimedTick: .now
        )
        var context = ReadContext(job, userID: customer.userID, askedAt: customer.at, catalog: catalog)
        context.lane = .support
        let records = Records(known: Array(own), eventPurchases: [])
        let part: StorePart? =
            switch store {
            case .appStore: await sources.appStore?.read(records, except: [], asksEnded: false, context)
            case .googlePlay: await sources.googlePlay?.read(records, except: [], context)
            case .onside: await sources.onside?.read(known: Array(own), except: [], context)
            case .revenueCat: nil
            }
        guard let part, !own.isEmpty else { return nil }
        if !part.observations.isEmpty { return true }
        return part.failure == nil && part.coverage == .full || part.failure?.code == .unknownToStore ? false : nil
    }
}
