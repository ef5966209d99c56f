import Foundation
import Glibc
package import Testing

/// The extent of a run of the tests: the bounded profile proves each behaviour once, the full one has the long counts, and
/// attacks, kills and failovers in number.
package enum Profile {
    /// The full profile, which `deploy/test.sh --full` sets as `ENTITLEMENT_SYNC_TEST_PROFILE=full`.
    package static let isFull = ProcessInfo.processInfo.environment["ENTITLEMENT_SYNC_TEST_PROFILE"] == "full"

    /// All cases in the full profile, else the first ones: one of each kind proves the behaviour.
    package static func cases<Case>(_ all: some Sequence<Case>, bounded count: Int = 1) -> [Case] {
        isFull ? Array(all) : Array(all.prefix(count))
    }

    /// The seeds of generated cases to run in place of a profile's: `ENTITLEMENT_SYNC_TEST_SEED=N`, or `N-M`.
    package static let seeds: ClosedRange<UInt64>? = {
        let asked = ProcessInfo.processInfo.environment["ENTITLEMENT_SYNC_TEST_SEED"]?.split(separator: "-")
        guard let bounds = asked?.compactMap({ UInt64($0) }), let first = bounds.first, let last = bounds.last else {
            return nil
        }
        return first <= last ? first...last : nil
    }()
}

extension Trait where Self == ConditionTrait {
    /// Runs a test in the full profile alone.
    package static var full: Self { .enabled(if: Profile.isFull, "It belongs to the full profile.") }
}

/// Notes when tests get their turn: the event stream says only when they begin to wait for it.
package enum Turns {
    /// The file that `deploy/test.sh` reads.
    private static let file = ProcessInfo.processInfo.environment["ENTITLEMENT_SYNC_TEST_TURNS"].map {
        open($0, O_WRONLY | O_CREAT | O_APPEND, 0o600)
    }

    /// Notes that the current test runs; its first note counts.
    static func note() {
        guard let file, let test = Test.current else { return }
        let line = Array("\(Date().timeIntervalSince1970) \(test.id)\n".utf8)
        // Whole, as it is one write.
        _ = write(file, line, line.count)
    }
}
