import Foundation
import TestSupport
import Testing

/// A worker process whose metrics are read as Prometheus reads them, and its log as JSON.
struct MeteredWorker: Sendable {
    let program: Program
    let port: Int

    /// Starts a worker of a site and waits until it serves its metrics.
    ///
    /// - Parameters:
    ///   - site: whose worker it is.
    ///   - settings: further settings.
    /// - Throws: when it does not start, or ends at once.
    init(of site: Site, settings: [String: String] = [:]) async throws {
        var all = site.settings
        // The system chooses the port and the log tells it: nobody else can take it in between.
        all.merge(["ADMIN_HOST": "127.0.0.1", "ADMIN_PORT": "0", "LOG_FORMAT": "json"]) { $1 }
        all.merge(settings) { $1 }
        program = try await Program([Paths.program, "worker"], environment: Site.environment(all))
        let line = try await Self.line(of: program, saying: "serving metrics")
        port = try #require(line["listen.port"].flatMap { Int($0) })
    }

    /// The metrics as text.
    func text() async throws -> String {
        String(decoding: try await fetch("GET", "/metrics", from: port), as: UTF8.self)
    }

    /// The metrics, read strictly.
    func scrape() async throws -> Exposition { try Exposition(await text()) }

    /// Scrapes until something is so.
    ///
    /// - Returns: the scrape in which it was.
    @discardableResult
    func scrape(
        until comment: String,
        within limit: Duration = .seconds(60),
        _ isSo: (Exposition) -> Bool
    ) async throws -> Exposition {
        try await program.find(comment, within: limit) {
            let metrics = try await scrape()
            return isSo(metrics) ? metrics : nil
        }
    }

    /// Waits for a line of the log.
    ///
    /// - Returns: its fields, all as text.
    @discardableResult
    func line(saying message: String, where isMeant: ([String: String]) -> Bool = { _ in true }) async throws
        -> [String: String]
    {
        try await Self.line(of: program, saying: message, where: isMeant)
    }

    /// Tells it to stop, which has to go well.
    @discardableResult
    func stop() async throws -> Program.Ending { try await program.stop() }

    private static func line(
        of program: Program,
        saying message: String,
        where isMeant: ([String: String]) -> Bool = { _ in true }
    ) async throws -> [String: String] {
        try await program.find(message) {
            for line in program.log where line.contains(message) {
                let fields = try fields(of: String(line))
                if fields["message"]?.contains(message) == true, isMeant(fields) { return fields }
            }
            return nil
        }
    }

    /// A line of a log in JSON; every value is text, save the mark of a line that was cut.
    static func fields(of line: String) throws -> [String: String] {
        let object = try #require(try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any], "\(line)")
        return try object.filter { $0.key != "truncated" }.mapValues { try #require($0 as? String, "\(line)") }
    }
}
