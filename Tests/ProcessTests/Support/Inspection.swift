import Foundation
import TestSupport
import Testing

/// A folder with what `inspect` is to look at, and what it says of it.
struct Inspection {
    /// What `inspect --output json` prints.
    struct Answer: Decodable {
        var kind: String
        var store: String
        var verifies: Bool
        var reasons: [String]
        var facts: [String: String]

        init(_ ending: Program.Ending) throws {
            self = try JSONDecoder().decode(Answer.self, from: Data(ending.out.utf8))
        }
    }

    /// The folder, for as long as the test goes on.
    let folder: String
    /// The setting that names the certificates.
    let variable: String

    /// Where a test puts the root that its proofs are signed under.
    var root: String { folder + "/root.pem" }

    /// Runs a test in a folder of its own.
    ///
    /// - Parameters:
    ///   - variable: the setting that names the certificates, such as `APP_STORE_ROOT_CERTIFICATES`.
    ///   - body: the test.
    /// - Throws: what the test does.
    static func with(_ variable: String, _ body: (Inspection) async throws -> Void) async throws {
        let folder = try Files.makeTemporaryDirectory()
        defer { try? FileManager.default.removeItem(atPath: folder) }
        try await body(Inspection(folder: folder, variable: variable))
    }

    /// Puts a file into the folder.
    func write(_ text: String, to name: String) throws {
        try text.write(toFile: folder + "/" + name, atomically: false, encoding: .utf8)
    }

    /// Runs `inspect`.
    ///
    /// - Parameters:
    ///   - words: its arguments.
    ///   - root: the file with the certificates; `nil`: those that come with the program.
    ///   - bundleID: the app's; `nil`: not set.
    /// - Returns: how it ended.
    /// - Throws: where it did not start or end.
    func inspect(
        _ words: [String],
        root: String? = nil,
        bundleID: String? = "com.example.app"
    ) async throws -> Program.Ending {
        var settings: [String: String] = [:]
        settings[variable] = root
        settings["APP_STORE_BUNDLE_ID"] = bundleID
        return try await Site.run(["inspect"] + words, settings: settings)
    }

    /// What holds for every proof that was signed by OpenSSL under a root of its own.
    ///
    /// - Parameter proof: `kind=@file`.
    /// - Throws: where `inspect` did not run.
    func verifiesOnlyHere(_ proof: String) async throws {
        let elsewhere = try await inspect([proof, "--output", "json"])
        #expect(elsewhere.code == 65)
        #expect(try Answer(elsewhere).reasons == ["The certificates do not lead to a pinned root."])
        let foreign = try await inspect([proof], root: root, bundleID: "com.example.other")
        #expect(foreign.code == 65 && foreign.out.contains("It is about another app."), "\(foreign)")
        let any = try await inspect([proof], root: root, bundleID: nil)
        #expect(any.code == 0 && any.out.contains("APP_STORE_BUNDLE_ID is not set"), "\(any)")
    }

    /// A file without certificates is a fault of the configuration, which is named.
    ///
    /// - Parameter proof: any proof that needs them.
    /// - Throws: where `inspect` did not run.
    func needsCertificates(for proof: String) async throws {
        let ending = try await inspect([proof], root: "/dev/null")
        #expect(ending.code == 78 && ending.err.contains(variable), "\(ending)")
    }
}
