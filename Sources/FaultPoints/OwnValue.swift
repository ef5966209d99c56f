#if FAULT_POINTS
    import Glibc
#endif

/// A value of the program's own, which no setting changes.
///
/// Tests hand in a smaller one so as not to wait or pay for it; builds for use have theirs alone.
package enum OwnValue: String, Sendable, CaseIterable {
    /// The seconds in which a request arrives and its answer is taken.
    case request
    /// The seconds without any work after which an app rests.
    case settling
    /// The seconds that finding a reported id takes at least.
    case reportedID
    /// The most connections of a pool.
    case connections

    #if FAULT_POINTS
        /// The environment variable that holds tests' values by name, such as `request=3,connections=4`.
        ///
        /// It does not begin as settings do: the check for misspelled ones would report it.
        package static let variable = "FAULT_POINT_OWN_VALUES"

        private static let handed: [String: Double] = {
            let text = getenv(variable).map { String(cString: $0) } ?? ""
            let parts = text.split(separator: ",").map { $0.split(separator: "=", maxSplits: 1) }
            return parts.reduce(into: [:]) { values, sides in
                if sides.count == 2 { values[String(sides[0])] = Double(sides[1]) }
            }
        }()

        /// Returns the number that a test handed in, else the program's own.
        package func number(else own: Double) -> Double { Self.handed[rawValue] ?? own }
    #else
        package func number(else own: Double) -> Double { own }
    #endif

    /// Returns the time that a test handed in, else the program's own.
    package func time(else own: Duration) -> Duration { .seconds(number(else: own / .seconds(1))) }
}
