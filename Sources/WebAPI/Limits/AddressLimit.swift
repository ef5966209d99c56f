import Hummingbird
import NIOCore

/// Counts requests by the address they come from.
struct AddressLimit: RouterMiddleware {
    let limit: RequestLimit?
    /// Paths that are not counted: health, and doors whose own checks come first.
    let spares: @Sendable (String) -> Bool

    @concurrent func handle(
        _ request: Request,
        context: APIContext,
        next: @concurrent (Request, APIContext) async throws -> Response
    ) async throws -> Response {
        if let limit, !spares(request.uri.path) { try await limit.count(Self.name(of: context.peer)) }
        return try await next(request, context)
    }

    /// The address without its port; of IPv6 the network, for a host has as many addresses as it wants.
    static func name(of peer: SocketAddress?) -> String {
        guard let peer else { return "unknown" }
        switch peer {
        case .v6:
            // Family, port and flow come first; of the address its first half.
            return peer.withSockAddr { start, size in
                UnsafeRawBufferPointer(start: start, count: size)[8..<16].map { String($0, radix: 16) }
                    .joined(separator: ":")
            }
        default: return peer.ipAddress ?? "unknown"
        }
    }
}
