import Foundation
import TestSupport
import Testing

/// What the clients for apps do after each status, as the table for apps' developers has it.
struct ClientRetryTests {
    private struct Case {
        var answers: [String]
        /// What is shown: an ending, or a failure.
        var shown: String
        /// How often the restore was sent.
        var sent: Int
        /// In seconds, each up to a quarter longer.
        var pauses: [Double] = []
    }

    private static let cases =
        [
            Case(answers: ["202"], shown: "unlocked", sent: 1),
            Case(answers: ["500", "502", "504", "408", "202"], shown: "unlocked", sent: 5, pauses: [1, 2, 4, 8]),
            Case(answers: ["503:7", "429:60", "503", "202"], shown: "unlocked", sent: 4, pauses: [7, 60, 4]),
            Case(answers: Array(repeating: "500", count: 6), shown: "tryAgain", sent: 5, pauses: [1, 2, 4, 8]),
            Case(answers: ["520", "599", "202"], shown: "unlocked", sent: 3, pauses: [1, 2]),
            Case(answers: ["503:0", "429:0.2", "202"], shown: "unlocked", sent: 3, pauses: [1, 1]),
            Case(answers: ["503:61", "202"], shown: "tryAgain", sent: 1),
            Case(answers: ["429:3600", "202"], shown: "tryAgain", sent: 1),
            Case(answers: ["401", "202"], shown: "unlocked", sent: 2),
            Case(answers: ["500", "401", "202"], shown: "unlocked", sent: 3, pauses: [1]),
            Case(answers: ["401", "500", "202"], shown: "unlocked", sent: 3, pauses: [1]),
            Case(answers: ["401", "401", "202"], shown: "sign_in", sent: 2),
            Case(answers: ["401", "500", "401", "202"], shown: "sign_in", sent: 3, pauses: [1]),
            Case(answers: ["403-page", "202"], shown: "refused", sent: 1),
            Case(answers: ["page", "202"], shown: "tryAgain", sent: 1),
        ]
        + ["400", "404", "405", "409", "413", "415", "422"].map {
            Case(answers: [$0, "202"], shown: "refused", sent: 1)
        }

    @Test(arguments: AppClient.run)
    func `Each status is followed by what the table says, under one idempotency key`(client: AppClient) async throws {
        let folder = try Files.makeTemporaryDirectory()
        defer { try? FileManager.default.removeItem(atPath: folder) }
        for one in Self.cases {
            let (service, device) = try await Self.device(client, before: one.answers, in: folder)
            let said = try await device.call(["restore", "[]"])
            let shown = try #require(said.last)
            #expect((shown.ending ?? shown.failure) == one.shown, "\(one): \(shown)")
            #expect(one.shown != "refused" || one.answers[0].hasSuffix("page") || shown.field == "here", "\(shown)")
            let pauses = said.compactMap(\.seconds)
            #expect(pauses.count == one.pauses.count, "\(one): \(pauses)")
            for (pause, told) in zip(pauses, one.pauses) {
                #expect((told...told * 1.25).contains(pause), "\(one): \(pauses)")
            }
            let requests = service.out.split(separator: "\n").dropFirst().filter { $0.contains("/restores") }
                .map { $0.split(separator: " ") }
            #expect(requests.count == one.sent, "\(one): \(requests)")
            #expect(Set(requests.map { $0[2] }).count == 1 && requests.first?[2] != "None", "\(requests)")
            // A fresh token is asked for once; the next request takes what there is then.
            let refused = one.answers.firstIndex(of: "401") ?? .max - 1
            for (number, request) in requests.enumerated() {
                #expect(request[4] == (number == refused + 1 ? "fresh" : "first"), "\(one): \(requests)")
            }
        }
    }

    @Test(arguments: AppClient.few)
    func `A restore that was taken is still being checked where it can't be asked for`(client: AppClient) async throws {
        let folder = try Files.makeTemporaryDirectory()
        defer { try? FileManager.default.removeItem(atPath: folder) }
        let answers = ["queued"] + Array(repeating: "502", count: 5)
        let (service, device) = try await Self.device(client, before: answers, in: folder)
        defer { withExtendedLifetime(service) {} }
        let shown = try #require(try await device.call(["restore", "[]"]).last)
        #expect(shown.ending == "none" && shown.reference == "R-7K3Q-92" && shown.failure == nil, "\(shown)")
    }

    @Test(arguments: AppClient.few)
    func `A proxy's page in place of what the user has is no answer`(client: AppClient) async throws {
        let folder = try Files.makeTemporaryDirectory()
        defer { try? FileManager.default.removeItem(atPath: folder) }
        for (answers, failure) in [
            (["403-page"], "no_answer"), (["page"], "no_answer"), (["401-page", "401-page"], "no_answer"),
            (["520", "403-page"], "no_answer"), (["400"], "refused"), (["401", "401"], "sign_in"),
        ] {
            let (service, device) = try await Self.device(client, before: answers, in: folder)
            // It ends with its last use.
            defer { withExtendedLifetime(service) {} }
            let shown = try #require(try await device.call(["entitlement"]).last)
            #expect(shown.failure == failure, "\(answers): \(shown)")
        }
    }

    @Test(arguments: AppClient.few)
    func `An answer that comes after the sign-out is not kept`(client: AppClient) async throws {
        let folder = try Files.makeTemporaryDirectory()
        defer { try? FileManager.default.removeItem(atPath: folder) }
        let (service, device) = try await Self.device(client, before: ["late", "late"], in: folder)
        defer { withExtendedLifetime(service) {} }
        #expect(try await device.call(["sign-out"]).map(\.type) == ["subscriber", "none"])
        #expect(try await device.last("entitlement").type == "subscriber")
        #expect(try await device.last("last").type == "subscriber")
    }

    /// A device before a service that answers as it is given.
    private static func device(_ client: AppClient, before answers: [String], in folder: String) async throws
        -> (service: Program, device: AppClient.Device)
    {
        let service = try await Program(
            ["/usr/bin/env", "python3", Paths.fixtures + "/clients/answers.py"] + answers,
            environment: Site.environment([:])
        )
        let port = try await service.find("its port") {
            service.out.contains("\n") ? service.out.split(separator: "\n").first : nil
        }
        let device = AppClient.Device(
            client: client,
            api: "http://127.0.0.1:\(port)/v1",
            user: "ann",
            token: "first",
            freshToken: "fresh",
            file: folder + "/access.json",
            pause: 0.001
        )
        return (service, device)
    }
}
