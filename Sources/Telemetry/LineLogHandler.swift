package import Logging

/// A log handler that writes one bounded, escaped line an event.
///
/// Metadata of the event goes before that of the provider, and that before the logger's own. Keys come in order.
package struct LineLogHandler: LogHandler {
    package var metadata: Logger.Metadata = [:]
    package var metadataProvider: Logger.MetadataProvider?
    package var logLevel: Logger.Level
    private let label: String
    private let sink: LogSink

    package init(
        label: String,
        level: Logger.Level,
        sink: LogSink,
        metadataProvider: Logger.MetadataProvider? = LoggingSystem.metadataProvider
    ) {
        self.label = label
        self.logLevel = level
        self.sink = sink
        self.metadataProvider = metadataProvider
    }

    /// Sends every logger of the process to standard error; to be called once, before the first logger is made.
    package static func bootstrap(format: LogFormat, level: Logger.Level) {
        let sink = LogSink(format: format)
        LoggingSystem.bootstrap(
            { label, provider in LineLogHandler(label: label, level: level, sink: sink, metadataProvider: provider) },
            metadataProvider: nil
        )
    }

    package subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    package func log(event: LogEvent) {
        var line = LogLine(
            format: sink.format,
            time: now(),
            level: event.level,
            message: event.message.description,
            label: label
        )
        var fields = metadata
        if let provided = metadataProvider?.get() { fields.merge(provided) { $1 } }
        if let own = event.metadata { fields.merge(own) { $1 } }
        if let error = event.error {
            fields["error.message"] = .string("\(error)")
            fields["error.type"] = .string("\(type(of: error))")
        }
        for (key, value) in fields.sorted(by: { $0.key < $1.key }) { line.add(key, rendered(value)) }
        sink.write(line.finished())
    }

    /// A value as text; the keys of a dictionary in order, so that equal values make equal lines.
    private func rendered(_ value: Logger.Metadata.Value) -> String {
        switch value {
        case .string(let text): text
        case .stringConvertible(let value): value.description
        case .array(let values): "[" + values.map(rendered).joined(separator: ", ") + "]"
        case .dictionary(let values):
            "{"
                + values.sorted { $0.key < $1.key }.map { "\($0.key): \(rendered($0.value))" }.joined(separator: ", ")
                + "}"
        }
    }
}
