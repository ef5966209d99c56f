import Foundation
import Glibc
import Testing

/// Scripts that sign as the App Store does, with OpenSSL and Python alone, under a root of their own.
package enum SigningFixture {
    private static let folder = Files.packageFolder + "/Tests/ProcessTests/Fixtures"

    /// There is no Python.
    package struct Missing: Error {}

    /// Signs something with a script of that name: its arguments are `folder`, where everything is put, and
    /// `arguments`.
    ///
    /// It reads the file `input` and prints into the file `output`, both of the folder; the root ends up in `root.pem`.
    ///
    /// - Returns: what it complained of, which says why the rest failed.
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
        try await eventually("\(script) goes on", within: .seconds(300)) { waitpid(signer, nil, WNOHANG) != 0 }
        return try String(contentsOfFile: log, encoding: .utf8)
    }
}
