#if FAULT_POINTS
    import FaultPoints
    import Foundation
    import TestSupport
    import Postgres
    import Testing

    /// The App Store of a transfer's story: it names the owner until it is told of the claimant.
    enum SagaAppStore {
        /// The claimant's, of version 5 in the namespace; made with Python's uuid.
        static let token = "148ad62b-519f-50fd-8dca-1bf32319d27c"
        private static let transaction = "200000070000001"

        static let scenario = """

            app_store:
              customers:
                - id: buyer
                  transactions:
                    - {original: "\(transaction)", transaction: "\(transaction)", product: premium_monthly, expires: +20d, account_token: a7e6ad0f-abbc-5677-869d-c429624e09bb}

            """
        static let products = """
            INSERT INTO entitlement_sync.product (store, product_id, entitlement, grants_access)
            VALUES ('app_store', 'premium_monthly', 'premium', true)
            """

        /// What operators would have set, from the files of the simulator.
        static func settings(_ folder: String) throws -> [String: String] {
            var settings = ["ACCOUNT_ID_NAMESPACE": "3d813cbb-47fb-32ba-91df-831e1593ac29"]
            for line in try String(contentsOfFile: folder + "/stores.env", encoding: .utf8).split(separator: "\n") {
                let sides = line.split(separator: "=", maxSplits: 1)
                guard sides.count == 2, sides[0].hasPrefix("APP_STORE_") || sides[0].hasPrefix("RECEIPT_") else {
                    continue
                }
                settings[String(sides[0])] = String(sides[1])
            }
            return settings
        }

        /// A purchase that was moved is told of once or more, in the same words; one that was not, never.
        static func expectTold(of story: SagaStory, _ site: Site, _ simulator: Simulator, _ log: [String]) async throws
        {
            let ends = try await site.texts(
                "SELECT concat_ws(' ', k.state, k.reason) FROM entitlement_sync.transfer_token AS k"
            )
            guard story.isMoved else { return #expect(ends == [], "nothing was moved") }
            #expect(ends == [story.tellsAppStore ? "set" : "skipped app_store_off"])
            let puts = log.count { $0.hasPrefix("PUT ") && $0.hasSuffix("/appAccountToken") }
            guard story.tellsAppStore else { return #expect(puts == 0) }
            let deaths = story.events.count { if case .dies(.transferToken) = $0 { true } else { false } }
            #expect(puts == deaths + 1 + (story.trouble == nil ? 0 : 1), "\(log)")
            let shown = try await fetch("GET", "/control/app-store/transactions/\(transaction)", from: simulator.port)
            #expect(String(decoding: shown, as: UTF8.self).contains(token))
        }
    }
#endif
