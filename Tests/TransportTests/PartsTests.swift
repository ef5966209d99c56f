import CLibCurl
import HTTPTypes
import Metrics
import MetricsTestKit
import TestSupport
import Testing

@testable import Transport

struct WaitingLineTests {
    @Test func `members leave in order, those from the middle too`() {
        var line = WaitingLine<Int>()
        let tickets = (0..<6).map { line.append($0) }
        #expect(line.remove(tickets[2]) == 2)
        #expect(line.remove(tickets[2]) == nil)
        #expect(line.popFirst() == 0)
        #expect(line.remove(tickets[0]) == nil)
        #expect(line.remove(tickets[5]) == 5)
        #expect(line.count == 3)
        #expect([line.popFirst(), line.popFirst(), line.popFirst(), line.popFirst()] == [1, 3, 4, nil])
        #expect(line.isEmpty)
    }

    @Test(arguments: 0..<20 as Range<UInt64>)
    func `any order of coming and going agrees with a plain array`(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        var line = WaitingLine<Int>()
        var model: [(ticket: Int, value: Int)] = []
        for step in 0..<3000 {
            switch random.next() % 5 {
            case 0, 1: model.append((line.append(step), step))
            case 2:
                #expect(line.popFirst() == model.first?.value)
                if !model.isEmpty { model.removeFirst() }
            default:
                guard let index = model.indices.randomElement(using: &random) else { continue }
                let member = model.remove(at: index)
                #expect(line.remove(member.ticket) == member.value)
            }
            #expect(line.count == model.count)
        }
    }
}

struct ResponseHeadTests {
    @Test(arguments: [
        ("HTTP/1.1 200 OK\r\n\r\n", "OK", []),
        ("HTTP/2 200 \r\ndate: x\r\n\r\n", "", ["date: x"]),
        ("HTTP/1.1 200\r\nA:b\r\n\r\n", "", ["A: b"]),
        ("HTTP/1.1 200 All is well\nA:\t b\t \nB: c:d\n\n", "All is well", ["A: b", "B: c:d"]),
        ("HTTP/1.1 200 OK\r\nno colon\r\n: nameless\r\nbad name: x\r\nA : x\r\nGood: y\r\n\r\n", "OK", ["Good: y"]),
        ("HTTP/1.1 200 OK\r\n folded into nothing\r\nA: x\r\n\r\n", "OK", ["A: x"]),
        ("HTTP/1.1 200 OK\r\nA: x\r\n\t y\r\n   \r\n z\r\nB: w\r\n\r\n", "OK", ["A: x y z", "B: w"]),
        ("HTTP/1.1 200 OK\r\nA: cut off", "OK", ["A: cut off"]),
        ("", "", []),
    ])
    func `a block is read field by field`(block: String, reason: String, fields: [String]) throws {
        let response = try ResponseHead.parse(status: 200, block: Array(block.utf8))
        #expect(response.status.reasonPhrase == reason)
        #expect(response.headerFields.map { "\($0.name.rawName): \($0.value)" } == fields)
    }

    @Test func `bytes that are no text survive as bytes`() throws {
        let response = try ResponseHead.parse(
            status: 200,
            block: Array("HTTP/1.1 200 OK\r\nA: ".utf8) + [0xe4, 0x0d, 0x0a]
        )
        let bytes = response.headerFields.first?.withUnsafeBytesOfValue { Array($0) }
        #expect(bytes == [0xe4])
    }

    @Test(arguments: [-1, 0, 99, 1000])
    func `a status that is not three digits is no HTTP`(status: Int) throws {
        let error = try #require(throws: TransportError.self) { try ResponseHead.parse(status: status, block: []) }
        #expect(error.code == .protocol_)
    }
}

struct TransportErrorTests {
    @Test(
        arguments: [
            (CURLE_COULDNT_RESOLVE_HOST, .resolve), (CURLE_COULDNT_CONNECT, .connect),
            (CURLE_OPERATION_TIMEDOUT, .connectTimeout), (CURLE_PEER_FAILED_VERIFICATION, .tls),
            (CURLE_SSL_CONNECT_ERROR, .tls), (CURLE_GOT_NOTHING, .reset), (CURLE_PARTIAL_FILE, .reset),
            (CURLE_RECV_ERROR, .reset), (CURLE_SEND_ERROR, .reset), (CURLE_HTTP2_STREAM, .reset),
            (CURLE_HTTP2, .protocol_),
            (CURLE_URL_MALFORMAT, .invalidRequest), (CURLE_WEIRD_SERVER_REPLY, .protocol_),
            (CURLE_BAD_FUNCTION_ARGUMENT, .protocol_),
        ] as [(CURLcode, TransportError.Code)]
    )
    func `libcurl's codes have a meaning`(curl: CURLcode, code: TransportError.Code) {
        let error = TransportError(curl: curl, requestSent: true)
        #expect(error.code == code)
        #expect(error.requestSent)
        #expect(error.curlCode == Int(curl.rawValue))
    }

    @Test func `an error describes itself in one short line`() {
        #expect("\(TransportError(.closed, "gone"))" == "closed: gone")
        #expect("\(TransportError(.reset, "gone", curlCode: 56))" == "reset: gone (curl 56)")
    }
}

struct DurationTests {
    @Test(
        arguments: [
            (.zero, 0), (.nanoseconds(1), 1), (.milliseconds(1), 1), (.microseconds(1001), 2), (.seconds(-1), 0),
            (.seconds(60), 60_000), (.seconds(Int64.max), Int(Int32.max)),
        ] as [(Duration, Int)]
    )
    func `milliseconds are rounded up and bounded`(duration: Duration, milliseconds: Int) {
        #expect(duration.milliseconds == milliseconds)
    }
}

struct TransportMetricsTests {
    @Test func `requests are counted and timed by target and outcome`() async throws {
        let metrics = TestMetrics()
        let server = try TestServer { request, connection in
            connection.write("HTTP/1.1 \(request.target.dropFirst()) X\r\nContent-Length: 0\r\n\r\n")
        }
        let transport = HTTPTransport(logger: quietLogger, metricsFactory: metrics)
        for status in [200, 201, 404, 503] {
            let request = HTTPRequest.to(server.authority, "/\(status)")
            _ = try await transport.send(request, timeout: .seconds(20), metricsLabel: "store")
        }
        _ = try await transport.failure(.to("10.0.0.1"))
        await transport.shutdown()
        await server.stop()

        for (target, outcome, count) in [
            ("store", "2xx", 2), ("store", "4xx", 1), ("store", "5xx", 1), ("other", "invalid_request", 1),
        ] {
            let dimensions = [("target", target), ("outcome", outcome)]
            let counter = try metrics.expectCounter(TransportMetrics.requests, dimensions)
            #expect(counter.totalValue == count)
            let timer = try metrics.expectTimer(TransportMetrics.duration, dimensions)
            #expect(timer.values.count == count)
            #expect(timer.values.allSatisfy { $0 > 0 && $0 < 600_000_000_000 })
        }
    }
}
