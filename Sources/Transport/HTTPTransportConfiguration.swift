/// How an ``HTTPTransport`` connects, and how much it takes on.
///
/// A transport traps on counts and times that are not positive: these values come from code, not from users.
package struct HTTPTransportConfiguration: Sendable {
    /// Connections open to one host and port at a time; further requests wait for one, or share one over HTTP/2.
    package var maxConnectionsPerHost: Int

    /// Connections open to all hosts together, idle ones included.
    package var maxTotalConnections: Int

    /// Longest time from the start of a connection to its readiness: name lookup, TCP and TLS together.
    package var connectTimeout: Duration

    /// Requests handed to libcurl at a time, over all hosts.
    package var maxInFlight: Int

    /// Requests that may wait for a place in flight, first in, first out; the next fails with `.overloaded`.
    package var maxQueued: Int

    /// Bytes of status line and header fields accepted in one response, trailers and interim responses included.
    package var maxResponseHeaderBytes: Int

    /// Value of the `User-Agent` field of requests that bring none.
    package var userAgent: String

    /// Path of a PEM file that replaces the system's trust store, or `nil` for the system's own.
    package var caFile: String?

    /// The defaults suit a worker that talks to a handful of stores.
    package init(
        maxConnectionsPerHost: Int = 64,
        maxTotalConnections: Int = 256,
        connectTimeout: Duration = .seconds(5),
        maxInFlight: Int = 256,
        maxQueued: Int = 4096,
        maxResponseHeaderBytes: Int = 64 << 10,
        userAgent: String = "entitlement-sync",
        caFile: String? = nil
    ) {
        self.maxConnectionsPerHost = maxConnectionsPerHost
        self.maxTotalConnections = maxTotalConnections
        self.connectTimeout = connectTimeout
        self.maxInFlight = maxInFlight
        self.maxQueued = maxQueued
        self.maxResponseHeaderBytes = maxResponseHeaderBytes
        self.userAgent = userAgent
        self.caFile = caFile
    }

    func preconditionValid() {
        precondition(maxConnectionsPerHost > 0, "maxConnectionsPerHost must be positive")
        precondition(maxTotalConnections > 0, "maxTotalConnections must be positive")
        precondition(connectTimeout > .zero, "connectTimeout must be longer than zero")
        precondition(maxInFlight > 0, "maxInFlight must be positive")
        precondition(maxQueued >= 0, "maxQueued must not be negative")
        precondition(maxResponseHeaderBytes > 0, "maxResponseHeaderBytes must be positive")
    }
}
