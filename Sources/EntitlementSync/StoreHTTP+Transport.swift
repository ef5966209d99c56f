import HTTPTypes
import StoreClients
import Transport

extension StoreHTTP {
    /// Sends through the transport.
    ///
    /// A store has 20 s to answer, and 4 MiB to say it in.
    ///
    /// `target`: what its requests are counted under.
    init(transport: HTTPTransport, target: String = "revenuecat") {
        self.init { request, body throws(StoreHTTPFailure) in
            do throws(TransportError) {
                let exchange = try await transport.send(
                    request,
                    body: body,
                    timeout: .seconds(20),
                    maxResponseBytes: 4 << 20,
                    metricsLabel: target
                )
                return StoreHTTPResponse(
                    status: exchange.response.status.code,
                    headers: exchange.response.headerFields,
                    body: exchange.body
                )
            } catch {
                throw StoreHTTPFailure(Self.code(error.code))
            }
        }
    }

    private static func code(_ code: TransportError.Code) -> StoreHTTPFailure.Code {
        switch code {
        case .timeout, .connectTimeout: .timeout
        case .tooLarge: .tooLarge
        case .cancelled: .cancelled
        default: .unavailable
        }
    }
}
