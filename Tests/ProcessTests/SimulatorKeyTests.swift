import Foundation
import HTTPTypes
import Testing
import Transport

/// The keys of simulators that share a folder for them.
struct SimulatorKeyTests {
    @Test func `Simulators with one folder sign with the same keys, started at once or later; others with others`()
        async throws
    {
        let folder = FileManager.default.temporaryDirectory.path + "/simulator-keys-\(UUID().uuidString)"
        defer { try? FileManager.default.removeItem(atPath: folder) }
        let (shared, other) = (folder + "/shared/new", folder + "/other")
        async let one = Self.keys(in: shared)
        async let two = Self.keys(in: shared)
        async let stranger = Self.keys(in: other)
        let (first, second, foreign) = try await (one, two, stranger)
        #expect(first.count > 300 && first == second && first != foreign)
        #expect(try await Self.keys(in: shared) == first)
        for file in try FileManager.default.contentsOfDirectory(atPath: shared) {
            let path = "\(shared)/\(file)"
            let mode = try FileManager.default.attributesOfItem(atPath: path)[.posixPermissions]
            #expect(mode as? Int == 0o600, "\(file)")
        }
        // What is no key is not replaced without a word.
        try "no key".write(toFile: other + "/firebase-1.pem", atomically: false, encoding: .utf8)
        let broken = try await Site.run(["simulate", "--scenario", Command.scenario, "--keys", other], settings: [:])
        #expect(broken.code == 65 && broken.err.contains("or holds what is no key"), "\(broken)")
        let kept = try String(contentsOfFile: other + "/firebase-1.pem", encoding: .utf8)
        #expect(kept == "no key")
    }

    /// The key set of a simulator that is started with a folder.
    private static func keys(in folder: String) async throws -> [UInt8] {
        let answer = try await answer(in: folder)
        #expect(answer.response.status.code == 200)
        return answer.body
    }

    private static func answer(in folder: String) async throws -> HTTPExchange {
        let simulator = try await Simulator(scenario: "customers: []", keys: folder)
        // A debug build takes seconds to make a key, and as long again to wait for one that another makes.
        return try await ask("GET", "/google-keys/firebase", of: simulator.port, within: .seconds(60))
    }
}
