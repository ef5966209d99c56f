/// Why a request brought no complete response.
///
/// An HTTP status of any kind is a response, never an error. Nothing here names the URL, a header value or a body, so
/// values of this type may be logged as they are.
package struct TransportError: Error, Sendable, Equatable {
    /// The raw values serve as metric and log labels.
    package enum Code: String, Sendable, CaseIterable {
        /// No TCP connection: refused, unreachable, or out of descriptors.
        case connect
        /// The host name did not resolve.
        case resolve
        /// TLS failed: untrusted certificate, wrong host name, or no common protocol.
        case tls
        /// The time given to `send` ran out, waiting for a place included.
        case timeout
        /// The connection was not ready within `connectTimeout`.
        case connectTimeout = "connect_timeout"
        /// The peer closed or reset before the response was complete.
        case reset
        /// The response's header or body exceeded its cap.
        case tooLarge = "too_large"
        /// The request cannot be sent as it stands; repeating it is pointless.
        case invalidRequest = "invalid_request"
        /// The calling task was cancelled.
        case cancelled
        /// The transport is shut down, or was before the response arrived.
        case closed
        /// As many requests wait as may.
        case overloaded
        /// The peer did not speak HTTP as it should, or libcurl failed inside.
        case protocol_ = "protocol"
    }

    package var code: Code

    /// A short fixed text, safe for logs.
    package var reason: String

    /// `false` proves that the peer never saw the request; `true` proves nothing.
    package var requestSent: Bool

    /// libcurl's own code where the failure came from there (`CURLcode`), for diagnosis only.
    package var curlCode: Int?

    /// Creates an error; `reason` is a literal, so that no request data can end up in it.
    package init(_ code: Code, _ reason: StaticString, requestSent: Bool = false, curlCode: Int? = nil) {
        self.code = code
        self.reason = "\(reason)"
        self.requestSent = requestSent
        self.curlCode = curlCode
    }
}

extension TransportError: CustomStringConvertible {
    /// Such as `reset: the peer closed the connection early (curl 56)`.
    package var description: String {
        guard let curlCode else { return "\(code.rawValue): \(reason)" }
        return "\(code.rawValue): \(reason) (curl \(curlCode))"
    }
}
