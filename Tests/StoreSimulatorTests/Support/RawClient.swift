import NIOCore
import NIOPosix

@testable import StoreSimulator

/// A TCP client that shows exactly what came over the wire, and how it ended.
struct RawClient {
    let port: Int

    struct Outcome: Sendable {
        var text = ""
        /// How many reads the bytes came in.
        var reads = 0
        /// The error the connection ended with; nil after an orderly close.
        var errorCode: CInt?
        /// Bytes, which may be far more than `text` keeps.
        var bytes = 0
    }

    /// Sends text and reads until the server closes.
    func exchange(_ text: String) async throws -> Outcome {
        let connection = try await connect()
        return try await connection.executeThenClose { inbound, outbound in
            try await outbound.write(ByteBuffer(string: text))
            var outcome = Outcome()
            do {
                for try await part in inbound {
                    outcome.reads += 1
                    outcome.bytes += part.readableBytes
                    if outcome.text.utf8.count < 65_536 { outcome.text += String(buffer: part) }
                }
            } catch let error as IOError {
                outcome.errorCode = error.errnoCode
            }
            return outcome
        }
    }

    /// Opens a connection.
    func connect() async throws -> NIOAsyncChannel<ByteBuffer, ByteBuffer> {
        try await ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .connect(host: "127.0.0.1", port: port) { channel in
                channel.eventLoop.makeCompletedFuture {
                    try NIOAsyncChannel<ByteBuffer, ByteBuffer>(wrappingChannelSynchronously: channel)
                }
            }
    }

    /// Sends text on a connection of its own and reads nothing.
    func send(_ text: String) async throws {
        let channel = try await ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .connect(host: "127.0.0.1", port: port).get()
        try await channel.writeAndFlush(ByteBuffer(string: text))
    }

    /// A request for a path below `/v2/projects/p1/`.
    static func get(_ path: String, close: Bool = true) -> String {
        "GET /v2/projects/p1/\(path) HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer sk_x\r\n"
            + (close ? "Connection: close\r\n\r\n" : "\r\n")
    }
}
