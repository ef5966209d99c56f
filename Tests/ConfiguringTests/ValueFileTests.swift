import Entitlements
import Foundation
import Testing

@testable import Configuring

@Suite struct ValueFileTests {
    @Test(arguments: ["sk_abc", "sk_abc\n", "sk_abc\r\n", "sk_abc\n\n"])
    func `A value comes from its file, without the line end`(contents: String) throws {
        try withFile(Data(contents.utf8)) { path in
            let config = try Config.load(environment: [
                "REVENUECAT_API_KEY_FILE": path, "REVENUECAT_PROJECT_ID": "proj1",
            ])
            #expect(config.revenueCat.first?.apiKey.reveal() == "sk_abc")
        }
    }

    @Test func `Any variable may come from a file`() throws {
        try withFile(Data("7\n".utf8)) { path in
            let config = try Config.load(environment: ["JOB_MAX_ATTEMPTS_FILE": path])
            #expect(config.retry.maxAttempts == 7)
        }
    }

    @Test func `A value and a file for it are a fault, and only one`() throws {
        try withFile(Data("7".utf8)) { path in
            let faults = try faults(of: ["JOB_MAX_ATTEMPTS": "7", "JOB_MAX_ATTEMPTS_FILE": path])
            #expect(faults.map(\.problem) == ["is set, and JOB_MAX_ATTEMPTS_FILE is set too"])
        }
    }

    @Test(arguments: [
        (Data(), "the file is empty"), (Data("\n\n".utf8), "the file is empty"),
        (Data([0xFF, 0xFE]), "the file is not UTF-8 text"),
        (Data(repeating: 0x61, count: 65_537), "the file is larger than 64 KiB"),
    ])
    func `A file that holds no value is a fault`(contents: Data, problem: String) throws {
        try withFile(contents) { path in
            let faults = try faults(of: ["DATABASE_URL_FILE": path])
            #expect(faults.map(\.problem) == [problem])
            #expect(faults.map(\.variable) == ["DATABASE_URL_FILE"])
        }
    }

    @Test(arguments: [("/nowhere/at/all", "the file does not exist"), ("/", "the path names a directory")])
    func `A path that leads to no file is a fault`(path: String, problem: String) throws {
        #expect(try faults(of: ["MODE_FILE": path]).map(\.problem) == [problem])
    }

    @Test func `A line break inside a file's value is a fault`() throws {
        try withFile(Data("sk_abc\nsk_def\n".utf8)) { path in
            let faults = try faults(of: ["REVENUECAT_API_KEY_FILE": path, "REVENUECAT_PROJECT_ID": "proj1"])
            #expect(faults.map(\.variable) == ["REVENUECAT_API_KEY"])
        }
    }

    private func withFile(_ contents: Data, _ body: (String) throws -> Void) throws {
        let file = FileManager.default.temporaryDirectory.appending(path: "value-\(UUID().uuidString)")
        try contents.write(to: file)
        defer { try? FileManager.default.removeItem(at: file) }
        try body(file.path)
    }
}
