import Entitlements
import Foundation
import Postgres
import Queue
import StoreSimulator
import TestSupport
import Testing
import UserRequests

/// Proofs as apps and plugins send them: read as what they plainly are, or refused with their place.
@Suite struct ProofShapeTests {
    private static let transaction = "2000000100000009"
    private static let token = "nopqrstuvwxyz.AO-J1Oz_9"

    private static let scenario = """
        app_store:
          customers:
            - id: ann
              transactions:
                - {original: "2000000100000001", transaction: "2000000100000009", product: premium_monthly, expires: +20d}
        google_play:
          purchases:
            - {token: \(token), state: active}
        """

    private static func json(_ value: Any) throws -> String {
        String(decoding: try JSONSerialization.data(withJSONObject: value, options: .fragmentsAllowed), as: UTF8.self)
    }

    private static func proofs(_ kind: String, _ value: String) throws -> String {
        let store = kind == "purchase_token" ? "google_play" : "app_store"
        return try json([["store": store, "kind": kind, "value": value]])
    }

    private static func wrapped(_ text: String, every count: Int, with separator: String) -> String {
        stride(from: 0, to: text.utf8.count, by: count).map { start in
            String(decoding: Array(text.utf8)[start..<min(start + count, text.utf8.count)], as: UTF8.self)
        }.joined(separator: separator)
    }

    private static func unity(_ store: String, _ payload: String) throws -> String {
        try json(["Store": store, "TransactionID": "GPA.3345-5", "Payload": payload])
    }

    private static func receipt(createdAt: Date = Date()) throws -> String {
        try ReceiptAuthority.shared().receipt(
            ReceiptDescription(
                type: "Production",
                bundleID: "com.example.app",
                createdAt: createdAt,
                purchases: [
                    .init(
                        productID: "premium_monthly",
                        transactionID: "2000000100000005",
                        originalTransactionID: "2000000100000001",
                        purchasedAt: Date() - 86_400 * 40,
                        kind: 3
                    )
                ]
            )
        )
    }

    /// Texts that are plainly the receipt.
    private static func receipts(_ receipt: String) throws -> [String] {
        [
            receipt, wrapped(receipt, every: 76, with: "\r\n"), wrapped(receipt, every: 64, with: "\n"), receipt + "\n",
            " \t" + receipt + "\r\n", wrapped(receipt, every: 64, with: " "),
            wrapped(receipt, every: 60, with: "\r\n "),
            receipt.replacing("+", with: "-").replacing("/", with: "_"),
            receipt.replacing("+", with: "-").replacing("/", with: "_").replacing("=", with: ""),
            receipt.replacing("+", with: " "), try json(receipt), try json(["receipt-data": receipt]),
            try unity("AppleAppStore", receipt), try json([["transactionReceipt": receipt]]),
            try json(["type": "ios-appstore", "appStoreReceipt": wrapped(receipt, every: 64, with: "\n")]),
            try json(["source": "app_store", "verificationData": ["serverVerificationData": receipt]]),
        ]
    }

    private static func signed(_ jws: String) throws -> [String] {
        [
            jws, jws + "\n", wrapped(jws, every: 76, with: "\r\n"), try json(jws), try json(["purchaseToken": jws]),
            try json(["jwsRepresentation": jws]), try unity("AppleAppStore", jws),
            try json(["verificationData": ["serverVerificationData": jws, "source": "app_store"]]),
        ]
    }

    private static func tokens() throws -> [String] {
        let purchase = try json(["orderId": "GPA.1", "productId": "pro", "purchaseToken": token])
        return [
            token, token + "\n", " " + token, try json(token), purchase,
            try json(["json": purchase, "signature": "c2ln"]),
            try unity("GooglePlay", try json(["json": purchase, "signature": "c2ln"])),
            try json(["type": "android-playstore", "purchaseToken": token, "receipt": purchase]),
            try json(["verificationData": ["serverVerificationData": token, "localVerificationData": purchase]]),
            try json([["transactionReceipt": purchase]]),
        ]
    }

    @Test func `a receipt, a signed transaction or a token is read as what it is, however it is wrapped or called`()
        async throws
    {
        try await World.with(scenario: Self.scenario) { world in
            let jws = try #require(try world.simulator.appStoreProof(ofTransaction: Self.transaction))
            let receipt = try Self.receipt()
            let expected: [(String, String, [String])] = [
                ("app_receipt", receipt, try Self.receipts(receipt)), ("storekit_jws", jws, try Self.signed(jws)),
                ("purchase_token", Self.token, try Self.tokens()),
            ]
            for (kind, plain, texts) in expected {
                for (index, text) in texts.enumerated() {
                    for called in ["app_receipt", "storekit_jws", "purchase_token"] {
                        // Alone, without its wrapping, nothing but its kind says that a text is a token.
                        if kind == "purchase_token", called != kind, index < 4 { continue }
                        // What forms did to a receipt is mended where it is said to be one.
                        if kind == "app_receipt", called != kind, text.contains(" ") { continue }
                        let user = "\(kind)-\(index)-\(called)"
                        try await world.add(user)
                        let job = try await world.restore(user, proofs: try Self.proofs(called, text))
                        let kept = try await world.pool.query(
                            """
                            SELECT r.proofs -> 0 ->> 'kind', r.proofs -> 0 ->> 'value'
                              FROM entitlement_sync.job_request AS r WHERE r.id = \(job)
                            """
                        ).map { try $0.decode(String.self, String.self) }
                        #expect(kept.map(\.0) == [kind] && kept.map(\.1) == [plain], "\(user): \(text.prefix(60))")
                    }
                }
            }
        }
    }

    @Test func `a receipt whose last plus a form made a space is whole, and cut off without it`() async throws {
        // A sequence of 245 bytes.
        let head: [UInt8] = [0x30, 0x82, 0x00, 0xf5, 0xfb, 0xef]
        let receipt = Data(head + Array(repeating: [0xbe, 0x00, 0x3e], count: 81).joined()).base64EncodedString()
        let form = receipt.replacing("+", with: " ")
        let cut = String(form.dropLast())
        try #require(receipt.hasSuffix("A+"))
        try await World.with { world in
            let read = try await world.texts(
                "SELECT concat(entitlement_sync.plain_proof('app_receipt', t) ->> 'value') FROM unnest(\([form, cut])) AS t"
            )
            #expect(read == [receipt, ""])
        }
    }

    @Test func `a wrapped proof restores as the plain one does`() async throws {
        try await World.with(scenario: Self.scenario) { world in
            try await world.addProducts()
            try await world.add("ann")
            try await world.add("bob")
            let setup = try world.asking(world.appStore, world.googlePlay)
            let receipt = Self.wrapped(try Self.receipt(), every: 76, with: "\r\n")
            let ann = try await world.restored("ann", proofs: try Self.proofs("storekit_jws", receipt), setup: setup)
            #expect(ann.outcome == "restored", "\(ann)")
            let token = try Self.tokens()[6]
            let bob = try await world.restored("bob", proofs: try Self.proofs("purchase_token", token), setup: setup)
            #expect(bob.outcome == "restored", "\(bob)")
        }
    }

    /// The error of a request.
    private static func refusal(_ world: World, _ proofs: String) async throws -> PostgresError? {
        do {
            _ = try await world.restore("ann", proofs: proofs)
            return nil
        } catch let error as PostgresError { return error }
    }

    @Test func `what is no proof of any kind is refused with its place and nothing of its text`() async throws {
        try await World.with(scenario: Self.scenario) { world in
            try await world.add("ann")
            let jws = try #require(try world.simulator.appStoreProof(ofTransaction: Self.transaction))
            let receipt = try Self.receipt()
            let parts = jws.split(separator: ".").map(String.init)
            let renewal = Data(#"{"autoRenewProductId":"x","signedDate":1}"#.utf8).base64EncodedString()
            let texts = [
                "{", "{}", #"{"a":1}"#, "[1,2]", "\"", "[]", "../../../orders/x", "é", " ", "\n",
                #"{"purchaseToken":"a b/c"}"#,
                #"{"purchaseToken":"\ud83d"}"#, try Self.unity("fake", "ThisIsFakeReceiptData"),
                try Self.unity("AmazonApps", "abc"), String(repeating: "[", count: 500_000),
                String(repeating: #"{"token":"#, count: 50_000), parts[0] + "." + parts[1], String(jws.dropLast(10)),
                [parts[0], renewal.replacing("=", with: ""), parts[2]].joined(separator: "."),
                String(receipt.prefix(receipt.count / 2)), Data(receipt.utf8).base64EncodedString(),
                try Self.unity("AppleAppStore", String(receipt.prefix(2000))),
            ]
            for kind in ["app_receipt", "storekit_jws", "purchase_token"] {
                for text in texts {
                    let clock = ContinuousClock()
                    let began = clock.now
                    let good = try Self.proofs("storekit_jws", jws).dropLast()
                    let both = good + "," + (try Self.proofs(kind, text)).dropFirst()
                    let error = try await Self.refusal(world, String(both))
                    #expect(error?.sqlState == "ES002", "\(kind) \(text.prefix(40))")
                    #expect(error?.message == "proofs[1].value: not a whole \(kind)" && error?.hint?.isEmpty == false)
                    #expect(clock.now - began < .seconds(5))
                }
            }
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.queue") == 0)
        }
    }

    @Test func `a genuine receipt from outside its certificates' time is no nothing, and an alarm`() async throws {
        try await World.with(scenario: Self.scenario) { world in
            for user in ["ann", "bob"] { try await world.add(user) }
            try await world.addProducts()
            let setup = try world.asking(world.appStore, world.googlePlay)
            let late = try Self.receipt(createdAt: Date(timeIntervalSince1970: 4_070_908_800))
            let job = try await world.restored("ann", proofs: try Self.proofs("app_receipt", late), setup: setup)
            #expect(job.state == "dead" && job.outcome == "store_unavailable", "\(job)")
            #expect(job.lastError == "proof_trust_unclear")
            #expect(try await world.alarms() == ["proof_trust_unclear"])
            // Where something else gives access, it takes nothing away.
            let both =
                try Self.proofs("app_receipt", late).dropLast() + ","
                + Self.proofs("purchase_token", Self.token).dropFirst()
            #expect(try await world.restored("bob", proofs: String(both), setup: setup).outcome == "restored")
        }
    }

    @Test func `a typed id of an app that was never released is looked for in the sandbox`() async throws {
        let scenario = """
            app_store:
              released: false
              customers:
                - id: ann
                  environment: Sandbox
                  transactions:
                    - {original: "2000000000000001", product: premium_monthly, expires: +20d, account_token: "\(Self.account)"}
            """
        try await World.with(scenario: scenario) { world in
            for user in [Self.account, "bob"] { try await world.add(user) }
            try await world.addProducts()
            try await world.controls.allowSandbox(
                Self.account,
                until: PostgresTimestamp(microsecondsSinceUnixEpoch: .max / 4)
            )
            let typed = world.proof("app_store", "transaction_id", "2000000000000001")
            var setup = try world.asking(world.appStore)
            setup.retry.maxAttempts = 2
            let job = try await world.restored(Self.account, proofs: typed, setup: setup)
            #expect(job.outcome == "restored", "\(job)")
            let unknown = world.proof("app_store", "transaction_id", "2000000000000002")
            #expect(try await world.restored("bob", proofs: unknown, setup: setup).outcome == "store_unavailable")
            #expect(try await world.alarms().isEmpty)
        }
    }

    private static let account = "7e3fb204-2b4b-4d5a-9d4a-7f5f6d3b5c10"
}
