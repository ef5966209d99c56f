import Entitlements
import Foundation
import HTTPTypes
@testable import SignedTokens
@testable import StoreClients
import StoreSimulator
import Testing
@testable import TextFormats
import Transport

/// The keys that answers and histories are verified with.
@Suite struct OnsideKeyTests {
    private func history(_ bench: OnsideBench) throws -> String {
        try bench.simulator.onsideHistory(account: OnsideBench.account)
    }

    @Test func `a history that Onside signed verifies, and one request for keys serves many`() async throws {
        let bench = try OnsideBench()
        let client = try bench.client()
        let text = try history(bench)
        let history = try await client.history(text)
        #expect(history.transactions.map(\.orderID) == [OnsideBench.order, OnsideBench.renewal])
        #expect(history.transactions.allSatisfy { $0.appAccountToken == OnsideBench.account })
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<50 { group.addTask { #expect(await refusal(text, client) == nil) } }
        }
        #expect(bench.keyRequests == 1)
        let keySet = try bench.simulator.onsideKeySet()
        #expect(try OnsideClient.history(text, keySet: keySet, bundleID: "com.example.app") == history)
        #expect(try OnsideClient.history(text, keySet: keySet, bundleID: nil) == history)
        #expect(OnsideClient.unverified(text) == history)
    }

    @Test func `many who ask at once for the first time make one request`() async throws {
        let bench = try OnsideBench()
        let client = try bench.client()
        let text = try history(bench)
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<50 { group.addTask { #expect(await refusal(text, client) == nil) } }
        }
        #expect(bench.keyRequests == 1)
    }

    @Test func `after a rotation the new key is fetched, and a withdrawn one is gone`() async throws {
        let bench = try OnsideBench()
        let client = try bench.client()
        let old = try history(bench)
        #expect(await refusal(old, client) == nil)
        bench.simulator.rotateOnsideKeys(keepOld: true)
        #expect(await client.read(OnsideBench.query()).coverage == .full)
        #expect(await refusal(old, client) == nil)
        #expect(bench.keyRequests == 2)
        bench.wait(.seconds(120))
        bench.simulator.rotateOnsideKeys(keepOld: false)
        #expect(await client.read(OnsideBench.query()).coverage == .full)
        #expect(bench.keyRequests == 3)
        bench.wait(.seconds(120))
        #expect(await refusal(old, client)?.code == .unknownKey)
    }

    @Test func `names that nobody knows lead to one request in two minutes, and to no refusal meanwhile`() async throws
    {
        let bench = try OnsideBench()
        let client = try bench.client()
        #expect(await refusal(try history(bench), client) == nil)
        bench.simulator.signOnside(.init(with: .unknownKid))
        let strange = try history(bench)
        #expect(await refusal(strange, client)?.code == .unknownKey)
        #expect(bench.keyRequests == 2)
        for _ in 0..<20 {
            let failure = ReadFailure(.unavailable, retryAfter: .seconds(120), store: .onside)
            #expect(await refusal(strange, client) == .unread(failure))
        }
        #expect(bench.keyRequests == 2)
        bench.wait(.seconds(119))
        #expect(await refusal(strange, client)?.code == nil)
        bench.wait(.seconds(1))
        #expect(await refusal(strange, client)?.code == .unknownKey)
        #expect(bench.keyRequests == 3)
        // An answer of the merchant API with such a name may be verified later.
        #expect(await client.read(OnsideBench.query()).failure?.code == .unavailable)
    }

    @Test func `while the set can't be had the known keys serve, for a day`() async throws {
        let bench = try OnsideBench()
        let client = try bench.client()
        let text = try history(bench)
        #expect(await refusal(text, client) == nil)
        bench.replace("jwks.json", fails: .timeout)
        bench.wait(.seconds(3_601))
        #expect(await refusal(text, client) == nil)
        #expect(await refusal(text, client) == nil)
        #expect(bench.keyRequests == 2, "an old set is asked for again, and not each time")
        bench.wait(.seconds(82_000))
        #expect(await refusal(text, client) == nil)
        bench.wait(.seconds(1_000))
        #expect(await refusal(text, client) == .unread(ReadFailure(.unavailable, store: .onside)))
        bench.restore()
        bench.wait(.seconds(1))
        #expect(await refusal(text, client) == nil)
    }

    @Test(arguments: [
        (200, "<html>not here</html>"), (200, ""), (200, "{}"), (200, #"{"keys":[]}"#), (200, #"{"keys":{}}"#),
        (200, #"{"keys":[{"kty":"oct","kid":"onside-key-1","k":"c2VjcmV0"}]}"#), (403, "{}"), (404, ""), (503, ""),
    ])
    func `without a set nothing is refused`(status: Int, body: String) async throws {
        let bench = try OnsideBench()
        let client = try bench.client()
        let text = try history(bench)
        bench.replace("jwks.json", status: status, body: body)
        #expect(await refusal(text, client) == .unread(ReadFailure(.unavailable, store: .onside)))
        #expect(await client.read(OnsideBench.query()).failure?.code == .unavailable)
        bench.restore()
        bench.wait(.seconds(1))
        #expect(await refusal(text, client) == nil)
    }

    @Test(arguments: [
        (OnsideSigning.Way.hs256PublicKey, ProofRefusal.Code.wrongAlgorithm), (.none, .wrongAlgorithm),
        (.otherKey, .badSignature), (.unknownKid, .unknownKey),
    ])
    func `what Onside did not sign is refused`(way: OnsideSigning.Way, code: ProofRefusal.Code) async throws {
        let bench = try OnsideBench()
        let client = try bench.client()
        bench.simulator.signOnside(.init(with: way))
        let text = try history(bench)
        #expect(await refusal(text, client)?.code == code)
        #expect(code == .wrongAlgorithm ? bench.keyRequests == 0 : bench.keyRequests == 1)
        let keySet = try bench.simulator.onsideKeySet()
        let error = #expect(throws: ProofRefusal.self) {
            try OnsideClient.history(text, keySet: keySet, bundleID: nil)
        }
        #expect(error?.code == code)
        #expect(OnsideClient.unverified(text)?.transactions.count == 2)
    }

    @Test func `a history about another app is refused`() async throws {
        let bench = try OnsideBench()
        #expect(await refusal(try history(bench), try bench.client(bundleID: "other"))?.code == .wrongBundle)
    }

    @Test(arguments: [
        #"{"alg":"RS256"}"#, #"{"alg":"RS256","kid":""}"#, #"{"kid":"onside-key-1"}"#,
        #"{"alg":"RS256","kid":"onside-key-1","crit":["exp"]}"#, #"{"alg":"RS256","kid":7}"#, "[]", "",
    ])
    func `a header that names no key or asks for more is refused before anything is fetched`(
        header: String
    ) async throws {
        let bench = try OnsideBench()
        let parts = try history(bench).split(separator: ".")
        let text = "\(Base64.encode(header.utf8, .url)).\(parts[1]).\(parts[2])"
        #expect(await refusal(text, try bench.client())?.code == .malformed)
        #expect(bench.keyRequests == 0)
    }

    @Test func `a key is used with its own algorithm alone`() async throws {
        let bench = try OnsideBench()
        let parts = try history(bench).split(separator: ".")
        let header = Base64.encode(#"{"alg":"ES256","kid":"onside-key-1"}"#.utf8, .url)
        #expect(await refusal("\(header).\(parts[1]).\(parts[2])", try bench.client())?.code == .wrongAlgorithm)
    }

    @Test func `a history of a year and more of weeks is not too large`() async throws {
        let bench = try OnsideBench("onside: {orders: []}")
        for week in 0..<200 {
            var order = OnsideOrderScenario(
                order: "7a1b2c3d-0000-4000-8000-000000000\(100 + week)",
                original: "7a1b2c3d-0000-4000-8000-000000000100"
            )
            order.account = OnsideBench.account
            order.purchased = .offset(milliseconds: Int64(week - 200) * 604_800_000)
            order.expires = .offset(milliseconds: Int64(week - 199) * 604_800_000 + 3_600_000)
            try bench.simulator.put(order)
        }
        let text = try history(bench)
        #expect(text.utf8.count > 100_000)
        #expect(try await bench.client().history(text).transactions.count == 200)
        let reading = try await bench.read(OnsideBench.query(["7a1b2c3d-0000-4000-8000-000000000100"]))
        #expect(reading.observations.first?.identifiers.count == 200)
        #expect(reading.observations.first?.givesAccess == true)
    }

    @Test func `a cancelled wait for keys is interrupted, and leaves the others theirs`() async throws {
        let set = KeySet(of: .onside)
        let keys = KeySet.Fetched(
            keys: try JSONWebKeys.read(Array(try OnsideBench().simulator.onsideKeySet().utf8))
        )
        let (gate, opener) = AsyncStream<Void>.makeStream()
        let (started, starter) = AsyncStream<Void>.makeStream()
        let leader = Task {
            try await set.key("onside-key-1") { () throws(ReadFailure) in
                starter.yield()
                for await _ in gate { break }
                return keys
            }
        }
        for await _ in started { break }
        let waiting = Task { try await set.key("onside-key-1") { () throws(ReadFailure) in KeySet.Fetched(keys: [:]) } }
        waiting.cancel()
        await #expect(throws: KeySet.Miss.unread(ReadFailure(.interrupted, store: .onside))) { try await waiting.value }
        let other = Task { try await set.key("onside-key-1") { () throws(ReadFailure) in KeySet.Fetched(keys: [:]) } }
        opener.yield()
        #expect(try await leader.value.algorithm == "RS256")
        #expect(try await other.value.algorithm == "RS256")
    }

    @Test func `a fetch that was not admitted is tried by the next at once`() async throws {
        let set = KeySet(of: .onside)
        let keys = KeySet.Fetched(
            keys: try JSONWebKeys.read(Array(try OnsideBench().simulator.onsideKeySet().utf8))
        )
        await #expect(throws: KeySet.Miss.unread(ReadFailure(.breakerOpen, store: .onside))) {
            try await set.key("onside-key-1") { () throws(ReadFailure) in throw ReadFailure(.breakerOpen) }
        }
        #expect(try await set.key("onside-key-1") { () throws(ReadFailure) in keys }.algorithm == "RS256")
    }
}
