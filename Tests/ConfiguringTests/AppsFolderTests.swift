import Configuring
import Entitlements
import Foundation
import Testing

/// Which apps a folder has, and what each of them is set up with.
struct AppsFolderTests {
    private static func with(
        _ files: [String: String],
        _ environment: [String: String] = [:],
        _ body: (AppsFolder) throws -> Void
    ) throws {
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("apps-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        for (name, text) in files { try Data(text.utf8).write(to: folder.appendingPathComponent(name)) }
        try body(try AppsFolder.read(folder.path, environment: environment))
    }

    private static let games = "# Games\n\nDATABASE_URL = \"host=a dbname=games\"\nMODE='observe'\n"

    @Test func `An app has what its file says, else what the environment says, and nothing of another's`() throws {
        let files = [
            "games.env": Self.games, "golf.env": "DATABASE_URL=host=b dbname=golf", "golf.env~": "x", ".x.env": "x",
        ]
        try Self.with(files, ["MODE": "promote_only", "JOB_LEASE_SECONDS": "20"]) { folder in
            #expect(folder.apps.map(\.name) == ["games", "golf"])
            let (games, golf) = (try folder.apps[0].config(), try folder.apps[1].config())
            #expect(games.database.url?.reveal() == "host=a dbname=games" && games.decision.mode == .observe)
            #expect(golf.database.url?.reveal() == "host=b dbname=golf" && golf.decision.mode == .promoteOnly)
            #expect(games.worker.lease == .seconds(20) && golf.worker.lease == .seconds(20))
            #expect(folder[nil] == nil && folder["golf"]?.name == "golf" && folder["chess"] == nil)
        }
    }

    @Test func `The only app is meant where none is named, else the one called default`() throws {
        try Self.with(["games.env": Self.games]) { #expect($0[nil]?.name == "games") }
        try Self.with(["games.env": Self.games, "default.env": Self.games]) { #expect($0[nil]?.name == "default") }
    }

    @Test func `A broken file is its app's fault alone, and names line or variable but no value`() throws {
        let files = [
            "games.env": Self.games, "golf.env": "DATABASE_URL=host=b\nhunter2\nMODE=x\nMODE=y\n",
            "poker.env": "MODE=full",
        ]
        try Self.with(files) { folder in
            #expect(throws: Never.self) { _ = try folder.apps[0].config() }
            let golf = #expect(throws: ConfigurationFaults.self) { _ = try folder.apps[1].config() }
            #expect(golf?.faults.first?.variable.hasSuffix("/golf.env, line 2") == true)
            #expect(golf?.faults.last?.variable == "MODE")
            #expect("\(golf.map { "\($0)" } ?? "")".contains("hunter2") == false)
            let poker = #expect(throws: ConfigurationFaults.self) { _ = try folder.apps[2].config() }
            #expect(poker?.faults.map(\.variable) == ["DATABASE_URL"])
        }
    }

    @Test func `What belongs to the process has no effect in a file, and is named`() throws {
        try Self.with(["games.env": Self.games + "HTTP_PORT=1\nLOG_LEVEL=trace\n"], ["HTTP_PORT": "99"]) { folder in
            #expect(folder.apps[0].ignored.sorted() == ["HTTP_PORT", "LOG_LEVEL"])
            let config = try folder.apps[0].config()
            #expect(config.http.port == 99)
        }
    }

    @Test func `A change of a file, or of a file with a secret, is a change of the app`() throws {
        let secret = FileManager.default.temporaryDirectory.appendingPathComponent("secret-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: secret) }
        var marks: [[String: String]] = []
        for (text, more) in [("a", ""), ("a", ""), ("b", ""), ("b", "MODE=full\n")] {
            try Data(text.utf8).write(to: secret)
            let file = "DATABASE_URL=host=a\nACCOUNT_ID_KEYS_FILE=\(secret.path)\n\(more)"
            try Self.with(["games.env": file]) { marks.append($0.apps[0].fingerprint) }
        }
        #expect(marks[0] == marks[1] && marks[1] != marks[2] && marks[2] != marks[3])
    }

    @Test func `A change of the list of store apps, or of a file that it names, is a change of the app`() throws {
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("stores-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        let (list, key) = (folder.appendingPathComponent("stores.yaml"), folder.appendingPathComponent("key"))
        var marks: [[String: String]] = []
        for (project, text) in [("a", "x"), ("a", "x"), ("b", "x"), ("b", "y")] {
            try Data(text.utf8).write(to: key)
            let yaml = "revenuecat:\n  - {revenuecat_project_id: \(project), revenuecat_api_key_file: \(key.path)}\n"
            try Data(yaml.utf8).write(to: list)
            try Self.with(["games.env": "DATABASE_URL=host=a\nSTORE_APPS=\(list.path)\n"]) {
                marks.append($0.apps[0].fingerprint)
            }
        }
        #expect(marks[0] == marks[1] && marks[1] != marks[2] && marks[2] != marks[3])
    }

    @Test(arguments: ["Games", "games_1", "", String(repeating: "a", count: 33), "spiel-ä"])
    func `A file of another name stops the start`(_ name: String) throws {
        guard !name.isEmpty else { return #expect(!AppsFolder.isName(name)) }
        #expect(throws: ConfigurationFaults.self) { try Self.with(["\(name).env": Self.games]) { _ in } }
    }

    @Test func `What must not be shown belongs to one app or to the process, never to all apps at once`() {
        #expect(Variable.allCases.filter { $0.isSecret && $0.scope == .either } == [])
    }

    @Test(arguments: Variable.allCases.filter { $0.scope == .app })
    func `What belongs to one app stops the start where it would be all apps'`(_ variable: Variable) throws {
        let faults = #expect(throws: ConfigurationFaults.self) {
            try Self.with(["games.env": Self.games], [variable.rawValue: "x"]) { _ in }
        }
        #expect(faults?.faults.map(\.variable) == [variable.rawValue])
    }
}
