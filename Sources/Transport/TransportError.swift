import CLibCurl

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

extension TransportError {
    /// Classifies libcurl's verdict on a transfer: any code but `CURLE_OK`.
    init(curl: CURLcode, requestSent: Bool) {
        let row = Self.table.first { $0.codes.contains(curl) }
        self.init(
            row?.code ?? .protocol_,
            row?.reason ?? "libcurl failed",
            requestSent: requestSent,
            curlCode: Int(curl.rawValue)
        )
    }

    /// libcurl's codes by meaning; what is missing counts as `.protocol_`.
    private static let table: [(codes: [CURLcode], code: Code, reason: StaticString)] = [
        ([CURLE_COULDNT_RESOLVE_HOST], .resolve, "the host name did not resolve"),
        ([CURLE_COULDNT_CONNECT], .connect, "no connection to the peer"),
        // The total time is kept by the loop, so libcurl's own clock only ever guards the connection's making.
        ([CURLE_OPERATION_TIMEDOUT], .connectTimeout, "the connection took too long"),
        (
            [
                CURLE_SSL_CONNECT_ERROR, CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CERTPROBLEM, CURLE_SSL_CIPHER,
                CURLE_SSL_CACERT_BADFILE, CURLE_SSL_CRL_BADFILE, CURLE_SSL_ISSUER_ERROR, CURLE_SSL_INVALIDCERTSTATUS,
                CURLE_SSL_PINNEDPUBKEYNOTMATCH, CURLE_SSL_CLIENTCERT, CURLE_SSL_SHUTDOWN_FAILED, CURLE_USE_SSL_FAILED,
                CURLE_SSL_ENGINE_INITFAILED, CURLE_SSL_ENGINE_NOTFOUND, CURLE_SSL_ENGINE_SETFAILED,
            ], .tls, "TLS failed"
        ),
        (
            [CURLE_GOT_NOTHING, CURLE_PARTIAL_FILE, CURLE_RECV_ERROR, CURLE_SEND_ERROR, CURLE_HTTP2_STREAM],
            .reset, "the peer ended the exchange early"
        ),
        // libcurl says "out of memory" for a header line beyond its own cap of 100 KiB.
        ([CURLE_OUT_OF_MEMORY], .tooLarge, "the response header exceeds libcurl's own cap"),
        ([CURLE_URL_MALFORMAT], .invalidRequest, "libcurl cannot read the URL"),
        (
            [CURLE_WEIRD_SERVER_REPLY, CURLE_HTTP2, CURLE_UNSUPPORTED_PROTOCOL, CURLE_BAD_CONTENT_ENCODING],
            .protocol_, "the peer does not speak HTTP as it should"
        ),
    ]
}
