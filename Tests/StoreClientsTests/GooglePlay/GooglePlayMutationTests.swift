import Entitlements
@testable import StoreClients
import TestSupport
import Testing
@testable import TextFormats

/// Mutated answers: nothing crashes or hangs; each either decodes or is refused.
@Suite struct GooglePlayMutationTests {
    private static let seeds: [[UInt8]] = [
        PlayFixture.subscription("ACTIVE", ["externalAccountIdentifiers": #"{"obfuscatedExternalAccountId":"a"}"#]),
        PlayFixture.subscription(
            "CANCELED",
            items: [PlayFixture.item(), PlayFixture.item(["deferredItemReplacement": #"{"productId":"x"}"#])],
            [
                "outOfAppPurchaseContext": #"{"expiredPurchaseToken":"e"}"#, "testPurchase": "{}",
                "linkedPurchaseToken": #""l""#,
            ]
        ),
        PlayFixture.subscription(
            "ACTIVE",
            items: [PlayFixture.item(["autoRenewingPlan": nil, "prepaidPlan": "{}", "latestSuccessfulOrderId": nil])],
            ["acknowledgementState": #""ACKNOWLEDGEMENT_STATE_PENDING""#]
        ),
        PlayFixture.product(),
    ].map { Array($0.utf8) }

    @Test("no mutated answer crashes the decoder or what follows it", arguments: 0..<4 as Range<UInt64>)
    func survives(_ seed: UInt64) {
        var generator = SeededGenerator(seed: seed)
        var accepted = 0
        var refused = 0
        for round in 0..<Mutations.count / 4 {
            let body = Mutations.alter(Self.seeds[round % Self.seeds.count], Mutations.json, &generator)
            do throws(JSONFault) {
                let observation = try SubscriptionPurchase(body)
                    .observations(token: "tok", lineage: ["tok"], at: PlayFixture.now).first
                if observation?.givesAccess == true { accepted += 1 }
            } catch { refused += 1 }
            _ = try? ProductPurchase(body).observations(token: "tok", at: PlayFixture.now)
            _ = GooglePlayError(body: body)
        }
        // Otherwise the test would prove nothing.
        #expect(accepted > Mutations.count / 80)
        #expect(refused > Mutations.count / 8)
    }

    @Test("an answer cut off anywhere is refused")
    func prefixes() throws {
        for seed in Self.seeds.dropLast() {
            _ = try SubscriptionPurchase(seed)
            for count in seed.indices {
                #expect(throws: JSONFault.self) { try SubscriptionPurchase(Array(seed[..<count])) }
            }
        }
    }
}
