import Foundation
import TestSupport
import Testing

/// A library that makes a process's clock wrong, compiled once.
enum WrongClock {
    private static let library = Task {
        let path = FileManager.default.temporaryDirectory.path + "/process-tests-clock-\(UUID().uuidString).so"
        // Whoever has Swift has clang.
        let ending = try await Program(
            ["/usr/bin/env", "clang", "-shared", "-fPIC", "-O1", "-o", path, Paths.fixtures + "/clock.c"],
            environment: Site.environment([:])
        ).ending()
        try #require(ending.code == 0, "\(ending)")
        return path
    }

    /// What sets a process's clock ahead, or with a negative number behind.
    static func settings(seconds: Int) async throws -> [String: String] {
        ["LD_PRELOAD": try await library.value, "CLOCK_SHIFT_SECONDS": "\(seconds)"]
    }

    /// How far ahead the clock was that wrote the first line of a log.
    static func shift(in log: String) -> TimeInterval? {
        let format = Date.ISO8601FormatStyle(includingFractionalSeconds: true)
        return log.split(separator: " ").first.flatMap { try? format.parse(String($0)) }?.timeIntervalSinceNow
    }
}
