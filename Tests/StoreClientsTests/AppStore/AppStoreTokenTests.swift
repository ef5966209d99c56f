import Crypto
import Entitlements
import Foundation
import HTTPTypes
@testable import StoreClients
import StoreSimulator
import Synchronization
import Testing
@testable import TextFormats
import Transport

/// How requests prove who sends them.
struct AppStoreTokenTests {
    private static let line = #"original: "2000000100000001", product: monthly"#

    private func claims(_ token: String, part: Int = 1) throws -> [String: Any] {
        let parts = token.split(separator: ".")
        let bytes = try #require(Base64.decode(Array(parts[part].utf8), .url))
        return try #require(try JSONSerialization.jsonObject(with: Data(bytes)) as? [String: Any])
    }

    @Test func `a token is signed with ES256 and says what the App Store wants to know`() async throws {
        let store = try SimulatedAppStore(transactions: [Self.line])
        #expect(try await store.read("2000000100000001").coverage == .full)
        let request = try #require(store.requests.first)
        #expect(request.headerFields[.accept] == "application/json" && request.headerFields[.contentType] == nil)
        let token = try #require(store.tokens.first)
        let header = try claims(token, part: 0)
        #expect(header["alg"] as? String == "ES256" && header["kid"] as? String == "2X9R4HXF34")
        #expect(header["typ"] as? String == "JWT" && header.count == 3)
        let payload = try claims(token)
        #expect(payload["iss"] as? String == "57246542-96fe-1a63-e053-0824d011072a")
        #expect(payload["aud"] as? String == "appstoreconnect-v1" && payload["bid"] as? String == "com.example.app")
        let (issued, expires) = (try #require(payload["iat"] as? Int64), try #require(payload["exp"] as? Int64))
        #expect(expires - issued == 300)
        let parts = token.split(separator: ".")
        let signature = try P256.Signing.ECDSASignature(
            rawRepresentation: try #require(Base64.decode(Array(parts[2].utf8), .url))
        )
        let key = try P256.Signing.PrivateKey(pemRepresentation: StoreSimulator.appStoreKey)
        #expect(key.publicKey.isValidSignature(signature, for: Data("\(parts[0]).\(parts[1])".utf8)))
    }

    @Test func `a token is dated back and used for a minute`() throws {
        let configuration = try AppStoreConfiguration(
            issuerID: "i",
            keyID: "k",
            privateKey: StoreSimulator.appStoreKey,
            bundleID: "com.example.app"
        )
        let clock = Mutex<Int64>(1_800_000_000)
        let tokens = AppStoreTokens(configuration) { clock.withLock { $0 } }
        func issued(_ token: String) throws -> Int64? { try claims(token)["iat"] as? Int64 }
        let first = try tokens.token()
        #expect(try issued(first) == 1_799_999_995)
        clock.withLock { $0 += 59 }
        #expect(try tokens.token() == first)
        clock.withLock { $0 += 1 }
        let second = try tokens.token()
        #expect(try issued(second) == 1_800_000_055)
        clock.withLock { $0 -= 30 }
        let third = try tokens.token()
        #expect(try issued(third) == 1_800_000_025, "a clock that was set back makes a token of its own")
        let fourth = try tokens.token(insteadOf: third)
        #expect(try fourth != third && tokens.token() == fourth)
        #expect(try tokens.token(insteadOf: third) == fourth, "another request has replaced it already")
    }

    @Test func `a clock a little ahead is forgiven, and far ahead it is refused twice`() async throws {
        let store = try SimulatedAppStore(transactions: [Self.line])
        store.setAhead(seconds: 3)
        #expect(try await store.read("2000000100000001").failure == nil)
        store.setAhead(seconds: 36_000)
        let reading = try await store.read("2000000100000001")
        #expect(reading.failure == ReadFailure(.unauthorized, store: .appStore))
        #expect(reading.coverage == .none && reading.requests == 2)
    }

    @Test func `a refused token is followed by a fresh one, once`() async throws {
        let store = try SimulatedAppStore(transactions: [Self.line])
        try store.control("POST", "/faults", #"{"endpoint":"app_store.statuses","status":401,"times":1}"#)
        let reading = try await store.read("2000000100000001")
        #expect(reading.coverage == .full && reading.failure == nil && reading.requests == 3)
        #expect(store.tokens[0] != store.tokens[1])
        #expect(store.reports.allSatisfy { $0.failure == nil }, "a token that came late is no word on our key")
        try store.control("DELETE", "/faults")
        try store.control("POST", "/faults", #"{"endpoint":"app_store.statuses","status":401}"#)
        let refused = try await store.read("2000000100000001", isFromClient: true)
        #expect(refused.failure == ReadFailure(.unauthorized, store: .appStore) && refused.requests == 2)
        #expect(refused.coverage == .none && refused.observations.isEmpty)
        #expect(store.reports.last?.failure == .unauthorized, "our key is bad, whoever's the id is")
    }

    @Test func `before the first release production takes nobody, which is no absence`() async throws {
        let store = try SimulatedAppStore(
            """
            app_store:
              released: false
              customers:
                - {id: a, transactions: [{original: "2000000100000001", product: monthly}]}
                - {id: b, environment: Sandbox, transactions: [{original: "2000000100000002", product: monthly}]}
            """
        )
        let production = try await store.read("2000000100000001", environment: nil)
        #expect(production.coverage == .none && production.failure == ReadFailure(.unavailable, store: .appStore))
        #expect(try await store.read("2000000100000001").failure?.code == .unauthorized)
        #expect(try await store.read("2000000100000002", environment: .sandbox).coverage == .full)
    }

    @Test func `before the first release the sandbox is asked for ids whose environment nobody knows`() async throws {
        let store = try SimulatedAppStore(
            """
            app_store:
              released: false
              customers:
                - {id: b, environment: Sandbox, transactions: [{original: "2000000100000002", product: monthly}]}
            """
        )
        for isFromClient in [true, false] {
            let reading = try await store.read("2000000100000002", environment: nil, isFromClient: isFromClient)
            #expect(reading.coverage == .full && reading.failure == nil && !reading.observations.isEmpty)
        }
        let client = try store.client()
        let found = try await client.transaction("2000000100000002", in: nil, lane: .restore)
        #expect(found?.environment == "Sandbox")
        #expect(try await client.refunds(of: "2000000100000002", in: nil, lane: .support).isEmpty)
        let unknown = await #expect(throws: ReadFailure.self) {
            try await client.transaction("2000000100000003", in: nil, lane: .restore)
        }
        #expect(unknown == ReadFailure(.unavailable, store: .appStore), "production may know it, and does not say")
        let order = await #expect(throws: ReadFailure.self) {
            try await client.lookup(order: "MK5TTTVWJH", lane: .support)
        }
        #expect(order == ReadFailure(.unavailable, store: .appStore))
    }

    @Test func `a key that both environments refuse is bad, whatever is asked for`() async throws {
        let store = try SimulatedAppStore(transactions: [Self.line])
        let stranger = try store.client(key: P256.Signing.PrivateKey().pemRepresentation)
        let reading = await stranger.read(AppStoreQuery(.init(id: "2000000100000001", environment: nil)))
        #expect(reading.coverage == .none && reading.failure == ReadFailure(.unauthorized, store: .appStore))
        for ask in [
            { _ = try await stranger.transaction("2000000100000001", in: nil, lane: .restore) },
            { _ = try await stranger.refunds(of: "2000000100000001", in: nil, lane: .support) },
            { _ = try await stranger.lookup(order: "MK5TTTVWJH", lane: .support) },
        ] as [() async throws -> Void] {
            let refusal = await #expect(throws: ReadFailure.self) { try await ask() }
            #expect(refusal?.code == .unauthorized)
        }
    }

    @Test func `a key, an app or an account that the store does not know is refused`() async throws {
        let store = try SimulatedAppStore(transactions: [Self.line])
        let subject = AppStoreQuery(.init(id: "2000000100000001", environment: .production))
        let stranger = try store.client(key: P256.Signing.PrivateKey().pemRepresentation)
        #expect(await stranger.read(subject).failure?.code == .unauthorized)
        let other = try store.client(bundleID: "com.example.other")
        #expect(await other.read(subject).failure?.code == .unauthorized)
    }
}

/// The settings, and who may see them.
struct AppStoreConfigurationTests {
    private func faults(
        issuerID: String = "57246542-96fe-1a63-e053-0824d011072a",
        keyID: String = "2X9R4HXF34",
        privateKey: String = StoreSimulator.appStoreKey,
        bundleID: String = "com.example.app",
        baseURL: String = "https://api.storekit.apple.com",
        sandboxBaseURL: String = "https://api.storekit-sandbox.apple.com"
    ) -> [AppStoreConfiguration.Fault] {
        do throws(SettingFaults<AppStoreConfiguration.Fault>) {
            _ = try AppStoreConfiguration(
                issuerID: issuerID,
                keyID: keyID,
                privateKey: privateKey,
                bundleID: bundleID,
                baseURL: baseURL,
                sandboxBaseURL: sandboxBaseURL
            )
            return []
        } catch {
            return error.faults
        }
    }

    @Test func `each fault is named, and all at once`() {
        #expect(faults() == [])
        #expect(faults(issuerID: "") == [.issuerID])
        #expect(faults(issuerID: #"a","bid":"x"#) == [.issuerID])
        #expect(faults(keyID: "a b") == [.keyID])
        #expect(faults(bundleID: "com.example.app\n") == [.bundleID])
        #expect(faults(privateKey: "secret") == [.privateKey])
        #expect(faults(privateKey: P384.Signing.PrivateKey().pemRepresentation) == [.privateKey])
        #expect(faults(baseURL: "api.storekit.apple.com") == [.baseURL])
        #expect(faults(baseURL: "http://api.storekit.apple.com") == [.insecureBaseURL])
        #expect(faults(sandboxBaseURL: "") == [.sandboxBaseURL])
        #expect(faults(sandboxBaseURL: "http://example.com") == [.insecureSandboxBaseURL])
        #expect(
            Set(faults(issuerID: "", keyID: "", privateKey: "", bundleID: "", baseURL: "", sandboxBaseURL: ""))
                == [.issuerID, .keyID, .privateKey, .bundleID, .baseURL, .sandboxBaseURL]
        )
        let error = SettingFaults<AppStoreConfiguration.Fault>(faults: AppStoreConfiguration.Fault.allCases)
        for fault in AppStoreConfiguration.Fault.allCases { #expect("\(error)".contains(fault.rawValue)) }
    }

    @Test func `nothing shows the key`() throws {
        let configuration = try AppStoreConfiguration(
            issuerID: "i",
            keyID: "k",
            privateKey: StoreSimulator.appStoreKey,
            bundleID: "com.example.app"
        )
        var dumped = ""
        dump(["settings": configuration], to: &dumped)
        let lines = StoreSimulator.appStoreKey.split(separator: "\n").filter { !$0.hasPrefix("-") }
        let key = try #require(lines.first)
        for text in ["\(configuration)", String(reflecting: configuration), dumped] {
            #expect(text.contains("redacted") && !text.contains(key) && !text.contains("rawRepresentation"))
        }
    }

    @Test func `budgets are those that are published`() {
        let published: [AppStoreBudget: Int] = [
            .statuses: 50, .transaction: 50, .history: 50, .lookup: 10, .refunds: 10, .token: 20, .notifications: 50,
            .test: 1,
        ]
        for budget in AppStoreBudget.allCases { #expect(budget.perSecond == published[budget]) }
        #expect(AppStoreEndpoint.templates.count == AppStoreBudget.allCases.count)
    }
}
