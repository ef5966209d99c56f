import Foundation
import TestSupport
import Testing

/// The API beside its own description.
struct DescriptionTests {
    private static let scenario = """
        customers:
          - {id: ann, state: active}
        """

    @Test func `No answer contradicts what the API says of itself, whatever is sent`() async throws {
        try await EndpointSite.with(scenario: Self.scenario, users: ["ann"]) { endpoints in
            let endpoint = try await endpoints.open()
            let token = try await endpoints.token(#"{"sub": "ann"}"#)
            // The tools come from where this machine gets its packages.
            let kept = ProcessInfo.processInfo.environment.filter { name, _ in
                name.hasPrefix("PIP_") || ["HOME", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"].contains(name)
            }
            let checks = try await Program(
                [
                    "/usr/bin/env", "bash", Paths.fixtures + "/schemathesis.sh", "http://127.0.0.1:\(endpoint.port)",
                    token,
                    Paths.folder + "/.build/schemathesis", Profile.isFull ? "100" : "15",
                ],
                environment: Site.environment(kept)
            )
            let ending = try await checks.ending(within: .seconds(600))
            #expect(ending.code == 0, "\(ending)")
            let tested = try #require(ending.out.firstMatch(of: /Selected: (\d+)\/(\d+)\s+Tested: (\d+)/), "\(ending)")
            #expect(tested.1 == tested.2 && tested.2 == tested.3, "every route is tested: \(ending)")
            try await endpoint.close()
        }
    }
}
