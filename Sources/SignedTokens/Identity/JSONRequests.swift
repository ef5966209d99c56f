package import Entitlements
package import HTTPTypes
package import Transport

extension HTTPRequest {
    /// A request for JSON, at a whole path of a base URL's host.
    ///
    /// - Parameters:
    ///   - method: of HTTP.
    ///   - base: whose scheme and authority it has.
    ///   - path: the base's own, and what stands below it.
    ///   - accept: the type that is asked for.
    ///   - sending: the type of the body, where there is one.
    ///   - bearer: a token, which no proxy's table of headers may keep.
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
