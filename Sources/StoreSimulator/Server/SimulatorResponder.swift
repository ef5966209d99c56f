internal import HTTPTypes
internal import Hummingbird
internal import NIOCore

/// The simulated stores behind Hummingbird's responder protocol, for tests without a socket.
///
/// Delays and broken connections have no meaning here; `SimulatorChannel` is what a live server uses.
struct SimulatorResponder: HTTPResponder {
    typealias Context = BasicRequestContext

    let simulation: Simulation

    func respond(to request: Request, context: Context) async throws -> Response {
        var storeRequest = StoreRequest(
            method: request.method.rawValue,
            target: request.uri.string,
            authorization: request.headers[.authorization],
            contentType: request.headers[.contentType]
        )
        storeRequest.body = try await request.body.collect(upTo: 64 << 20)
        simulation.began(storeRequest)
        defer { simulation.ended(storeRequest) }
        let reply = simulation.answer(storeRequest)
        guard reply.status >= 100 else { throw HTTPError(.badGateway) }
        // Reading the very bytes of a live answer keeps both paths alike.
        var bytes: [UInt8] = []
        ResponseHead.write(reply, keepsAlive: true, to: &bytes)
        var fields = HTTPFields()
        for line in String(decoding: bytes, as: UTF8.self).split(separator: "\r\n").dropFirst() {
            let parts = line.split(separator: ":", maxSplits: 1)
            guard parts.count == 2, let name = HTTPField.Name(String(parts[0])) else { continue }
            fields[name] = String(parts[1].drop { $0 == " " })
        }
        return Response(
            status: .init(code: reply.status),
            headers: fields,
            body: ResponseBody(byteBuffer: ByteBuffer(bytes: reply.body))
        )
    }
}
