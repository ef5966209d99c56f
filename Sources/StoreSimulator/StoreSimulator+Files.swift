internal import Foundation
internal import Glibc

extension StoreSimulator {
    /// Writes what operators and devices would have, so that others can use the simulated stores.
    ///
    /// - `stores.env`: the variables of the App Store, Google Play and Onside, a line each.
    /// - The keys, certificates and accounts that these name.
    /// - `proofs.tsv`: `kind`, of what, and the proof, with tabs between: a `storekit_jws` for each transaction, an
    ///   `app_receipt` for each Apple account in both generations' newer form, an `onside_history` for each account.
    ///
    /// - Parameters:
    ///   - folder: has to exist; files are readable by their owner alone.
    ///   - port: where the simulator listens.
    /// - Throws: what the file system or the cryptography does.
    package func writeFiles(to folder: String, port: Int) throws {
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
        ]
        try Self.write(try proofs(), to: folder + "/proofs.tsv")
        // Written last: whoever waits for it finds the others.
        try Self.write(settings.map { "\($0)=\($1)\n" }.joined(), to: folder + "/stores.env")
    }

    private func proofs() throws -> String {
        try simulation.withState { state in
            var lines: [String] = []
            let writer = state.appStore.writer(nowMs: state.clock.nowMs)
            for account in state.appStore.accounts {
                for purchase in account.purchases {
                    lines.append(
                        "storekit_jws\t\(purchase.transaction)\t\(try writer.transaction(purchase, of: account))"
                    )
                }
                let receipt = try account.receipt(bundleID: state.scenario.appStore.bundleID, nowMs: state.clock.nowMs)
                lines.append("app_receipt\t\(account.id)\t\(receipt)")
            }
            for account in Set(state.onside.orders.values.compactMap(\.scenario.shownBy)).sorted() {
                let history = try state.onside.history(account: account, nowMs: state.clock.nowMs)
                lines.append("onside_history\t\(account)\t\(history)")
            }
            return lines.map { $0 + "\n" }.joined()
        }
    }

    private static func write(_ text: String, to path: String) throws {
        let file = URL(fileURLWithPath: path)
        try Data(text.utf8).write(to: file, options: .atomic)
        // Keys are among them, if only of a simulator.
        chmod(path, 0o600)
    }
}
