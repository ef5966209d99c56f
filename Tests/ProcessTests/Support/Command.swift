import Foundation
import TestSupport
import Testing

/// One way to call the program.
struct Command: Sendable, CustomStringConvertible {
    /// What it works on.
    enum Need: Sendable {
        /// A migrated database.
        case schema
        /// A server, whatever its databases hold.
        case server
        /// Nothing.
        case nothing
    }

    var words: [String]
    var need = Need.schema

    var description: String { words.joined(separator: " ") }
    var name: String { words[0] }
    /// A report of what is wrong is the result of this one.
    var reports: Bool { name == "doctor" }

    init(_ words: String..., need: Need = .schema) {
        self.words = words
        self.need = need
    }

    static let job = "00000000-0000-7000-8000-000000000001"
    static let grants = Paths.fixtures + "/grants.csv"
    static let purchases = Paths.fixtures + "/purchases.csv"
    static let scenario = Paths.fixtures + "/scenario.yaml"

    /// Every command, with arguments that are right as far as they go; as JSON where it prints.
    static let all = [
        Command("migrate", need: .server), Command("migrate", "--output", "json", need: .server),
        Command("worker", "--until-idle"),
        Command("restore", "user-1", "--output", "json"),
        Command("restore", "user-1", "--wait", "1", "--proof", "transaction_id=1"),
        Command("reconcile", "user-1", "--wait", "1", "--output", "json"), Command("reconcile", "user-1"),
        Command("explain", "user-1", "--output", "json"), Command("explain", "user-1"),
        Command("explain", "user-1", "--at", "2099-01-01"), Command("replay", "--all", "--output", "json"),
        Command("replay", "user-1", "--since", "2026-01-01", "--csv"), Command("shadow", "--output", "json"),
        Command("grant", "add", "user-1", "--until", "2099-01-01", "--reason", "r"),
        Command("grant", "list", "--output", "json"), Command("grant", "revoke", "1", "--output", "json"),
        Command("adopt", "--file", grants), Command("import", "--file", purchases, "--output", "json"),
        Command("import", "list"), Command("sandbox", "allow", "user-1", "--until", "2099-01-01"),
        Command("pause", "demotions", "--output", "json"), Command("resume", "demotions"),
        Command("queue", "stats", "--output", "json"),
        Command("queue", "list", "--output", "json"), Command("queue", "retry", "--error", "unavailable"),
        Command("uninstall", "--dry-run", "--output", "json"), Command("completion", "zsh", need: .nothing),
        Command("queue", "stats"), Command("queue", "dead", "--output", "json"), Command("queue", "retry", job),
        Command("queue", "cancel", job), Command("doctor", "--output", "json"), Command("doctor"),
        Command("inspect", "storekit_jws=a.b.c", need: .nothing),
        Command("simulate", "--scenario", scenario, need: .nothing),
        Command("bench", "--jobs", "1000", "--output", "json", need: .server),
    ]

    /// The commands that are tried in one of several situations: in the full profile all that it concerns, else a share of
    /// them, so that each command is tried in one of the situations that concern it.
    static func share(
        _ place: Int,
        of situations: Int,
        concerned: (Command, Int) -> Bool = { _, _ in true }
    ) -> [Command] {
        all.enumerated().filter { index, command in
            let places = (0..<situations).filter { concerned(command, $0) }
            return places.contains(place) && (Profile.isFull || places[index % places.count] == place)
        }.map(\.element)
    }

    /// Runs it, and expects one clear error in its own words, the code given, and nothing else.
    ///
    /// - Parameters:
    ///   - settings: the environment.
    ///   - code: the exit code.
    ///   - texts: what the error has to name: the field, and what to do.
    /// - Throws: when the program cannot be run, or does not end.
    func expectFailure(_ settings: [String: String], code: Int32, naming texts: [String]) async throws {
        let ending = try await Site.run(words, settings: settings)
        #expect(ending.code == code, "\(self): \(ending)")
        let isJSON = words.contains("json")
        if reports {
            if isJSON {
                let report = try JSONDecoder().decode(Report.self, from: Data(ending.out.utf8))
                #expect(!report.ok && report.checks.contains { !$0.ok && !$0.fix.isEmpty }, "\(self): \(ending)")
            }
            #expect(ending.err == "", "\(self): \(ending)")
        } else {
            #expect(ending.out == "", "\(self): \(ending)")
            let errors = ending.err.split(separator: "\n").filter { $0.hasPrefix("entitlement-sync: ") }
            #expect(errors.count == 1, "\(self) has one error: \(ending)")
        }
        let said = (reports ? ending.out : ending.err)
        for text in texts {
            // A report in JSON escapes quotes.
            #expect(
                said.replacingOccurrences(of: "\\\"", with: "\"").contains(text),
                "\(self) names \(text): \(ending)"
            )
        }
        for sign in [
            "Fatal error", "PostgresError", "Swift.", "Optional(", "connectionFailed", "serverError", "hunter2",
        ] {
            #expect(!ending.err.contains(sign) || isLogged(sign, in: ending), "\(self) says \(sign): \(ending)")
            #expect(!ending.out.contains(sign), "\(self) says \(sign): \(ending)")
        }
    }

    /// Whether words that people should not have to read stand in log lines alone; a secret may stand nowhere.
    private func isLogged(_ sign: String, in ending: Program.Ending) -> Bool {
        sign != "hunter2"
            && ending.err.split(separator: "\n").allSatisfy { !$0.contains(sign) || $0.contains("error.code=") }
    }

    private struct Report: Decodable {
        struct Check: Decodable {
            var ok: Bool
            var fix: String
        }

        var ok: Bool
        var checks: [Check]
    }
}
