import Foundation
import HTTPTypes
import Testing

@testable import Transport

/// Prints requests per second; off unless TRANSPORT_THROUGHPUT is set, and telling only in a release build.
@Suite(.enabled(if: ProcessInfo.processInfo.environment["TRANSPORT_THROUGHPUT"] != nil), .serialized)
struct ThroughputTests {
    @Test(arguments: [1, 64, 256])
    func `requests per second over loopback`(inFlight: Int) async throws {
        let answer =
            Array(
                """
                HTTP/1.1 200 OK\r\nContent-Type: application/json; charset=utf-8\r\nDate: Mon, 01 Jan 2024 00:00:00 GMT\r\n\
                X-Request-Id: 0f8fad5b-d9cb-469f-a165-70867728950e\r\nRevenueCat-Rate-Limit-Current-Usage: 17\r\n\
                Content-Length: 1024\r\n\r\n
                """.utf8
            ) + [UInt8](repeating: 0x7b, count: 1024)
        let external = ProcessInfo.processInfo.environment["TRANSPORT_THROUGHPUT"].flatMap(Int.init).flatMap {
            $0 > 1 ? "127.0.0.1:\($0)" : nil
        }
        let server = try TestServer { connection in
            while connection.skipRequest(), connection.write(answer) {}
        }
        let authority = external ?? server.authority
        let configuration = HTTPTransportConfiguration(
            maxConnectionsPerHost: inFlight,
            maxTotalConnections: inFlight,
            maxInFlight: inFlight
        )
        try await withTransport(to: server, configuration) { transport in
            let total = inFlight == 1 ? 20_000 : 200_000
            let started = ContinuousClock.now
            try await withThrowingTaskGroup(of: Void.self) { group in
                for _ in 0..<inFlight {
                    group.addTask {
                        let request = HTTPRequest.to(
                            authority,
                            "/v2/projects/p/customers/c",
                            [.authorization: "Bearer abcdef"]
                        )
                        for _ in 0..<total / inFlight {
                            let exchange = try await transport.send(request, timeout: .seconds(20))
                            #expect(exchange.response.status == .ok)
                        }
                    }
                }
                try await group.waitForAll()
            }
            let seconds = started.duration(to: .now) / .seconds(1)
            print(
                "transport: \(inFlight) in flight, \(Int(Double(total) / seconds)) requests/s, \(server.accepted) connections"
            )
        }
    }
}
