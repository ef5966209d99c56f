import Foundation
import Glibc

/// Scripts that sign as the App Store does, with OpenSSL and Python alone, under a root of their own.
package enum SigningFixture {
    private static let folder = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent().appendingPathComponent("Tests/ProcessTests/Fixtures").path

    /// There is no Python.
    package struct Missing: Error {}

    /// Signs something; the root ends up in `root.pem`.
    ///
    /// - Parameters:
    ///   - script: the script's name; its arguments are the folder and what follows here.
    ///   - folder: where everything is put.
    ///   - arguments: what else it has to know.
    ///   - input: a file of the folder that it reads.
    ///   - output: the file of the folder that holds what it prints.
    /// - Returns: what it complained of, for whoever wonders why the rest failed.
    /// - Throws: where it did not run.
    package static func run(
        _ script: String,
        in folder: String,
        _ arguments: [String] = [],
        from input: String? = nil,
        to output: String
    ) async throws -> String {
        guard let python = ChildProcess.find("python3") else { throw Missing() }
        let log = folder + "/signing"
        let shell = "from=$1 to=$2; shift 2; exec \"$@\" < \"$from\" > \"$to\""
        let files = [input.map { folder + "/" + $0 } ?? "/dev/null", folder + "/" + output]
        let command = [python, Self.folder + "/" + script, folder] + arguments
        let signer = try ChildProcess.start(["/bin/sh", "-c", shell, "sh"] + files + command, output: log)
        while waitpid(signer, nil, WNOHANG) == 0 { try await Task.sleep(for: .milliseconds(20)) }
        return try String(contentsOfFile: log, encoding: .utf8)
    }
}
