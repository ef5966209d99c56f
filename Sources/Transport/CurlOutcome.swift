import CLibCurl

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
