internal import Crypto
package import X509

extension AppStoreSimulation {
    mutating func control(_ request: StoreRequest, _ path: Substring, nowMs: Int64) throws -> Reply? {
        let segments = path.split(separator: "/")
        let id = segments.count == 2 ? segments.last.flatMap { PercentCoding.decode($0) } : nil
        switch (request.method, segments.first, id) {
        case ("GET", "root.pem", nil) where segments.count == 1:
            return .text(try AppStoreCredentials.authority.get().certificates.rootPEM())
        case ("GET", "key.p8", nil) where segments.count == 1:
            return .text(AppStoreCredentials.requestKey.pemRepresentation)
        case ("PUT", "customers", let id?):
            try put(request.decoded(named: id, \.id, "id"), nowMs: nowMs)
            return .done
        case ("PUT", "notification-urls", nil) where segments.count == 1:
            let urls: AppStoreNotificationURLs = try request.decoded()
            scenario.notificationURL = urls.production
            scenario.sandboxNotificationURL = urls.sandbox
            return .done
        case ("GET", "jws", let id?):
            return try find(id).map { .text(try writer(nowMs: nowMs).transaction($0.purchase, of: $0.account)) }
        case ("GET", "app-transaction", let id?):
            return try accounts.first { $0.id == id }
                .map { .text(try writer(nowMs: nowMs).appTransaction(of: $0)) }
        case ("GET", "receipt", let id?):
            return try accounts.first { $0.id == id }
                .map { .text(try $0.receipt(bundleID: scenario.bundleID, nowMs: nowMs)) }
        case ("GET", "receipt-root.pem", nil) where segments.count == 1:
            return .text(try StoreSimulator.receiptRoot())
        case ("GET", "transactions", let id?): return find(id).map { Self.show($0.purchase, of: $0.account) }
        default: return nil
        }
    }

    /// A transaction as it stands.
    private static func show(_ purchase: AppStorePurchase, of account: AppStoreAccount) -> Reply {
        .object { json in
            json.member("customer", account.id)
            json.member("environment", account.side.rawValue)
            json.member("transaction", purchase.transaction)
            json.member("original", purchase.original)
            json.member("product", purchase.product)
            json.member("type", purchase.kind.rawValue)
            json.member("state", purchase.state.rawValue)
            json.member("account_token", purchase.accountToken)
            json.member("purchased_ms", purchase.purchasedMs)
            json.member("expires_ms", purchase.expiresMs)
            json.member("revoked_ms", purchase.revokedMs)
        }
    }

    static let guide = """
        APP STORE (app_store: in a scenario)

        Production answers below /app-store, the sandbox below /app-store-sandbox: use http://HOST:PORT/app-store and
        http://HOST:PORT/app-store-sandbox as base URLs. Root certificate and API key are new in each process.

          bundle_id: com.example.app       app_id: 1234567890
          issuer_id: 57246542-96fe-1a63-e053-0824d011072a      key_id: 2X9R4HXF34
          released: true                   false: production answers 401, as before the first release
          notification_url: http://...     where a requested test notification is posted; absent: 4040007
          sandbox_notification_url: ...    the same for the sandbox
          rate_limits: false               true: the App Store's own, hour by hour, times rate_scale: 1.0
          customers:
            - id: alice                    the simulator's own name of an Apple account
              environment: Production      or Sandbox
              visible_after: 5s            until then its transactions are not found; jws below shows them
              app_transaction: "704..."    the account's appTransactionId, in transactions and in the app transaction;
                                           derived from the name by default; none: devices have none
              app_transaction_flaw: ""     as a transaction's flaw below, of the app transaction alone
              transactions:                in the order of their last change
                - {original: "2000000100000001", transaction: "2000000100000009", product: premium_monthly,
                   type: auto_renewable, state: active, purchased: -10d, expires: +20d}
          notifications:                   what endpoint 14 lists
            - {uuid: "...", type: DID_RENEW, subtype: "", transaction: "2000000100000009", environment: Production,
               at: -1h, delivered: false}

        Types: auto_renewable non_consumable consumable non_renewing
        States, which no clock changes: active expired billing_retry grace revoked refunded unknown
        Further fields of a transaction: originally grace_ends revoked_at account_token ownership (PURCHASED |
          FAMILY_SHARED) order_id upgraded previous_original auto_renew price_increase group
          flaw (bad_signature | foreign_root | foreign_bundle | foreign_environment | foreign_renewal)
        Endpoints: app_store.statuses app_store.transaction app_store.history app_store.lookup app_store.refunds
          app_store.token app_store.notifications app_store.test app_store.test_status
        A fault's error_type is the App Store's code, such as {status: 404, error_type: "4040002"}; backoff sets the
          moment that the Retry-After of a 429 names. A fault's customer is a transaction's id or the account's name.

          GET    /control/app-store/root.pem           the root certificate, for APP_STORE_ROOT_CERTIFICATES
          GET    /control/app-store/key.p8             the API key, for APP_STORE_PRIVATE_KEY
          PUT    /control/app-store/customers/ID       an account as in a scenario, in the place of the old one
          PUT    /control/app-store/notification-urls  {"production": "http://...", "sandbox": "http://..."}; what is
                                                       left out has none
          GET    /control/app-store/jws/TRANSACTION    the signed transaction, as a device has it: a storekit_jws proof
          GET    /control/app-store/app-transaction/ID the account's signed AppTransaction: an app_transaction proof
          GET    /control/app-store/receipt/ID         the account's app receipt: an app_receipt proof
          GET    /control/app-store/receipt-root.pem   its root, for RECEIPT_ROOT_CERTIFICATES
          GET    /control/app-store/transactions/ID    a transaction as it stands
        """
}

extension StoreSimulator {
    /// What everything signed by the simulated App Store leads to; one for the process.
    package static var appStoreRoot: Certificate {
        get throws { try AppStoreCredentials.authority.get().certificates.root }
    }

    /// The key that requests to the simulated App Store have to be signed with, as a `.p8` file; one for the process.
    package static var appStoreKey: String { AppStoreCredentials.requestKey.pemRepresentation }

    /// The signed transaction that a device would have.
    ///
    /// - Returns: a `storekit_jws` proof; `nil` where there is no such transaction.
    package func appStoreProof(ofTransaction id: String) throws -> String? {
        try simulation.withState { state in
            state.shareWithAppStore(id)
            guard let found = state.appStore.find(id) else { return nil }
            return try state.appStore.writer(nowMs: state.clock.nowMs).transaction(found.purchase, of: found.account)
        }
    }

    /// The signed app transaction that a device of an Apple account would have.
    ///
    /// - Returns: an `app_transaction` proof; `nil` where the scenario has no such account.
    package func appTransaction(ofAccount id: String) throws -> String? {
        try simulation.withState { state in
            let account = state.appStore.accounts.first { $0.id == id }
            return try account.map { try state.appStore.writer(nowMs: state.clock.nowMs).appTransaction(of: $0) }
        }
    }
}
