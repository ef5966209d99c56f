import NIOCore

/// Why an address could not be listened on.
package struct ListenFailure: Error, Sendable {
    /// What would have been served there.
    package var service: String
    package var host: String
    package var port: Int
    /// The system's word for it.
    package var reason: String
    /// The same for logs.
    package var code: String

    /// Takes a framework's error as such a failure, where it is one.
    package init?(_ error: any Error, _ service: String, host: String, port: Int) {
        guard let error = error as? IOError else { return nil }
        self.service = service
        self.host = host
        self.port = port
        reason = error.errnoCode == 98 ? "another program listens there already" : "errno \(error.errnoCode)"
        code = error.errnoCode == 98 ? "address_in_use" : "errno_\(error.errnoCode)"
    }
}
