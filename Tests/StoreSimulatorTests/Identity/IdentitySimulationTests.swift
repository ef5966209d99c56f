import Crypto
import CryptoExtras
import Foundation
import HTTPTypes
import Testing

@testable import StoreSimulator

/// The simulated identity providers: their key sets, and what their tokens can be made to say.
@Suite struct IdentitySimulationTests {
    private static let account = "pubsub-push@demo-project.iam.gserviceaccount.com"
    private static let audience = "https://app.example.com/webhooks/google-play"

    private func keySet(_ probe: Probe, _ family: String) async throws -> JSON {
        try await probe.send(.get, "/google-keys/\(family)", authorization: nil).json
    }

    private func names(_ set: JSON) -> [String] { (0..<4).compactMap { set["keys"]?[$0]?["kid"]?.text } }

    private func token(_ probe: Probe, _ path: String, _ body: String) async throws -> SignedToken {
        let answer = try await probe.control(.post, "/identity/\(path)", body)
        #expect(answer.status == 200, "\(body): \(answer.text)")
        return try SignedToken(try #require(try answer.json["token"]?.text))
    }

    private func idToken(_ probe: Probe, _ members: String = "") async throws -> SignedToken {
        let rest = members.isEmpty ? "" : ",\(members)"
        return try await token(probe, "firebase-token", #"{"sub":"user-1"\#(rest)}"#)
    }

    // MARK: Keys

    @Test func `each set has the keys of its own tokens`() async throws {
        try await Probe.run { probe in
            for family in ["firebase", "oauth"] {
                let answer = try await probe.send(.get, "/google-keys/\(family)", authorization: nil)
                #expect(answer.status == 200)
                #expect(answer.header(.cacheControl) == "public, max-age=21600, must-revalidate")
                let set = try answer.json
                #expect(names(set) == ["\(family)-key-1"])
                let key = try #require(set["keys"]?[0])
                #expect(key.keys == ["kid", "kty", "alg", "use", "n", "e"])
                #expect(key["kty"]?.text == "RSA" && key["alg"]?.text == "RS256" && key["use"]?.text == "sig")
                #expect(try SignedToken.publicKey(key).keySizeInBits == 2048)
            }
            let firebase = try await keySet(probe, "firebase")
            let oauth = try await keySet(probe, "oauth")
            #expect(firebase["keys"]?[0]?["n"] != oauth["keys"]?[0]?["n"])
            let user = try await idToken(probe)
            let push = try await token(probe, "push-token", "{}")
            #expect(try user.isSigned(by: firebase) && push.isSigned(by: oauth))
            let other = try SignedToken.publicKey(try #require(oauth["keys"]?[0]))
            #expect(!user.isSigned(with: other))
            #expect(try await probe.send(.post, "/google-keys/firebase").status == 405)
            #expect(try await probe.send(.get, "/google-keys/other").status == 404)
            let counts = try await probe.control(.get, "/requests").json["by_path"]
            #expect(counts?["GET /google-keys/oauth"]?.integer == 2)
        }
    }

    @Test func `the next keys sign, and the sets show what they are told to`() async throws {
        try await Probe.run { probe in
            let first = try await idToken(probe)
            #expect(try await probe.control(.post, "/identity/rotate").status == 200)
            let both = try await keySet(probe, "firebase")
            #expect(names(both) == ["firebase-key-1", "firebase-key-2"])
            #expect(names(try await keySet(probe, "oauth")) == ["oauth-key-1", "oauth-key-2"])
            #expect(both["keys"]?[0]?["n"] != both["keys"]?[1]?["n"])
            let second = try await idToken(probe)
            #expect(second.header["kid"]?.text == "firebase-key-2")
            #expect(try first.isSigned(by: both) && second.isSigned(by: both))

            #expect(try await probe.control(.post, "/identity/rotate", #"{"published":"old"}"#).status == 200)
            let old = try await keySet(probe, "firebase")
            let third = try await idToken(probe)
            #expect(names(old) == ["firebase-key-2"] && third.header["kid"]?.text == "firebase-key-3")
            #expect(try second.isSigned(by: old) && !third.isSigned(by: old))

            #expect(try await probe.control(.post, "/identity/rotate", #"{"published":"new"}"#).status == 200)
            let new = try await keySet(probe, "firebase")
            let fourth = try await idToken(probe)
            #expect(names(new) == ["firebase-key-4"])
            #expect(try fourth.isSigned(by: new) && !third.isSigned(by: new))
            // A withdrawn key may sign on.
            let late = try await idToken(probe, #""kid":"firebase-key-3""#)
            #expect(try late.header["kid"]?.text == "firebase-key-3" && !late.isSigned(by: new))
            #expect(late.signature == third.signature)
        }
    }

    @Test func `sets say how long they may be kept, or nothing of it`() async throws {
        try await Probe.run { probe in
            for (body, header) in [
                (#"{"seconds":300}"#, "public, max-age=300, must-revalidate" as String?), ("{}", nil),
                (#"{"seconds":0}"#, "public, max-age=0, must-revalidate"),
            ] {
                #expect(try await probe.control(.put, "/identity/max-age", body).status == 200)
                let answer = try await probe.send(.get, "/google-keys/oauth", authorization: nil)
                #expect(answer.header(.cacheControl) == header, "\(body)")
            }
        }
    }

    @Test func `faults strike the key sets`() async throws {
        let faults = """
            faults:
              - {endpoint: identity.firebase_keys, status: 503, times: 1}
              - {endpoint: identity.oauth_keys, status: 429, backoff: 3s}
            """
        try await Probe.run(faults) { probe in
            #expect(try await probe.send(.get, "/google-keys/firebase").status == 503)
            #expect(try await probe.send(.get, "/google-keys/firebase").status == 200)
            let answer = try await probe.send(.get, "/google-keys/oauth")
            #expect(answer.status == 429 && answer.header(.retryAfter) == "3")
            #expect(try answer.json["error"]?["code"]?.integer == 429)
        }
    }

    // MARK: Tokens

    @Test func `an ID token is of the scenario's project and of now, and may say anything else`() async throws {
        try await Probe.run("firebase: {project: other-project}") { probe in
            let now = probe.nowMs / 1000
            let claims = try await idToken(probe).claims
            #expect(claims["iss"]?.text == "https://securetoken.google.com/other-project")
            #expect(claims["aud"]?.text == "other-project")
            #expect(claims["sub"]?.text == "user-1" && claims["user_id"]?.text == "user-1")
            #expect(claims["iat"]?.integer == now && claims["exp"]?.integer == now + 3600)
            #expect(claims["auth_time"]?.integer == now)
            #expect(claims["firebase"]?["sign_in_provider"]?.text == "password")
            #expect(claims["firebase"]?["identities"] == .object([:]) && claims["firebase"]?["tenant"] == nil)

            let foreign = try await idToken(probe, #""project":"third""#).claims
            #expect(foreign["iss"]?.text == "https://securetoken.google.com/third")
            #expect(foreign["aud"]?.text == "third")
            let changed = try await idToken(
                probe,
                #""aud":"a","iss":"i","iat":7,"exp":9,"auth_time":5,"provider":"anonymous","tenant":"t""#
            ).claims
            #expect(changed["aud"]?.text == "a" && changed["iss"]?.text == "i")
            #expect(changed["iat"]?.integer == 7 && changed["exp"]?.integer == 9)
            #expect(changed["auth_time"]?.integer == 5)
            #expect(changed["firebase"]?["sign_in_provider"]?.text == "anonymous")
            #expect(changed["firebase"]?["tenant"]?.text == "t")
            #expect(try await idToken(probe, #""iat":1000"#).claims["exp"]?.integer == 4600)
            #expect(try await token(probe, "firebase-token", #"{"sub":""}"#).claims["sub"]?.text?.isEmpty == true)

            _ = try await probe.control(.post, "/clock", #"{"shift":"+1d"}"#)
            #expect(try await idToken(probe).claims["iat"]?.integer == now + 86_400)
        }
    }

    @Test func `a token can be signed wrongly in every way`() async throws {
        try await Probe.run { probe in
            let firebase = try await keySet(probe, "firebase")
            let key = try SignedToken.publicKey(try #require(firebase["keys"]?[0]))
            let good = try await idToken(probe)
            #expect(good.header["alg"]?.text == "RS256" && good.header["typ"]?.text == "JWT")
            #expect(good.header["kid"]?.text == "firebase-key-1" && good.header.keys.count == 3)
            #expect(good.isSigned(with: key))

            let unknown = try await idToken(probe, #""kid":"nobody""#)
            #expect(unknown.header["kid"]?.text == "nobody" && unknown.isSigned(with: key))
            let nameless = try await idToken(probe, #""kid": "" "#)
            #expect(nameless.header["kid"] == nil && nameless.isSigned(with: key))
            let early = try await idToken(probe, #""kid":"firebase-key-2""#)
            #expect(early.header["kid"]?.text == "firebase-key-2" && !early.isSigned(with: key))

            let tampered = try await idToken(probe, #""tampered":true"#)
            #expect(tampered.signature.count == 256 && !tampered.isSigned(with: key))
            let differences = zip(tampered.signature, good.signature).filter { $0 != $1 }
            #expect(differences.count == 1)
            let unsigned = try await idToken(probe, #""alg":"none""#)
            #expect(unsigned.header["alg"]?.text == "none" && unsigned.signature.isEmpty)

            let shared = try await idToken(probe, #""alg":"HS256""#)
            #expect(shared.header["alg"]?.text == "HS256" && shared.signature.count == 32)
        }
    }

    @Test func `a text signed with the public key as a secret verifies with it`() throws {
        let key = try _RSA.Signing.PrivateKey(keySize: .bits2048)
        let text = try SignedText.write(Array("{}".utf8), SignedText.Head(algorithm: .hs256), key: key)
        let parts = text.split(separator: ".")
        let isValid = HMAC<SHA256>.isValidAuthenticationCode(
            try SignedToken.bytes(parts[2]),
            authenticating: Data("\(parts[0]).\(parts[1])".utf8),
            using: SymmetricKey(data: Data(key.publicKey.pemRepresentation.utf8))
        )
        #expect(isValid)
        #expect(try SignedToken(text).header == .object(["alg": .string("HS256")]))
    }

    @Test func `a push's token is of the scenario's subscription and of now, and may say anything else`() async throws {
        try await Probe.run { probe in
            let now = probe.nowMs / 1000
            let claims = try await token(probe, "push-token", "{}").claims
            #expect(claims["iss"]?.text == "https://accounts.google.com")
            #expect(claims["aud"]?.text == Self.audience && claims["email"]?.text == Self.account)
            #expect(claims["email_verified"]?.flag == true && claims["sub"] == claims["azp"])
            #expect(claims["iat"]?.integer == now && claims["exp"]?.integer == now + 3600)

            let body =
                #"{"audience":"a","email":"e@x","email_verified":false,"iss":"i","iat":7,"exp":9,"kid":"k","tampered":true}"#
            let changed = try await token(probe, "push-token", body)
            #expect(changed.claims["aud"]?.text == "a" && changed.claims["email"]?.text == "e@x")
            #expect(changed.claims["email_verified"]?.flag == false && changed.claims["iss"]?.text == "i")
            #expect(changed.claims["iat"]?.integer == 7 && changed.claims["exp"]?.integer == 9)
            let oauth = try await keySet(probe, "oauth")
            let key = try SignedToken.publicKey(try #require(oauth["keys"]?[0]))
            #expect(changed.header["kid"]?.text == "k" && !changed.isSigned(with: key))
            #expect(try await token(probe, "push-token", #"{"alg":"none"}"#).signature.isEmpty)
        }
        try await Probe.run("pubsub: {audience: aud, service_account: me@x}") { probe in
            let claims = try await token(probe, "push-token", "").claims
            #expect(claims["aud"]?.text == "aud" && claims["email"]?.text == "me@x")
        }
    }

    // MARK: Control

    @Test(arguments: [
        ("POST", "firebase-token", "{}", 400, "sub is missing"),
        ("POST", "firebase-token", #"{"sub":"u","user":"v"}"#, 400, "user is no known key"),
        ("POST", "firebase-token", #"{"sub":7}"#, 400, "sub has the wrong type; give it a text"),
        ("POST", "firebase-token", #"{"sub":"u","alg":"RS512"}"#, 400, "use one of RS256, HS256, none"),
        ("POST", "firebase-token", #"{"sub":"u","iat":"now"}"#, 400, "iat has the wrong type; give it a whole number"),
        ("POST", "push-token", #"{"sub":"u"}"#, 400, "sub is no known key"),
        ("POST", "push-token", "x", 400, "scenario:"),
        ("POST", "rotate", #"{"published":"none"}"#, 400, "use one of both, new, old"),
        ("PUT", "max-age", #"{"seconds":-1}"#, 400, "seconds is -1; use 0 to"),
        ("PUT", "max-age", #"{"second":1}"#, 400, "second is no known key"),
        ("GET", "firebase-token", "", 404, "no such control path"),
        ("POST", "max-age", "{}", 404, "no such control path"),
    ])
    func `a request that cannot be carried out says why`(
        method: String,
        path: String,
        body: String,
        status: Int,
        message: String
    ) async throws {
        try await Probe.run { probe in
            let method = try #require(HTTPRequest.Method(rawValue: method))
            let answer = try await probe.control(method, "/identity/\(path)", body)
            #expect(answer.status == status)
            #expect(try answer.json["error"]?.text?.contains(message) == true, "\(answer.text)")
        }
    }

    @Test(arguments: [
        ("firebase: {projct: p}", "firebase.projct is no known key; use one of project"),
        ("pubsub: {account: a}", "pubsub.account is no known key; use one of audience, service_account"),
        ("pubsub: {audience: [a]}", "pubsub.audience has the wrong type"),
    ])
    func `a mistake in a scenario is named`(yaml: String, message: String) {
        let error = #expect(throws: ScenarioError.self) { try Scenario(yaml: yaml) }
        #expect(error?.description.contains(message) == true, "\(error?.description ?? "")")
    }

    @Test func `what is encoded is decoded again`() throws {
        let scenario = try Scenario(yaml: "firebase: {project: p}\npubsub: {audience: a, service_account: s@x}")
        let again = try Scenario.decode(json: JSONEncoder().encode(scenario))
        #expect(again.firebase == scenario.firebase && again.pubSub == scenario.pubSub)
        #expect(again.firebase.project == "p" && again.pubSub.serviceAccount == "s@x")
    }

    @Test func `the guide tells every word`() {
        let words =
            FirebaseScenario.fields.map(\.name) + PubSubScenario.fields.map(\.name)
            + FirebaseTokenRequest.fields.map(\.name)
            + PushTokenRequest.fields.map(\.name) + TokenAlgorithm.allCases.map(\.rawValue)
            + PublishedKeys.allCases.map(\.rawValue) + IdentitySimulation.endpoints
        for word in words { #expect(IdentitySimulation.guide.contains(word), "\(word) is missing") }
    }

    // MARK: Files

    @Test func `files name the key sets, and hold tokens of the scenario's users`() throws {
        let folder = FileManager.default.temporaryDirectory.appending(path: "identity-\(UUID())")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        let yaml = """
            firebase: {project: p1}
            pubsub: {audience: a}
            customers: [{id: ann, aliases: ["$RCAnonymousID:1", ann2]}, {id: "gen-003"}]
            generate:
              - {id: "gen-{n:3}", count: 1000, aliases: ["old-{n}"]}
              - {id: "few-{n}", from: 7, count: 2}
            """
        let simulator = try StoreSimulator(scenario: Scenario(yaml: yaml), logger: Probe.quiet)
        try simulator.writeFiles(to: folder.path, port: 4711)
        let settings = try String(contentsOf: folder.appending(path: "stores.env"), encoding: .utf8)
            .split(separator: "\n")
        for line in [
            "REVENUECAT_BASE_URL=http://127.0.0.1:4711/v2", "REVENUECAT_PROJECT_ID=proj0a1b2c3d",
            "FIREBASE_PROJECT_ID=p1", "FIREBASE_KEYS_URL=http://127.0.0.1:4711/google-keys/firebase",
            "GOOGLE_KEYS_URL=http://127.0.0.1:4711/google-keys/oauth", "PUBSUB_AUDIENCE=a",
            "PUBSUB_SERVICE_ACCOUNT=\(Self.account)",
            "REVENUECAT_WEBHOOK_AUTHORIZATION=\(StoreSimulator.revenueCatWebhookAuthorization)",
            "REVENUECAT_WEBHOOK_SECRET=\(StoreSimulator.revenueCatWebhookSecret)",
        ] { #expect(settings.contains(line[...]), "\(line)") }
        let text = try String(contentsOf: folder.appending(path: "tokens.tsv"), encoding: .utf8)
        let lines: [[Substring]] = text.split(separator: "\n").map { $0.split(separator: "\t") }
        let users = lines.map { String($0[0]) }
        // Twenty of each pattern, of which one is listed as well.
        #expect(users.prefix(4) == ["ann", "ann2", "gen-003", "gen-001"])
        #expect(users.count == 3 + 19 + 20 + 2)
        #expect(users.suffix(3) == ["old-20", "few-7", "few-8"])
        let answer = simulator.answer(method: "GET", target: "/google-keys/firebase")
        let set = try JSON(String(decoding: answer.body, as: UTF8.self))
        for line in [lines[0], lines[40]] {
            let token = try SignedToken(String(line[1]))
            #expect(token.claims["sub"]?.text == String(line[0]) && token.claims["aud"]?.text == "p1")
            #expect(try token.isSigned(by: set))
        }
    }
}
