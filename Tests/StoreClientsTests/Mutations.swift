import Foundation

/// How much is done to what the decoders read.
enum Mutations {
    /// Altered inputs for each kind of decoder: a hundred thousand, and a million in the long profile.
    static let count =
        ProcessInfo.processInfo.environment["ENTITLEMENT_SYNC_TEST_PROFILE"] == "full" ? 1_000_000 : 100_000
}
