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
        /// In seconds, each up to a quarter longer where the client chose it.
        var pauses: [Double] = []
    }

    private static let cases =
        [
            Case(answers: ["202"], shown: "unlocked", sent: 1),
            Case(answers: ["500", "502", "504", "408", "202"], shown: "unlocked", sent: 5, pauses: [1, 2, 4, 8]),
            Case(answers: ["503:7", "429:60", "503", "202"], shown: "unlocked", sent: 4, pauses: [7, 60, 4]),
            Case(answers: Array(repeating: "500", count: 6), shown: "tryAgain", sent: 5, pauses: [1, 2, 4, 8]),
            Case(answers: ["503:61", "202"], shown: "tryAgain", sent: 1),
            Case(answers: ["429:3600", "202"], shown: "tryAgain", sent: 1),
            Case(answers: ["401", "202"], shown: "unlocked", sent: 2),
            Case(answers: ["500", "401", "202"], shown: "unlocked", sent: 3, pauses: [1]),
            Case(answers: ["401", "401", "202"], shown: "sign_in", sent: 2),
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
            let service = try await Program(
                ["/usr/bin/env", "python3", Paths.fixtures + "/clients/answers.py"] + one.answers,
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
            let said = try await device.call(["restore", "[]"])
            let shown = try #require(said.last)
            #expect((shown.ending ?? shown.failure) == one.shown, "\(one): \(shown)")
            #expect(one.shown != "refused" || shown.field == "here", "\(shown)")
            let pauses = said.compactMap(\.seconds)
            #expect(pauses.count == one.pauses.count, "\(one): \(pauses)")
            for (number, (pause, told)) in zip(pauses, one.pauses).enumerated() {
                let isAsked = one.answers[number].contains(":")
                #expect(isAsked ? pause == told : (told...told * 1.25).contains(pause), "\(one): \(pauses)")
            }
            let requests = service.out.split(separator: "\n").dropFirst().filter { $0.contains("/restores") }
                .map { $0.split(separator: " ") }
            #expect(requests.count == one.sent, "\(one): \(requests)")
            #expect(Set(requests.map { $0[2] }).count == 1 && requests.first?[2] != "None", "\(requests)")
            let refused = one.answers.firstIndex(of: "401")
            for (number, request) in requests.enumerated() {
                #expect(request[4] == (number > refused ?? .max ? "fresh" : "first"), "\(one): \(requests)")
            }
        }
    }
}
