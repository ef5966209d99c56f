import NIOSSL

/// Where and how the API listens.
package struct APISettings: Sendable {
    package var host: String
    /// 0 lets the system choose.
    package var port: Int
    /// `nil`: plain HTTP, for behind a proxy that ends TLS.
    package var tls: TLS?
    /// Connections at once; more wait until one ends.
    package var maxConnections: Int
    /// How long a request may take to arrive.
    package var requestTime: Duration

    package init(
        host: String,
        port: Int,
        tls: TLS? = nil,
        maxConnections: Int = 10_000,
        requestTime: Duration = .seconds(30)
    ) {
        self.host = host
        self.port = port
        self.tls = tls
        self.maxConnections = maxConnections
        self.requestTime = requestTime
    }

    /// A certificate with its key.
    package struct TLS: Sendable {
        let configuration: TLSConfiguration

        /// Why they can't be used.
        package enum Fault: String, Error, Sendable {
            case certificate = "holds no certificate chain in PEM"
            case privateKey = "holds no private key in PEM"
        }

        /// Takes both as PEM, the certificate with those that lead to its root.
        ///
        /// - Throws: which of them can't be used.
        package init(certificate: String, privateKey: String) throws(Fault) {
            guard let chain = try? NIOSSLCertificate.fromPEMBytes(Array(certificate.utf8)), !chain.isEmpty else {
                throw .certificate
            }
            guard let key = try? NIOSSLPrivateKey(bytes: Array(privateKey.utf8), format: .pem) else {
                throw .privateKey
            }
            var configuration = TLSConfiguration.makeServerConfiguration(
                certificateChain: chain.map { .certificate($0) },
                privateKey: .privateKey(key)
            )
            configuration.minimumTLSVersion = .tlsv12
            self.configuration = configuration
        }
    }
}
