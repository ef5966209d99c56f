import Crypto
import Foundation
import HTTPTypes
import TextFormats
package import Transport

/// Sends webhooks to an HTTPS endpoint of the team's.
///
/// They are signed as the Standard Webhooks specification has it, so that libraries in most languages verify them.
///
/// - SeeAlso: https://www.standardwebhooks.com
package struct WebhookSender: Sendable {
    /// What may be wrong with the settings.
    package enum Fault: String, Sendable, CaseIterable {
        case url = "the receiver's URL is not of the form https://host[:port]/path"
        case insecureURL = "the receiver's URL is plain http to a host other than loopback"
        case secret = "the receiver's secret is no Base64 behind whsec_, or shorter than 16 bytes"
    }

    /// Why a message was not taken.
    package enum Failure: Error, Hashable, Sendable {
        /// It answered, but not with 2xx.
        case refused(status: Int)
        case unreachable(HTTPClientFailure.Code)

        /// The kind, fit for logs and records.
        package var code: String {
            switch self {
            case .refused(let status): "status_\(status)"
            case .unreachable(let code): code.rawValue
            }
        }
    }

    private static let prefix = "whsec_"
    private static let shortestSecret = 16

    private let endpoint: EndpointURL
    private let key: SymmetricKey
    private let http: HTTPClient
    private let systemSeconds: @Sendable () -> Int64

    /// Describes where webhooks go; throws every fault at once.
    ///
    /// Plain http is taken for loopback hosts only. The secret is `whsec_` and Base64, or any text, whose UTF-8 bytes are the key
    /// then. `systemSeconds` is the system's clock, in seconds since 1970.
    package init(
        url: String,
        secret: String,
        http: HTTPClient,
        systemSeconds: @escaping @Sendable () -> Int64 = { Int64(Date().timeIntervalSince1970) }
    ) throws(SettingFaults<Fault>) {
        var faults: [Fault] = []
        let endpoint = BaseURL.Fault.noting(.url, .insecureURL, &faults) { () throws(BaseURL.Fault) in
            try EndpointURL(url)
        }
        let bytes =
            secret.hasPrefix(Self.prefix)
            ? Base64.decode(secret.dropFirst(Self.prefix.count).utf8, .standard) ?? [] : Array(secret.utf8)
        if bytes.count < Self.shortestSecret { faults.append(.secret) }
        guard let endpoint, faults.isEmpty else { throw SettingFaults(faults: faults) }
        self.endpoint = endpoint
        key = SymmetricKey(data: Data(bytes))
        self.http = http
        self.systemSeconds = systemSeconds
    }

    /// Delivers a message, whose id is the same at every try; after a failure it has to be delivered again.
    package func deliver(_ body: [UInt8], id: String) async throws(Failure) {
        let seconds = systemSeconds()
        let signed = Array("\(id).\(seconds).".utf8) + body
        let code = HMAC<SHA256>.authenticationCode(for: signed, using: key)
        var headers: HTTPFields = [.contentType: "application/json"]
        let signature = "v1," + Data(code).base64EncodedString()
        for (name, value) in [("id", id), ("timestamp", "\(seconds)"), ("signature", signature)] {
            if let name = HTTPField.Name("webhook-" + name) { headers[name] = value }
        }
        let request = HTTPRequest(
            method: .post,
            scheme: endpoint.base.scheme,
            authority: endpoint.base.authority,
            path: endpoint.path,
            headerFields: headers
        )
        let answer: HTTPClientResponse
        do throws(HTTPClientFailure) { answer = try await http.send(request, body) } catch {
            throw .unreachable(error.code)
        }
        guard (200...299).contains(answer.status) else { throw .refused(status: answer.status) }
    }
}
