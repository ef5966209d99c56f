import Entitlements
import HTTPTypes
import Testing

@testable import StoreClients

@Suite struct GooglePlayReadTests {
    let play = FakePlay()

    private func linked(_ state: String, to token: String?, order: String = "GPA.1") -> String {
        PlayFixture.subscription(
            state,
            items: [PlayFixture.item(["latestSuccessfulOrderId": "\"\(order)\""])],
            ["linkedPurchaseToken": token.map { "\"\($0)\"" }]
        )
    }

    @Test("one token is two requests: one for leave, one for the purchase, as the API wants them")
    func requests() async throws {
        play.on(FakePlay.subscription("tok"), 200, PlayFixture.subscription("ACTIVE"))
        let reading = try await play.read("tok")
        #expect(reading.coverage == .full)
        #expect(reading.failure == nil)
        #expect(reading.requests == 2)
        #expect(reading.observations.map(\.lookupID) == ["tok"])
        #expect(play.admitted == [.token, .subscriptions])
        let leave = try #require(play.requests.first)
        #expect(leave.method == .post)
        #expect(leave.scheme == "https")
        #expect(leave.authority == "oauth2.googleapis.com")
        #expect(leave.path == "/token")
        #expect(leave.headerFields[.contentType] == "application/x-www-form-urlencoded")
        let form = try #require(play.bodies.first)
        #expect(form.hasPrefix("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion="))
        let request = try #require(play.requests.last)
        #expect(request.method == .get)
        #expect(request.authority == "androidpublisher.googleapis.com")
        #expect(
            request.path == "/androidpublisher/v3/applications/com.example.app/purchases/subscriptionsv2/tokens/tok"
        )
        #expect(request.headerFields[.authorization] == "Bearer ya29.1")
    }

    @Test("no token at all is a full reading of nothing")
    func nothing() async throws {
        let reading = try await play.read()
        #expect(reading.coverage == .full)
        #expect(reading.requests == 0)
    }

    @Test(
        "what no purchase has for a token is unknown, and nobody is asked",
        arguments: [
            "", ".", "..", "a/b", "a%2Fb", "a b", "tökén", "a\0b", "a:acknowledge", String(repeating: "a", count: 1001),
        ]
    )
    func impossibleTokens(_ token: String) async throws {
        let reading = try await play.read(token)
        #expect(reading.coverage == .full)
        #expect(reading.observations.isEmpty)
        #expect(play.requests.isEmpty)
    }

    @Test("a token of the greatest length is asked for")
    func longToken() async throws {
        let token = String(repeating: "aZ9._-", count: 166) + "abcd"
        play.on(FakePlay.subscription(token), 200, PlayFixture.subscription("ACTIVE"))
        #expect(try await play.read(token).observations.count == 1)
    }

    @Test("more than 20 tokens of a client are never a full reading; our own are all asked for")
    func tooMany() async throws {
        var query = GooglePlayQuery(tokens: (0..<50).map { "tok\($0)" }, askedAt: PlayFixture.now, isFromClient: true)
        let reading = try await play.client().read(query)
        #expect(reading.coverage == .partial)
        #expect(reading.failure == ReadFailure(.incomplete, store: .googlePlay))
        #expect(play.reads.count == 40)
        query.isFromClient = false
        let own = try await play.client().read(query)
        #expect(own.coverage == .full && own.unknown == query.tokens)
        #expect(play.reads.count == 140)
    }

    // MARK: Absence

    @Test("39: a token that Google tells nothing more about is an answer of its own", arguments: [410, 404, 400])
    func gone(_ status: Int) async throws {
        let reason = [410: "purchaseTokenNoLongerValid", 404: "purchaseTokenNotFound", 400: "invalid"][status] ?? ""
        play.on(FakePlay.subscription("old"), status, PlayFixture.error(status, reason))
        play.on(FakePlay.subscription("tok"), 200, PlayFixture.subscription("ACTIVE"))
        let reading = try await play.read("old", "tok")
        #expect(reading.coverage == .full)
        #expect(reading.observations.map(\.lookupID) == ["tok"])
        // One question each, and one whether the silent one is a one-time purchase.
        #expect(reading.requests == 4)
        #expect(
            play.reads.sorted()
                == [FakePlay.product("old"), FakePlay.subscription("old"), FakePlay.subscription("tok")].sorted()
        )
    }

    @Test("99: a one-time purchase is found behind the 410 that its token answers")
    func oneTime() async throws {
        play.on(FakePlay.subscription("p"), 410, PlayFixture.error(410, "purchaseTokenNoLongerValid"))
        play.on(FakePlay.product("p"), 200, PlayFixture.product())
        let reading = try await play.read("p")
        #expect(reading.observations.map(\.kind) == [.oneTime])
        #expect(play.admitted == [.token, .subscriptions, .oneTime])
    }

    @Test("a failure of the second question is no absence")
    func halfAnswered() async throws {
        play.on(FakePlay.subscription("p"), 410, PlayFixture.error(410, "purchaseTokenNoLongerValid"))
        play.on(FakePlay.product("p"), 503)
        let reading = try await play.read("p")
        #expect(reading.coverage == .none)
        #expect(reading.failure == ReadFailure(.unavailable, store: .googlePlay))
    }

    @Test("a failure leaves what else was read, and is never full")
    func partial() async throws {
        play.on(FakePlay.subscription("a"), 503, "")
        play.on(FakePlay.subscription("b"), 200, PlayFixture.subscription("ACTIVE"))
        let reading = try await play.read("a", "b")
        #expect(reading.coverage == .partial)
        #expect(reading.observations.map(\.lookupID) == ["b"])
        #expect(reading.failure == ReadFailure(.unavailable, store: .googlePlay))
    }

    // MARK: Chains

    @Test("42: a chain of five is one purchase with all its names, the middle one never seen before")
    func chain() async throws {
        let tokens = ["e", "d", "c", "b", "a"]
        for (index, token) in tokens.enumerated() {
            let older = index + 1 < tokens.count ? tokens[index + 1] : nil
            let state = index == 0 ? "ACTIVE" : "EXPIRED"
            play.on(FakePlay.subscription(token), 200, linked(state, to: older, order: "GPA.\(token)"))
        }
        let reading = try await play.read("e", known: ["a"])
        #expect(reading.coverage == .full)
        #expect(reading.observations.count == 1)
        #expect(reading.observations.first?.names("purchase_token") == ["a", "b", "c", "d", "e"])
        #expect(reading.observations.first?.names("order_id") == ["GPA.e"])
        #expect(reading.observations.first?.givesAccess == true)
        // "a" is ours by our records: what is behind it was asked for long ago.
        #expect(play.reads == ["e", "d", "c", "b"].map(FakePlay.subscription))
    }

    @Test("42: an older token that is gone ends the walk, and is a name all the same", arguments: [404, 410])
    func chainEnds(_ status: Int) async throws {
        play.on(FakePlay.subscription("c"), 200, linked("ACTIVE", to: "b"))
        play.on(FakePlay.subscription("b"), status, PlayFixture.error(status, "purchaseTokenNoLongerValid"))
        let reading = try await play.read("c")
        #expect(reading.coverage == .full)
        #expect(reading.observations.first?.names("purchase_token") == ["b", "c"])
        // A token that was replaced by a subscription's is no one-time purchase's.
        #expect(play.reads.count == 2)
    }

    @Test("42: a chain in a circle ends, and is one purchase")
    func circle() async throws {
        play.on(FakePlay.subscription("c"), 200, linked("ACTIVE", to: "b"))
        play.on(FakePlay.subscription("b"), 200, linked("EXPIRED", to: "a"))
        play.on(FakePlay.subscription("a"), 200, linked("EXPIRED", to: "c"))
        let reading = try await play.read("c", "a")
        #expect(reading.coverage == .full)
        #expect(reading.observations.map(\.lookupID) == ["c"])
        #expect(reading.observations.first?.names("purchase_token") == ["a", "b", "c"])
        #expect(play.reads.count == 3)
        play.on(FakePlay.subscription("self"), 200, linked("ACTIVE", to: "self"))
        #expect(try await play.read("self").observations.count == 1)
    }

    @Test("42: a chain without an end is followed for sixteen steps, and never fully read")
    func bounded() async throws {
        for index in 0..<40 {
            play.on(
                FakePlay.subscription("t\(index)"),
                200,
                linked(index == 0 ? "ACTIVE" : "EXPIRED", to: "t\(index + 1)")
            )
        }
        let reading = try await play.read("t0")
        #expect(play.reads.count == 17)
        #expect(reading.coverage == .partial)
        // It gives access all the same: what was read is read.
        #expect(reading.observations.first?.givesAccess == true)
        play.on(FakePlay.subscription("u16"), 200, linked("EXPIRED", to: nil))
        for index in 0..<16 {
            play.on(
                FakePlay.subscription("u\(index)"),
                200,
                linked(index == 0 ? "ACTIVE" : "EXPIRED", to: "u\(index + 1)")
            )
        }
        let whole = try await play.read("u0")
        #expect(whole.coverage == .full)
        #expect(whole.observations.first?.names("purchase_token").count == 17)
    }

    @Test(
        "41: two tokens of one chain are one purchase, the newer one's",
        arguments: [["new", "old"], ["old", "new"]]
    )
    func twoOfOne(_ tokens: [String]) async throws {
        play.on(FakePlay.subscription("new"), 200, linked("ACTIVE", to: "old"))
        // A read that lags behind: the older one gives nothing, whatever it says.
        play.on(FakePlay.subscription("old"), 200, linked("ACTIVE", to: nil, order: "GPA.0"))
        let query = GooglePlayQuery(tokens: tokens, known: ["old"], askedAt: PlayFixture.now)
        let reading = try await play.client().read(query)
        #expect(reading.observations.map(\.lookupID) == ["new"])
        #expect(reading.observations.first?.names("purchase_token") == ["new", "old"])
        #expect(play.reads.count == 2)
    }

    @Test("a purchase made in Play and the expired one before it are one purchase")
    func outOfApp() async throws {
        let context = #"{"expiredPurchaseToken":"old"}"#
        play.on(
            FakePlay.subscription("new"),
            200,
            PlayFixture.subscription("ACTIVE", ["outOfAppPurchaseContext": context])
        )
        play.on(FakePlay.subscription("old"), 200, PlayFixture.subscription("EXPIRED"))
        let reading = try await play.read("old", "new")
        #expect(reading.observations.map(\.lookupID) == ["new"])
        #expect(reading.observations.first?.names("purchase_token") == ["new", "old"])
    }

    @Test("41: a purchase whose older token could not be read is nobody's for now")
    func unreadLink() async throws {
        play.on(FakePlay.subscription("c"), 200, linked("ACTIVE", to: "b"))
        play.on(FakePlay.subscription("b"), 503)
        let reading = try await play.read("c")
        #expect(reading.coverage == .partial)
        #expect(reading.observations.isEmpty)
        #expect(reading.failure?.code == .unavailable)
        // Where the token is the user's own by our records, its chain is known as well.
        let own = try await play.read("c", known: ["b"])
        #expect(own.coverage == .full)
        #expect(own.observations.count == 1)
        let known = try await play.read("c", known: ["c"])
        #expect(known.observations.count == 1)
        #expect(known.requests == 2)
    }

    @Test(
        "49: a pending purchase leaves the one that it would replace as it is",
        arguments: ["PENDING", "PENDING_PURCHASE_CANCELED", "NEVER_HEARD_OF"]
    )
    func pending(_ state: String) async throws {
        play.on(FakePlay.subscription("new"), 200, linked(state, to: "old", order: "GPA.new"))
        play.on(FakePlay.subscription("old"), 200, linked("ACTIVE", to: "older", order: "GPA.old"))
        play.on(FakePlay.subscription("older"), 200, linked("EXPIRED", to: nil))
        let reading = try await play.read("new", known: ["old"])
        #expect(reading.coverage == .full)
        let old = try #require(reading.observations.first { $0.lookupID == "old" })
        #expect(old.givesAccess == true)
        #expect(old.names("purchase_token") == ["old", "older"])
        let new = reading.observations.first { $0.lookupID == "new" }
        if state == "PENDING_PURCHASE_CANCELED" {
            #expect(new == nil)
        } else {
            #expect(new?.givesAccess == false)
            #expect(new?.names("purchase_token") == ["new"])
        }
    }

    // MARK: One-time purchases

    @Test(
        "a one-time purchase says what it is",
        arguments: [
            ([:], "owned", false),
            (
                ["purchaseStateContext": #"{"purchaseState":"PENDING"}"#, "purchaseCompletionTime": nil], "incomplete",
                true
            ),
            (["purchaseStateContext": #"{"purchaseState":"CANCELLED"}"#], "refunded", false),
            (["purchaseStateContext": #"{"purchaseState":"LENT"}"#], "LENT", false),
            (["purchaseStateContext": "{}"], "PURCHASE_STATE_UNSPECIFIED", false),
        ] as [(PlayFixture.Changes, String, Bool)]
    )
    func product(_ changes: PlayFixture.Changes, _ status: String, _ isPending: Bool) async throws {
        play.on(FakePlay.product("p"), 200, PlayFixture.product(changes))
        let observation = try #require(try await play.read("p").observations.first)
        #expect(observation.kind == .oneTime)
        #expect(observation.source == .googlePlay)
        #expect(observation.status.raw == status)
        #expect(observation.givesAccess == nil)
        #expect(observation.isPaymentPending == isPending)
        #expect(observation.entitlements == ["google_play:lifetime"])
        #expect(observation.productID == "lifetime")
        #expect(observation.names("purchase_token") == ["p"])
        #expect(observation.names("order_id") == ["GPA.5555-6666-7777-88888"])
        #expect(observation.environment == "production")
        #expect(observation.boughtAt == (isPending ? nil : Instant(microseconds: 1_772_352_000_000_000)))
        #expect(observation.periodStartsAt == observation.boughtAt)
        #expect(observation.lookupID == "p")
        #expect(observation.payloadHash == observation.factsHash)
    }

    @Test("what is used up is not there; the rest of the purchase is")
    func consumed() async throws {
        let used = #"{"productId":"coins","productOfferDetails":{"consumptionState":"CONSUMPTION_STATE_CONSUMED"}}"#
        play.on(FakePlay.product("p"), 200, PlayFixture.product(["productLineItem": "[\(used)]"]))
        #expect(try await play.read("p").observations.isEmpty)
        play.on(FakePlay.product("q"), 200, PlayFixture.product(["productLineItem": #"[\#(used),{"productId":"x"}]"#]))
        #expect(try await play.read("q").observations.first?.entitlements == ["google_play:x"])
    }

    @Test("a one-time purchase waits for its acknowledgement as well, testers' for three minutes")
    func productAcknowledgement() async throws {
        let waits: PlayFixture.Changes = [
            "acknowledgementState": #""ACKNOWLEDGEMENT_STATE_PENDING""#, "obfuscatedExternalAccountId": #""acc""#,
        ]
        play.on(FakePlay.product("p"), 200, PlayFixture.product(waits))
        let bought = Instant(microseconds: 1_772_352_000_000_000)
        let observation = try #require(try await play.read("p").observations.first)
        #expect(
            observation.acknowledgement
                == Acknowledgement(
                    productID: "lifetime",
                    token: "p",
                    kind: .oneTime,
                    deadline: bought + .seconds(259_200)
                )
        )
        #expect(observation.accountID == "acc")
        let tester = waits.merging(["testPurchaseContext": #"{"fopType":"TEST"}"#]) { $1 }
        play.on(FakePlay.product("t"), 200, PlayFixture.product(tester))
        let test = try #require(try await play.read("t").observations.first)
        #expect(test.environment == "sandbox")
        #expect(test.acknowledgement?.deadline == bought + .seconds(180))
        let unpaid = waits.merging(["purchaseStateContext": #"{"purchaseState":"PENDING"}"#]) { $1 }
        play.on(FakePlay.product("u"), 200, PlayFixture.product(unpaid))
        #expect(try await play.read("u").observations.first?.acknowledgement == nil)
    }
}
