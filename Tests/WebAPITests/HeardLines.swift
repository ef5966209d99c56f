import Logging
import Synchronization

/// A log that keeps what it hears.
final class HeardLines: Sendable {
    struct Line: Sendable, Hashable {
        var level: Logger.Level
        var message: String
        var metadata: [String: String]
    }

    private let lines = Mutex<[Line]>([])

    var all: [Line] { lines.withLock { $0 } }

    /// A logger whose lines of every level are kept.
    var logger: Logger { Logger(label: "test") { _ in Ear(heard: self) } }

    fileprivate func add(_ line: Line) { lines.withLock { $0.append(line) } }
}

private struct Ear: LogHandler {
    let heard: HeardLines
    var metadata: Logger.Metadata = [:]
    var logLevel = Logger.Level.trace

    init(heard: HeardLines) { self.heard = heard }

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
        let said = event.metadata ?? [:]
        heard.add(
            HeardLines.Line(
                level: event.level,
                message: "\(event.message)",
                metadata: said.mapValues { "\($0)" }
            )
        )
    }
}
