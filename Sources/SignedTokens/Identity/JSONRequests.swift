package import Entitlements
package import HTTPTypes
package import Transport

extension HTTPRequest {
    /// A request at a whole path of a base URL's host; `sending` is the type of the body, where there is one.
    package init(
        _ method: Method,
        _ base: BaseURL,
        path: String,
        accept: String = "application/json",
        sending: String? = nil,
        bearer: String? = nil
    ) {
        var headers: HTTPFields = [.accept: accept]
        if let sending { headers[.contentType] = sending }
        if let bearer {
            var authorization = HTTPField(name: .authorization, value: "Bearer \(bearer)")
            authorization.indexingStrategy = .disallow
            headers.append(authorization)
        }
        self.init(method: method, scheme: base.scheme, authority: base.authority, path: path, headerFields: headers)
    }
}

extension HTTPClient {
    /// Asks for a document of JSON.
    ///
    /// - Throws: `ReadFailure`, also for every answer but 200.
    package func get(_ address: EndpointURL, bearer: String? = nil) async throws(ReadFailure) -> HTTPClientResponse {
        let request = HTTPRequest(.get, address.base, path: address.path, bearer: bearer)
        let response: HTTPClientResponse
        do throws(HTTPClientFailure) { response = try await send(request, nil) } catch {
            throw ReadFailure(error.code == .cancelled ? .interrupted : .unavailable)
        }
        guard response.status == 200 else { throw ReadFailure(.unavailable) }
        return response
    }
}
