import Foundation

/// The time the simulated stores believe it is: the machine's, shifted, or standing still.
struct SimulatedClock: Sendable {
    /// Gives Unix milliseconds.
    let wall: @Sendable () -> Int64
    private(set) var shiftMs: Int64 = 0
    private(set) var frozenAtMs: Int64?

    /// Unix milliseconds of the machine's clock.
    @Sendable static func machine() -> Int64 { Int64(Date().timeIntervalSince1970 * 1000) }

    /// Simulated Unix milliseconds.
    var nowMs: Int64 { frozenAtMs ?? wall() + shiftMs }

    /// Moves the time, also where it stands still.
    mutating func shift(by milliseconds: Int64) {
        shiftMs += milliseconds
        frozenAtMs? += milliseconds
    }

    /// Sets the time.
    mutating func set(_ milliseconds: Int64) {
        shift(by: milliseconds - nowMs)
    }

    /// Stops the time, or lets it go on from where it stands.
    mutating func setFrozen(_ frozen: Bool) {
        if frozen {
            frozenAtMs = nowMs
        } else if let stopped = frozenAtMs {
            frozenAtMs = nil
            shiftMs = stopped - wall()
        }
    }
}
