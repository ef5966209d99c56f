import Foundation
import Postgres
import TestSupport
import Testing

/// What the clients for apps do without an answer: they try again as the table says, and show what they have on disk.
struct ClientOutageTests {
    private static let scenario = """
        customers:
          - {id: ann, subscriptions: [{state: active, ends: +20d}]}
          - {id: ben, subscriptions: [{state: active, ends: +1d}]}
          - {id: slow, state: active}
        faults: [{customer: slow, status: 503, backoff: 90s}]

        """

    private static func with(_ body: @Sendable (EndpointSite) async throws -> Void) async throws {
        try await EndpointSite.with(
            scenario: scenario,
            users: ["ann", "ben", "cem", "slow"],
            settings: ["HTTP_DATABASE_WAIT_SECONDS": "0", "HTTP_PORT": "\(freeLoopbackPort())"],
            body
        )
    }

    @Test(arguments: AppClient.few)
    func `A restore lives through 503s and refused connections, and ends`(client: AppClient) async throws {
        try await Self.with { endpoints in
            let relay = Relay(to: try await PrivatePostgres.shared.port)
            defer { relay.end() }
            let direct = try #require(endpoints.site.settings["DATABASE_URL"])
            let address = direct.replacing("port=\(try await PrivatePostgres.shared.port)", with: "port=\(relay.port)")
            try #require(address != direct)
            let endpoint = try await endpoints.open(settings: ["DATABASE_URL": address])
            var ann = try await client.device("ann", at: endpoint, of: endpoints)
            ann.jitter = 0
            #expect(try await ann.last("entitlement").type == "free")

            relay.turn(.cut)
            let asked = try await ann.start("restore", "[]")
            let told = try await Self.pause(of: asked)
            // As `Retry-After` says, to the second.
            #expect(told >= 1 && told == told.rounded(), "\(told)")
            relay.turn(.fair)
            try await Self.expectRestored(asked)
            try await endpoint.close()

            let ben = try await client.device("ben", at: endpoint, of: endpoints)
            let refused = try await ben.start("restore", "[]")
            let own = try await Self.pause(of: refused)
            #expect((1...1.25).contains(own) && own != own.rounded(), "\(own)")
            let again = try await endpoints.open()
            try await Self.expectRestored(refused)
            #expect(try await endpoints.jobs() == 2, "all tries of each were one request")
            try await again.close()
        }
    }

    /// The first pause that an app makes before it tries again, in seconds.
    private static func pause(of app: Program) async throws -> Double {
        try await app.find("its first pause") {
            try AppClient.Device.lines(app.out).first { $0.step == "waiting" }?.seconds
        }
    }

    private static func expectRestored(_ app: Program) async throws {
        let said = try await AppClient.Device.end(of: app)
        #expect(said.last?.ending == "unlocked" && said.last?.outcome == "restored", "\(said)")
    }

    @Test(arguments: AppClient.few)
    func `Without a connection the last answer is shown until its end, three days at most`(client: AppClient)
        async throws
    {
        try await Self.with { endpoints in
            let endpoint = try await endpoints.open()
            let ann = try await client.device("ann", at: endpoint, of: endpoints)
            let ben = try await client.device("ben", at: endpoint, of: endpoints)
            var cem = try await client.device("cem", at: endpoint, of: endpoints)
            for device in [ann, ben] { #expect(try await device.last("restore", "[]").ending == "unlocked") }
            #expect(try await cem.last("entitlement").type == "free")

            // A token that has expired is renewed once; one that is not taken either sends to sign-in.
            cem.freshToken = cem.token
            cem.token = "expired"
            #expect(try await cem.last("entitlement").type == "free")
            cem.freshToken = "expired"
            #expect(try await cem.last("entitlement").failure == "sign_in")
            try await endpoint.close()

            let (hour, day) = (3_600.0, 86_400.0)
            for (device, ahead, type) in [
                (ann, 0, "subscriber"), (ann, 2 * day, "subscriber"), (ann, 3 * day - 60, "subscriber"),
                (ann, 3 * day + 60, "none"), (ann, -hour, "none"), (ben, day - hour, "subscriber"),
                (ben, day + hour, "none"), (cem, day, "free"), (cem, 4 * day, "none"),
            ] {
                let last = try await device.ahead(ahead).last("last")
                #expect(last.type == type, "\(device.user) after \(ahead) s: \(last)")
            }
            let shown = try await ann.ahead(2 * day).last("entitlement")
            #expect(shown.type == "subscriber" && shown.isFromDisk == true, "\(shown)")
            let over = try await ann.ahead(4 * day).last("entitlement")
            #expect(over.failure == "no_answer", "\(over)")
            var other = cem
            other.file = ann.file
            #expect(try await other.last("last").type == "none", "another user's answer")
            try Data("{".utf8).write(to: URL(fileURLWithPath: ann.file))
            #expect(try await ann.last("last").type == "none", "a file that is half written")
            let tapped = try await ben.last("restore", "[]")
            #expect(tapped.ending == "tryAgain" && tapped.message == nil, "\(tapped)")
        }
    }

    @Test(arguments: AppClient.few)
    func `A restore that takes longer than 20 s lets the person go on, and still ends`(client: AppClient) async throws {
        try await Self.with { endpoints in
            let endpoint = try await endpoints.open()
            let slow = try await client.device("slow", at: endpoint, of: endpoints)
            let waiting = try await slow.start("restore", "[]")
            let told = try await waiting.find("that it is still being checked") {
                try AppClient.Device.lines(waiting.out).first { $0.step == "still_checking" }
            }
            #expect(told.message?.isEmpty == false, "\(told)")
            try await endpoints.simulator.heal()
            // A second tap makes the job due now.
            _ = try await endpoints.caller("slow", at: endpoint).restore()
            let said = try await AppClient.Device.end(of: waiting)
            #expect(said.last?.ending == "unlocked" && said.last?.outcome == "restored", "\(said)")
            try await endpoint.close()
        }
    }
}
