import Foundation
import Telemetry
import TestSupport
import Testing

/// The reference's pages are what the program, its schema and its files say of themselves.
///
/// With ENTITLEMENT_SYNC_RECORD_REFERENCE=1 the pages are written instead of compared.
struct ReferenceTests {
    private static func text(_ path: String) throws -> String { try Paths.text(Paths.folder + "/" + path) }

    private static func expect(_ page: String, is expected: String) throws {
        let path = "deploy/docs/reference/\(page)"
        if ProcessInfo.processInfo.environment["ENTITLEMENT_SYNC_RECORD_REFERENCE"] != nil {
            try expected.write(toFile: Paths.folder + "/" + path, atomically: true, encoding: .utf8)
            return
        }
        let (now, made) = (try text(path).split(separator: "\n"), expected.split(separator: "\n"))
        let other =
            zip(now, made).first { $0 != $1 }.map { "has \($0), not \($1)" }
            ?? "has \(now.count), not \(made.count) lines"
        let isSame = try text(path) == expected
        #expect(
            isSame,
            "\(path) \(other); ENTITLEMENT_SYNC_RECORD_REFERENCE=1 deploy/test.sh --filter ReferenceTests makes it again"
        )
    }

    @Test func `Commands are documented as the program describes them`() throws {
        try Self.expect("commands.md", is: commandsPage(try CommandHelp.read(program: Paths.program)))
    }

    @Test func `Each command has two examples of itself with options that it has`() throws {
        let commands = try CommandHelp.read(program: Paths.program).all()
        for (words, command) in commands where words.count > 1 {
            #expect(command.examples.count >= 2 && command.abstract?.isEmpty == false, "\(words)")
            for example in command.examples {
                let typed = example.split(separator: " ").map(String.init).drop { $0.contains("=") }
                #expect(typed.starts(with: words), "\(example)")
                let named = commands.filter { typed.starts(with: $0.words) }.max { $0.words.count < $1.words.count }
                let known = Set((named?.command.ownArguments ?? []).flatMap { ($0.names ?? []).map(\.typed) })
                for option in typed where option.hasPrefix("--") { #expect(known.contains(option), "\(example)") }
            }
        }
    }

    @Test func `Variables are documented as the example file has them`() throws {
        try Self.expect("configuration.md", is: configurationPage(try Self.text("deploy/entitlement-sync.env.example")))
    }

    @Test func `Outcomes, rules and errors are documented, each with what to do`() throws {
        try Self.expect("outcomes.md", is: outcomesPage())
    }

    @Test func `Metrics are documented by their help texts`() throws {
        try Self.expect("metrics.md", is: metricsPage())
    }

    @Test func `The API is documented as openapi.json describes it, in the program's version`() throws {
        let data = Data(try Self.text("Sources/WebAPI/OpenAPI/openapi.json").utf8)
        let api = try JSONDecoder().decode(APIDescription.self, from: data)
        #expect(api.info.version == Build.version)
        try Self.expect("api.md", is: apiPage(api))
    }

    @Test func `The SQL contract is documented by the schema's comments`() async throws {
        try await Site.with { site in try Self.expect("sql.md", is: try await sqlPage(site.pool)) }
    }

    @Test func `The newest version of the changelog is the program's`() throws {
        let heads = try Self.text("deploy/CHANGELOG.md").matches(of: /(?m)^## \[([0-9.]+)\]/).map { String($0.1) }
        #expect(heads.first == Build.version)
    }
}
