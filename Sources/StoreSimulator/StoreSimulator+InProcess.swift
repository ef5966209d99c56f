internal import NIOCore

/// An answer that went over no wire.
package struct InProcessAnswer: Sendable {
    /// HTTP status; 0 where the connection would have been closed without an answer.
    package var status: Int
    /// Header lines in their order, those included that every answer has.
    package var headers: [(name: String, value: String)]
    package var body: [UInt8]
}

extension StoreSimulator {
    /// Answers a request without a socket, with what would have gone over the wire; delays are left out.
    package func answer(
        method: String,
        target: String,
        authorization: String? = nil,
        contentType: String? = nil,
        body: [UInt8] = []
    ) -> InProcessAnswer {
        var request = StoreRequest(
            method: method,
            target: target,
            authorization: authorization,
            contentType: contentType
        )
        request.body = ByteBuffer(bytes: body)
        simulation.began(request)
        defer { simulation.ended(request) }
        let reply = simulation.answer(request)
        guard reply.status >= 100, reply.delivery != .drop, reply.delivery != .reset, reply.delivery != .cut else {
            return InProcessAnswer(status: 0, headers: [], body: [])
        }
        // Reading the very bytes of a live answer keeps both paths alike.
        var head: [UInt8] = []
        ResponseHead.write(reply, keepsAlive: true, to: &head)
        let headers = String(decoding: head, as: UTF8.self).split(separator: "\r\n").dropFirst()
            .compactMap { line -> (name: String, value: String)? in
                let parts = line.split(separator: ":", maxSplits: 1)
                return parts.count == 2 ? (String(parts[0]), String(parts[1].drop { $0 == " " })) : nil
            }
        let filler = Array(repeating: UInt8(ascii: "x"), count: reply.fillerBytes)
        return InProcessAnswer(status: reply.status, headers: headers, body: reply.body + filler + reply.tail)
    }
}
