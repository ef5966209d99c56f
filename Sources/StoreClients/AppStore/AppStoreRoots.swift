import Crypto
import SwiftASN1
package import X509

/// The certificates that everything signed by the App Store leads to.
package enum AppStoreRoots {
    /// Apple Root CA - G3, valid from 2014-04-30 to 2039-04-30.
    ///
    /// - SeeAlso: https://www.apple.com/certificateauthority/
    private static let appleRootG3 = """
        -----BEGIN CERTIFICATE-----
        MIICQzCCAcmgAwIBAgIILcX8iNLFS5UwCgYIKoZIzj0EAwMwZzEbMBkGA1UEAwwS
        QXBwbGUgUm9vdCBDQSAtIEczMSYwJAYDVQQLDB1BcHBsZSBDZXJ0aWZpY2F0aW9u
        IEF1dGhvcml0eTETMBEGA1UECgwKQXBwbGUgSW5jLjELMAkGA1UEBhMCVVMwHhcN
        MTQwNDMwMTgxOTA2WhcNMzkwNDMwMTgxOTA2WjBnMRswGQYDVQQDDBJBcHBsZSBS
        b290IENBIC0gRzMxJjAkBgNVBAsMHUFwcGxlIENlcnRpZmljYXRpb24gQXV0aG9y
        aXR5MRMwEQYDVQQKDApBcHBsZSBJbmMuMQswCQYDVQQGEwJVUzB2MBAGByqGSM49
        AgEGBSuBBAAiA2IABJjpLz1AcqTtkyJygRMc3RCV8cWjTnHcFBbZDuWmBSp3ZHtf
        TjjTuxxEtX/1H7YyYl3J6YRbTzBPEVoA/VhYDKX1DyxNB0cTddqXl5dvMVztK517
        IDvYuVTZXpmkOlEKMaNCMEAwHQYDVR0OBBYEFLuw3qFYM4iapIqZ3r6966/ayySr
        MA8GA1UdEwEB/wQFMAMBAf8wDgYDVR0PAQH/BAQDAgEGMAoGCCqGSM49BAMDA2gA
        MGUCMQCD6cHEFl4aXTQY2e3v9GwOAEZLuN+yRhHFD/3meoyhpmvOwgPUnPWTxnS4
        at+qIxUCMG1mihDK1A3UT82NQz60imOlM27jbdoXt2QfyFMm+YhidDkLF1vLUagM
        6BgD56KyKA==
        -----END CERTIFICATE-----
        """

    /// SHA-256 of the certificate's DER.
    static let appleRootG3Fingerprint = "63343abfb89a6a03ebb57e9b3f5fa7be7c4f5c756f3017b3a8c488c3653e9179"

    /// The root that is shipped.
    ///
    /// - Throws: when this program was altered: the certificate is not the one whose fingerprint stands beside it.
    package static func shipped() throws -> [Certificate] {
        let document = try PEMDocument(pemString: appleRootG3)
        let fingerprint = SHA256.hash(data: document.derBytes)
            .map { byte in (byte < 16 ? "0" : "") + String(byte, radix: 16) }.joined()
        guard fingerprint == appleRootG3Fingerprint else {
            throw ProofRefusal(.badCertificate, "The root certificate that is shipped is not Apple's.")
        }
        return [try Certificate(pemDocument: document)]
    }

    /// The roots of a PEM file, which replace the one that is shipped.
    ///
    /// - Throws: where the text holds no certificate, or one that does not decode.
    package static func read(pem: String) throws -> [Certificate] {
        let roots = try PEMDocument.parseMultiple(pemString: pem).map { try Certificate(pemDocument: $0) }
        guard !roots.isEmpty else { throw ProofRefusal(.badCertificate, "There is no certificate in the file.") }
        return roots
    }
}
