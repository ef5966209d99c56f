internal import Crypto
internal import Foundation
internal import NIOCore

extension AppStoreSimulation {
    mutating func control(_ request: StoreRequest, _ path: Substring, _ query: Substring, nowMs: Int64) throws -> Reply?
    {
        let segments = path.split(separator: "/").dropFirst(2)
        let id = segments.count == 2 ? segments.last.flatMap { PercentCoding.decode($0) } : nil
        switch (request.method, segments.first, id) {
        case ("GET", "root.pem", nil) where segments.count == 1:
            return Self.text(try AppStoreCredentials.authority.get().certificates.rootPEM())
        case ("GET", "key.p8", nil) where segments.count == 1:
            return Self.text(AppStoreCredentials.requestKey.pemRepresentation)
        case ("PUT", "customers", let id?):
            var customer: AppStoreCustomerScenario
            do {
                customer = try JSONDecoder().decode(
                    AppStoreCustomerScenario.self,
                    from: Data(request.body.readableBytesView)
                )
            } catch let error as DecodingError {
                throw ScenarioError(error)
            }
            guard customer.id.isEmpty || customer.id == id else {
                throw ScenarioError(keyPath: "id", message: "differs from the path; leave it out")
            }
            customer.id = id
            try put(customer, nowMs: nowMs)
            return Self.object { _ in }
        case ("GET", "jws", let id?):
            guard let found = find(id) else { return nil }
            return Self.text(try writer(nowMs: nowMs).transaction(found.purchase, of: found.account))
        case ("GET", "receipt", let id?):
            guard let account = accounts.first(where: { $0.id == id }) else { return nil }
            return Self.text(try account.receipt(bundleID: scenario.bundleID, nowMs: nowMs))
        case ("GET", "receipt-root.pem", nil) where segments.count == 1:
            return Self.text(try StoreSimulator.receiptRoot())
        case ("GET", "transactions", let id?):
            guard let found = find(id) else { return nil }
            return Self.show(found.purchase, of: found.account)
        default: return nil
        }
    }

    /// A transaction as it stands.
    private static func show(_ purchase: AppStorePurchase, of account: AppStoreAccount) -> Reply {
        object { json in
            json.key("customer")
            json.value(account.id)
            json.key("environment")
            json.value(account.side.rawValue)
            json.key("transaction")
            json.value(purchase.transaction)
            json.key("original")
            json.value(purchase.original)
            json.key("product")
            json.value(purchase.product)
            json.key("type")
            json.value(purchase.kind.rawValue)
            json.key("state")
            json.value(purchase.state.rawValue)
            json.key("account_token")
            json.value(purchase.accountToken)
            json.key("purchased_ms")
            json.value(purchase.purchasedMs)
            json.key("expires_ms")
            json.value(purchase.expiresMs)
            json.key("revoked_ms")
            json.value(purchase.revokedMs)
        }
    }

    private static func text(_ text: String) -> Reply {
        var reply = Reply(status: 200, body: Array(text.utf8))
        reply.contentType = "text/plain; charset=utf-8"
        return reply
    }

    static let guide = """
        APP STORE (app_store: in a scenario)

        Production answers below /app-store, the sandbox below /app-store-sandbox: use http://HOST:PORT/app-store and
        http://HOST:PORT/app-store-sandbox as base URLs. Root certificate and API key are made anew with each process.

          bundle_id: com.example.app       app_id: 1234567890
          issuer_id: 57246542-96fe-1a63-e053-0824d011072a      key_id: 2X9R4HXF34
          released: true                   false: production answers 401, as before the first release
          rate_limits: false               true: the App Store's own, hour by hour, times rate_scale: 1.0
          customers:
            - id: alice                    the simulator's own name of an Apple account
              environment: Production      or Sandbox
              visible_after: 5s            until then nobody finds its transactions; jws below does
              app_transaction: "704..."    derived from the name by default
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
          app_store.token app_store.notifications
        A fault's error_type is the App Store's code, such as {status: 404, error_type: "4040002"}; backoff sets the
          moment that the Retry-After of a 429 names. A fault's customer is a transaction's id or the account's name.

          GET    /control/app-store/root.pem           the root certificate, for APP_STORE_ROOT_CERTIFICATES
          GET    /control/app-store/key.p8             the API key, for APP_STORE_PRIVATE_KEY
          PUT    /control/app-store/customers/ID       an account as in a scenario, in the place of the old one
          GET    /control/app-store/jws/TRANSACTION    the signed transaction, as a device has it: a storekit_jws proof
          GET    /control/app-store/receipt/ID         the account's app receipt: an app_receipt proof
          GET    /control/app-store/receipt-root.pem   its root, for RECEIPT_ROOT_CERTIFICATES
          GET    /control/app-store/transactions/ID    a transaction as it stands
        """
}
