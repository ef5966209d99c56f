import Foundation
import Logging
import Testing

@testable import Telemetry

/// A pipe to log into.
private struct LogPipe: ~Copyable {
    let reading: CInt
    let writing: CInt

    init() throws {
        var ends: [CInt] = [0, 0]
        try #require(pipe(&ends) == 0)
        (reading, writing) = (ends[0], ends[1])
    }

    deinit {
        close(reading)
        close(writing)
    }

    /// Everything that stands in the pipe, without waiting for more.
    func drain() -> String {
        var bytes: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 65_536)
        var request = pollfd(fd: reading, events: Int16(POLLIN), revents: 0)
        while poll(&request, 1, 0) == 1 {
            let count = read(reading, &chunk, chunk.count)
            guard count > 0 else { break }
            bytes += chunk[..<count]
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// Fills the pipe to the brim.
    func fill() {
        let flags = fcntl(writing, F_GETFL)
        _ = fcntl(writing, F_SETFL, flags | O_NONBLOCK)
        let filler = [UInt8](repeating: 0x2E, count: 4096)
        while write(writing, filler, filler.count) > 0 {}
        _ = fcntl(writing, F_SETFL, flags)
    }
}

/// What the simplest logger writes for one event.
private func logged(
    _ message: Logger.Message,
    _ metadata: Logger.Metadata = [:],
    format: LogFormat = .text
) throws -> String {
    let pipe = try LogPipe()
    let handler = LineLogHandler(label: "test", level: .info, sink: LogSink(descriptor: pipe.writing, format: format))
    let logger = Logger(label: "test") { _ in handler }
    logger.info(message, metadata: metadata)
    return pipe.drain()
}

/// The text after the time and level.
private func body(_ line: String) throws -> String {
    let match = try #require(line.wholeMatch(of: /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info (.*)\n/))
    return String(match.1)
}

private func object(_ line: String) throws -> [String: Any] {
    try #require(JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any])
}

@Suite struct LogTests {
    @Test func `A text line has time, level, message and sorted metadata`() throws {
        let line = try logged("job finished", ["job.kind": "restore", "job.id": "7"])
        #expect(try body(line) == "job finished job.id=7 job.kind=restore")
    }

    @Test func `The time is UTC with milliseconds`() {
        let time = timespec(tv_sec: 1_795_226_584, tv_nsec: 567_999_999)
        let line = LogLine(format: .text, time: time, level: .info, message: "m", label: "l")
        #expect(String(decoding: line.finished(), as: UTF8.self) == "2026-11-21T02:03:04.567Z info m\n")
    }

    @Test(arguments: [
        ("plain", "plain"), ("", "\"\""), ("two words", "\"two words\""), ("a=b", "\"a=b\""),
        ("say \"hi\"", "\"say \\\"hi\\\"\""), ("back\\slash", "\"back\\\\slash\""), ("Ünïcode", "Ünïcode"),
        ("x\n2026-11-21T02:03:04.567Z error forged", "\"x\\n2026-11-21T02:03:04.567Z error forged\""),
        ("\r\t\u{0}", "\"\\r\\t\\u0000\""), ("\u{1B}[31mred\u{1B}[0m", "\"\\u001b[31mred\\u001b[0m\""),
        ("\u{9B}2J", "\"\\u009b2J\""), ("\u{202E}evil", "\"\\u202eevil\""), ("a\u{2028}b", "\"a\\u2028b\""),
        ("\u{E0041}", "\"\\udb40\\udc41\""), ("\u{7F}", "\"\\u007f\""),
    ])
    func `A value cannot end its line, forge a field or speak to the terminal`(value: String, shown: String) throws {
        #expect(try body(try logged("m", ["v": .string(value)])) == "m v=\(shown)")
        let json = try logged("m", ["v": .string(value)], format: .json)
        #expect(json.utf8.count { $0 == 0x0A } == 1 && json.last == "\n")
        #expect(try object(json)["v"] as? String == value)
        #expect(json.dropLast().unicodeScalars.allSatisfy { $0.value >= 0x20 && !(0x7F...0x9F).contains($0.value) })
    }

    @Test func `A message from elsewhere is quoted where it could pass for fields`() throws {
        #expect(try body(try logged("done user.id=7\n")) == "\"done user.id=7\\n\"")
    }

    @Test func `Keys are made harmless, and those that JSON lines use are moved aside`() throws {
        #expect(try body(try logged("m", ["a b\n=\"": "1"])) == "m a_b___=1")
        let json = try object(try logged("m", ["level": "1", "time": "2", "message": "3"], format: .json))
        #expect(json["level"] as? String == "info")
        #expect(json["level_"] as? String == "1")
        #expect(json["message"] as? String == "m")
        #expect(json["message_"] as? String == "3")
        #expect(json["logger"] as? String == "test")
    }

    @Test func `Nested metadata comes in order`() throws {
        let value: Logger.Metadata.Value = .dictionary(["b": .array(["1", .stringConvertible(2)]), "a": "x"])
        #expect(try body(try logged("m", ["v": value])) == "m v=\"{a: x, b: [1, 2]}\"")
    }

    @Test(arguments: LogFormat.allCases, ["x", "\u{1B}", "é", "🦆", "\""])
    func `Long values are cut, never inside an escape or a character`(format: LogFormat, unit: String) throws {
        let long = String(repeating: unit, count: 100_000)
        let line = try logged("m", ["v": .string(long)], format: format)
        #expect(line.utf8.count < LogLine.valueLimit + 200)
        #expect(!line.unicodeScalars.contains("\u{FFFD}"))
        if format == .json {
            let value = try #require(try object(line)["v"] as? String)
            #expect(value.hasSuffix("…") && value.dropLast().allSatisfy { String($0) == unit })
        }
    }

    @Test(arguments: LogFormat.allCases)
    func `A line stays within what a pipe takes at once, and says that fields are missing`(format: LogFormat) throws {
        var metadata: Logger.Metadata = ["user.id": "u1"]
        for number in 0..<20 { metadata["k\(number)"] = .string(String(repeating: "x", count: 900)) }
        let line = try logged("m", metadata, format: format)
        #expect(line.utf8.count <= LogLine.limit)
        #expect(line.utf8.count > 3000)
        #expect(line.contains("u1"), "a short field behind long ones still fits")
        switch format {
        case .text: #expect(line.hasSuffix(" truncated=true\n"))
        case .json: #expect(try object(line)["truncated"] as? Bool == true)
        }
    }

    @Test func `The event's metadata goes before the provider's, and that before the logger's`() throws {
        let pipe = try LogPipe()
        let provider = Logger.MetadataProvider { ["a": "provider", "b": "provider"] }
        let sink = LogSink(descriptor: pipe.writing, format: .text)
        let handler = LineLogHandler(label: "test", level: .info, sink: sink, metadataProvider: provider)
        var logger = Logger(label: "test") { _ in handler }
        logger[metadataKey: "a"] = "logger"
        logger[metadataKey: "c"] = "logger"
        logger.info("m", metadata: ["b": "event"])
        #expect(try body(pipe.drain()) == "m a=provider b=event c=logger")
        logger.debug("unheard")
        #expect(pipe.drain() == "")
    }

    @Test func `Level and metadata belong to one logger alone`() throws {
        let pipe = try LogPipe()
        let sink = LogSink(descriptor: pipe.writing, format: .text)
        let first = Logger(label: "test") { LineLogHandler(label: $0, level: .info, sink: sink) }
        var second = first
        second.logLevel = .error
        second[metadataKey: "only"] = "second"
        #expect(first.logLevel == .info)
        #expect(first[metadataKey: "only"] == nil)
    }

    @Test func `172: a reader of the log that does not read costs lines, not time, and hears afterwards how many`()
        throws
    {
        let pipe = try LogPipe()
        let sink = LogSink(descriptor: pipe.writing, format: .text, patience: .milliseconds(20))
        let logger = Logger(label: "test") { LineLogHandler(label: $0, level: .info, sink: sink) }
        pipe.fill()
        let spent = ContinuousClock().measure { for _ in 0..<1000 { logger.info("lost") } }
        #expect(spent < .seconds(10))
        #expect(sink.droppedLines == 1000)
        _ = pipe.drain()
        logger.info("heard")
        logger.info("heard")
        let lines = pipe.drain().split(separator: "\n")
        #expect(lines.count == 3)
        #expect(lines[0].hasSuffix("warning log lines were dropped log.dropped=1000"))
        #expect(lines[1].hasSuffix("info heard"))
        #expect(sink.droppedLines == 1000)
    }

    @Test func `172: a reader of the log that went away kills nobody`() throws {
        var ends: [CInt] = [0, 0]
        try #require(pipe(&ends) == 0)
        close(ends[0])
        defer { close(ends[1]) }
        // SIGPIPE has its default action here: the test process would end.
        let sink = LogSink(descriptor: ends[1], format: .json)
        Logger(label: "test") { LineLogHandler(label: $0, level: .info, sink: sink) }.info("m")
        #expect(sink.droppedLines == 1)
    }

    @Test func `Lines of many tasks never mix`() async throws {
        let file = FileManager.default.temporaryDirectory.appending(path: "log-\(UUID().uuidString)")
        let descriptor = open(file.path, O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0o600)
        try #require(descriptor >= 0)
        defer {
            close(descriptor)
            try? FileManager.default.removeItem(at: file)
        }
        let sink = LogSink(descriptor: descriptor, format: .json)
        await withTaskGroup { group in
            for task in 0..<8 {
                group.addTask {
                    let logger = Logger(label: "test") { LineLogHandler(label: $0, level: .info, sink: sink) }
                    for _ in 0..<500 { logger.info("m", metadata: ["task": .stringConvertible(task)]) }
                }
            }
        }
        let lines = try String(contentsOf: file, encoding: .utf8).split(separator: "\n")
        #expect(lines.count == 4000)
        for line in lines { #expect(try object(String(line))["message"] as? String == "m") }
    }
}
