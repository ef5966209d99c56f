import Glibc

/// A TCP port on loopback that was free a moment ago.
///
/// - Returns: the port; 0 when the machine has none left.
package func freeLoopbackPort() -> UInt16 {
    let listener = LoopbackListener()
    defer { listener.close() }
    return listener.port
}

/// A socket on loopback that accepts connections into its backlog and never says a word: a server that hangs.
package struct LoopbackListener: Sendable {
    private let descriptor: Int32
    /// Where it listens; 0 when it could not be made.
    package let port: UInt16

    /// Begins to listen on a free port.
    package init() {
        descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let descriptor = descriptor
        let isListening = withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                bind(descriptor, address, length) == 0 && listen(descriptor, 16) == 0
                    && getsockname(descriptor, address, &length) == 0
            }
        }
        port = isListening ? UInt16(bigEndian: address.sin_port) : 0
    }

    /// Stops listening; connections in the backlog are reset.
    package func close() { _ = Glibc.close(descriptor) }
}
