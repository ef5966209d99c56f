import Foundation

/// SplitMix64: small, fast, and the same on every machine, so that a seed names a history for ever.
struct SeededGenerator: RandomNumberGenerator {
    private var state: UInt64

    init(seed: UInt64) { state = seed }

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var mixed = state
        mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
        return mixed ^ (mixed >> 31)
    }

    /// True once in so many cases.
    mutating func oneIn(_ count: Int) -> Bool { Int.random(in: 0..<count, using: &self) == 0 }

    /// A number below a bound, which is at least 1.
    mutating func below(_ bound: Int) -> Int { Int.random(in: 0..<max(bound, 1), using: &self) }

    /// One of a few values, all equally likely.
    mutating func pick<Value>(_ first: Value, _ others: Value...) -> Value {
        let index = Int.random(in: 0...others.count, using: &self)
        return index == 0 ? first : others[index - 1]
    }
}

/// Which histories run.
enum Profile {
    /// 200 seeds; 2,000 with `ENTITLEMENT_SYNC_TEST_PROFILE=full`; one with `ENTITLEMENT_SYNC_TEST_SEED=N`.
    static let seeds: Range<UInt64> = {
        let environment = ProcessInfo.processInfo.environment
        if let seed = environment["ENTITLEMENT_SYNC_TEST_SEED"].flatMap(UInt64.init) { return seed..<seed + 1 }
        return 0..<(isFull ? 2000 : 200)
    }()

    /// Whether ten times as much is asked for.
    static var isFull: Bool { ProcessInfo.processInfo.environment["ENTITLEMENT_SYNC_TEST_PROFILE"] == "full" }

    /// Whether a whole profile runs, so that rare situations must occur.
    static var isWhole: Bool { seeds.count > 1 }

    /// How many histories run side by side, each lane on a database of its own.
    static let lanes = 3
}
