import Glibc

/// A TCP port on loopback that was free a moment ago, and that this function returns no second time; 0 when none was found.
///
/// No other process gets it from this function either, until this one has ended. A stranger may take it meanwhile: then
/// its user tries another. It is below the range from which the kernel takes the local ends of connections, so that a
/// server that is restarted finds it free again.
package func freeLoopbackPort() -> UInt16 {
    for _ in 0..<200 {
        let port = UInt16.random(in: 22_000..<32_000)
        guard claimPort(port) else { continue }
        let (descriptor, number) = bindLoopback(port, listening: false)
        _ = Glibc.close(descriptor)
        if number != 0 { return number }
    }
    return 0
}

/// Takes a port's name for as long as this process lives: false where a process has it.
///
/// The name is an abstract socket's: the kernel gives it to one process alone, and frees it when that process has ended.
private func claimPort(_ port: UInt16) -> Bool {
    let descriptor = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    let name = Array("\0entitlement-sync-test-port-\(port)".utf8)
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: name) }
    let length = socklen_t(MemoryLayout<sa_family_t>.size + name.count)
    let isClaimed = withUnsafePointer(to: &address) { pointer in
        pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(descriptor, $0, length) == 0 }
    }
    // What was taken stays open on purpose.
    if !isClaimed { _ = Glibc.close(descriptor) }
    return isClaimed
}

/// A TCP port on loopback that refuses every connection: bound, so that no other process can take it, and never listening.
///
/// A port that was merely free a moment ago may belong to another process by the time it is used.
package struct ClosedPort: ~Copyable {
    private let descriptor: Int32
    /// The port; 0 when it could not be bound.
    package let number: UInt16

    /// Takes a port until the value goes away.
    package init() { (descriptor, number) = bindLoopback(listening: false) }

    deinit { _ = Glibc.close(descriptor) }
}

/// A socket on loopback that accepts connections into its backlog and never says a word: a server that hangs.
package struct LoopbackListener: Sendable {
    private let descriptor: Int32
    /// Where it listens; 0 when it could not be made.
    package let port: UInt16

    package init() { (descriptor, port) = bindLoopback(listening: true) }

    /// Stops listening; connections in the backlog are reset.
    package func close() { _ = Glibc.close(descriptor) }
}

/// Binds a new socket to a port, of the system's choice by default; port 0 when that failed.
func bindLoopback(_ port: UInt16 = 0, listening: Bool) -> (descriptor: Int32, port: UInt16) {
    let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
    let (isReady, bound) = withLoopback(port) { address, length in
        bind(descriptor, address, length.pointee) == 0 && (!listening || listen(descriptor, 16) == 0)
            && getsockname(descriptor, address, length) == 0
    }
    return (descriptor, isReady ? bound : 0)
}

/// Calls a function with the address of a port on loopback; also returns the port that the address has afterwards.
func withLoopback<Value>(
    _ port: UInt16,
    _ body: (UnsafeMutablePointer<sockaddr>, UnsafeMutablePointer<socklen_t>) -> Value
) -> (Value, port: UInt16) {
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    address.sin_port = port.bigEndian
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    let value = withUnsafeMutablePointer(to: &address) { pointer in
        pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { body($0, &length) }
    }
    return (value, UInt16(bigEndian: address.sin_port))
}
