internal import Foundation
internal import Glibc

extension StoreSimulator {
    /// Writes what operators and devices would have, so that others can use the simulated stores.
    ///
    /// - `stores.env`: the variables of all stores, and of those who send events, a line each.
    /// - The keys, certificates and accounts that these name.
    /// - `proofs.tsv`: `kind`, of what, and the proof, with tabs between: a `storekit_jws` for each transaction, an
    ///   `app_receipt` in both generations' newer form and an `app_transaction` for each Apple account, an `onside_history`
    ///   for each account.
    /// - `tokens.tsv`: users and their ID tokens, with a tab between: the customers that the scenario lists, and the first
    ///   20 of each block of others, each under all ids that are not anonymous. They live for an hour.
    ///
    /// The folder has to exist; the files are readable by their owner alone.
    package func writeFiles(to folder: String, port: Int) throws {
        // The reader of the variables may have another working directory.
        let folder = URL(fileURLWithPath: folder).standardizedFileURL.path
        let base = "http://127.0.0.1:\(port)"
        let scenario = simulation.withState { $0.scenario }
        let files = [
            "app-store-root.pem": try AppStoreCredentials.authority.get().certificates.rootPEM(),
            "receipt-root.pem": try Self.receiptRoot(),
            "app-store-key.p8": Self.appStoreKey,
            "google-service-account.json": Self.googleServiceAccount,
        ]
        for (name, text) in files { try Self.write(text, to: folder + "/" + name) }
        let settings = [
            ("REVENUECAT_API_KEY", "sk_simulated"), ("REVENUECAT_PROJECT_ID", scenario.project),
            ("REVENUECAT_BASE_URL", base + "/v2"), ("REVENUECAT_REQUESTS_PER_MINUTE", "0"),
            ("APP_STORE_ISSUER_ID", scenario.appStore.issuerID), ("APP_STORE_KEY_ID", scenario.appStore.keyID),
            ("APP_STORE_PRIVATE_KEY_FILE", folder + "/app-store-key.p8"),
            ("APP_STORE_BUNDLE_ID", scenario.appStore.bundleID),
            ("APP_STORE_BASE_URL", base + "/app-store"), ("APP_STORE_SANDBOX_BASE_URL", base + "/app-store-sandbox"),
            ("APP_STORE_REQUESTS_PER_MINUTE", "0"),
            ("APP_STORE_ROOT_CERTIFICATES", folder + "/app-store-root.pem"),
            ("RECEIPT_ROOT_CERTIFICATES", folder + "/receipt-root.pem"),
            ("GOOGLE_PLAY_SERVICE_ACCOUNT_FILE", folder + "/google-service-account.json"),
            ("GOOGLE_PLAY_PACKAGE_NAME", scenario.googlePlay.package),
            ("GOOGLE_PLAY_BASE_URL", base + "/google-play"), ("GOOGLE_OAUTH_BASE_URL", base + "/google-oauth"),
            ("GOOGLE_PLAY_REQUESTS_PER_MINUTE", "0"),
            ("ONSIDE_MERCHANT_ID", scenario.onside.merchantID), ("ONSIDE_MERCHANT_SECRET", scenario.onside.secret),
            ("ONSIDE_SECRET_KEY_ID", scenario.onside.keyID), ("ONSIDE_BUNDLE_ID", scenario.onside.bundleID),
            ("ONSIDE_BASE_URL", base + "/onside"), ("ONSIDE_REQUESTS_PER_MINUTE", "0"),
            ("FIREBASE_PROJECT_ID", scenario.firebase.project), ("FIREBASE_KEYS_URL", base + "/google-keys/firebase"),
            ("FIREBASE_BASE_URL", base + "/identity-toolkit"), ("GOOGLE_KEYS_URL", base + "/google-keys/oauth"),
            ("PUBSUB_AUDIENCE", scenario.pubSub.audience),
            ("PUBSUB_SERVICE_ACCOUNT", scenario.pubSub.serviceAccount),
            ("REVENUECAT_WEBHOOK_AUTHORIZATION", Self.revenueCatWebhookAuthorization),
            ("REVENUECAT_WEBHOOK_SECRET", Self.revenueCatWebhookSecret),
        ]
        try Self.write(try proofs(), to: folder + "/proofs.tsv")
        try Self.write(try tokens(), to: folder + "/tokens.tsv")
        // Written last: a process that waits for it finds the others.
        try Self.write(settings.map { "\($0)=\($1)\n" }.joined(), to: folder + "/stores.env")
    }

    private func tokens() throws -> String {
        // Hundreds of signatures take a while, and requests go on meanwhile.
        let state = simulation.withState { $0 }
        let nowMs = state.clock.nowMs
        return try Self.users(of: state.scenario).map { user in
            "\(user)\t\(try state.identity.firebaseToken(FirebaseTokenRequest(subject: user), nowMs: nowMs))\n"
        }.joined()
    }

    /// Who may be a user of the app: customers under ids that are not anonymous, each once.
    private static func users(of scenario: Scenario) -> [String] {
        var ids = scenario.customers.flatMap { [$0.id] + $0.aliases }
        for block in scenario.generate {
            for pattern in ([block.id] + block.aliases).compactMap({ IDPattern($0) }) {
                for number in block.from..<(block.from + min(block.count, 20)) { ids.append(pattern.text(number)) }
            }
        }
        var seen: Set<String> = []
        return ids.filter { !$0.hasPrefix("$RCAnonymousID:") && seen.insert($0).inserted }
    }

    private func proofs() throws -> String {
        try simulation.withState { state in
            let nowMs = state.clock.nowMs
            let writer = state.appStore.writer(nowMs: nowMs)
            var lines = ""
            for account in state.appStore.accounts {
                for purchase in account.purchases {
                    let text = try writer.transaction(purchase, of: account)
                    lines += "storekit_jws\t\(purchase.transaction)\t\(text)\n"
                }
                let receipt = try account.receipt(bundleID: state.scenario.appStore.bundleID, nowMs: nowMs)
                lines += "app_receipt\t\(account.id)\t\(receipt)\n"
                lines += "app_transaction\t\(account.id)\t\(try writer.appTransaction(of: account))\n"
            }
            for account in Set(state.onside.orders.values.compactMap(\.scenario.shownBy)).sorted() {
                lines += "onside_history\t\(account)\t\(try state.onside.history(account: account, nowMs: nowMs))\n"
            }
            return lines
        }
    }

    private static func write(_ text: String, to path: String) throws {
        try Data(text.utf8).write(to: URL(fileURLWithPath: path), options: .atomic)
        // Keys are among them, if only of a simulator.
        chmod(path, 0o600)
    }
}
