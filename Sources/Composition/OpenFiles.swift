import Foundation
import HTTPServing
import WebAPI

/// How many files and connections the system lets this process have.
package enum OpenFiles {
    /// What is kept for everything that is no connection of the API's: the admin address, the database, stores, files.
    private static let others = 256 + AdminServer.mostConnections

    /// Raises the limit as far as connections need it and the system allows.
    ///
    /// - Parameter connections: how many are wished for.
    /// - Returns: how many there may be.
    package static func raise(for connections: Int) -> Int {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return connections }
        let wanted = rlim_t(connections + others)
        if limit.rlim_cur < wanted {
            limit.rlim_cur = min(wanted, limit.rlim_max)
            guard setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return connections }
        }
        return min(connections, max(16, Int(clamping: limit.rlim_cur) - others))
    }
}
