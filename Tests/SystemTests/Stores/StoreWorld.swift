import Entitlements
import Foundation
import HTTPTypes
import Postgres
import Queue
import StoreSimulator
import SwiftASN1
import TestSupport
import Testing
import Transport
import UserRequests
import X509

extension World {
    /// RevenueCat as the program is told of it.
    var revenueCat: [String: String] {
        [
            "REVENUECAT_API_KEY": "sk_test", "REVENUECAT_PROJECT_ID": "proj0a1b2c3d", "REVENUECAT_BASE_URL": storeURL,
            "REVENUECAT_REQUESTS_PER_MINUTE": "0",
        ]
    }

    /// The App Store as the program is told of it.
    var appStore: [String: String] {
        get throws {
            [
                "APP_STORE_ISSUER_ID": "57246542-96fe-1a63-e053-0824d011072a", "APP_STORE_KEY_ID": "2X9R4HXF34",
                "APP_STORE_PRIVATE_KEY": StoreSimulator.appStoreKey, "APP_STORE_BUNDLE_ID": "com.example.app",
                "APP_STORE_BASE_URL": "http://127.0.0.1:\(simulatorPort)/app-store",
                "APP_STORE_SANDBOX_BASE_URL": "http://127.0.0.1:\(simulatorPort)/app-store-sandbox",
                "APP_STORE_REQUESTS_PER_MINUTE": "0",
                "APP_STORE_ROOT_CERTIFICATES": try RootFiles.shared.get().appStore,
                "RECEIPT_ROOT_CERTIFICATES": try RootFiles.shared.get().receipts,
            ]
        }
    }

    /// Google Play as the program is told of it.
    var googlePlay: [String: String] {
        [
            "GOOGLE_PLAY_SERVICE_ACCOUNT": StoreSimulator.googleServiceAccount,
            "GOOGLE_PLAY_PACKAGE_NAME": "com.example.app", "GOOGLE_PLAY_REQUESTS_PER_MINUTE": "0",
            "GOOGLE_PLAY_BASE_URL": "http://127.0.0.1:\(simulatorPort)/google-play",
            "GOOGLE_OAUTH_BASE_URL": "http://127.0.0.1:\(simulatorPort)/google-oauth",
        ]
    }

    /// Onside as the program is told of it.
    var onside: [String: String] {
        [
            "ONSIDE_MERCHANT_ID": "merchant-demo", "ONSIDE_MERCHANT_SECRET": "onside-demo-secret",
            "ONSIDE_SECRET_KEY_ID": "key-demo", "ONSIDE_BUNDLE_ID": "com.example.app",
            "ONSIDE_BASE_URL": "http://127.0.0.1:\(simulatorPort)/onside", "ONSIDE_REQUESTS_PER_MINUTE": "0",
        ]
    }

    /// A worker that asks these stores.
    func asking(_ stores: [String: String]..., change: (inout WorkerSetup) -> Void = { _ in }) -> WorkerSetup {
        var setup = WorkerSetup()
        setup.stores = stores.reduce(into: [:]) { $0.merge($1) { first, _ in first } }
        change(&setup)
        return setup
    }

    /// Maps products of the stores, as a team does.
    func addProducts() async throws {
        try await pool.query(
            """
            INSERT INTO entitlement_sync.product (store, product_id, base_plan_id, entitlement, grants_access, duration)
            VALUES ('app_store', 'premium_monthly', NULL, 'premium', true, NULL),
                   ('app_store', 'lifetime', NULL, 'premium', true, NULL),
                   ('app_store', 'pass30', NULL, 'premium', true, interval '30 days'),
                   ('app_store', 'badge', NULL, 'badge', false, NULL),
                   ('google_play', 'pro', NULL, 'premium', true, NULL),
                   ('google_play', 'extra', NULL, 'extra', false, NULL),
                   ('onside', 'premium_monthly', NULL, 'premium', true, NULL),
                   ('onside', 'lifetime', NULL, 'premium', true, NULL)
            """
        )
    }

    /// What a device shows for a transaction.
    func transactionProof(_ id: String) throws -> String {
        proof("app_store", "storekit_jws", try #require(try simulator.appStoreProof(ofTransaction: id)))
    }

    /// What a device shows for the orders of an account.
    func historyProof(_ account: String) throws -> String {
        proof("onside", "onside_history", try simulator.onsideHistory(account: account))
    }

    func tokenProof(_ token: String) -> String { proof("google_play", "purchase_token", token) }

    func proof(_ store: String, _ kind: String, _ value: String) -> String {
        #"[{"store":"\#(store)","kind":"\#(kind)","value":"\#(value)"}]"#
    }

    /// Changes what a store holds.
    func steer(_ path: String, _ json: String, method: HTTPRequest.Method = .put) async throws {
        let request = HTTPRequest(
            method: method,
            scheme: "http",
            authority: "127.0.0.1:\(simulatorPort)",
            path: "/control" + path
        )
        let answer = try await transport.send(request, body: Array(json.utf8), timeout: .seconds(10))
        try #require(answer.response.status == .ok, "\(String(decoding: answer.body, as: UTF8.self))")
    }

    /// How often a store was asked, by the template of the path.
    func asked(_ template: String) -> Int { simulator.requestReport().byPath[template] ?? 0 }

    /// Asks for a restore with proofs, works until idle, and reads the answer.
    func restored(
        _ user: String,
        proofs: String,
        clientError: String? = nil,
        setup: WorkerSetup
    ) async throws -> JobStatus {
        let job = try await restore(user, proofs: proofs, clientError: clientError)
        try await work(setup)
        return try await status(job)
    }

    /// Who owns the purchase behind an identifier.
    func owner(of identifier: String) async throws -> String? {
        try await pool.query(
            """
            SELECT u.user_id FROM entitlement_sync.purchase_identifier AS i
              JOIN entitlement_sync.purchase AS p ON p.id = i.purchase_id
              LEFT JOIN entitlement_sync.user_sync AS u ON u.user_key = p.owner_key
             WHERE i.value = \(identifier)
            """
        ).first?.decode(String?.self)
    }
}

/// The simulator's roots as files, which is how the program takes them.
struct RootFiles: Sendable {
    var appStore: String
    var receipts: String

    static let shared = Result { try RootFiles() }

    private init() throws {
        let folder = FileManager.default.temporaryDirectory.appending(path: "roots-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        let appStore = folder.appending(path: "app-store.pem")
        let receipts = folder.appending(path: "receipts.pem")
        try StoreSimulator.appStoreRoot.serializeAsPEM().pemString.write(
            to: appStore,
            atomically: true,
            encoding: .utf8
        )
        try StoreSimulator.receiptRoot().write(to: receipts, atomically: true, encoding: .utf8)
        self.appStore = appStore.path
        self.receipts = receipts.path
    }
}
