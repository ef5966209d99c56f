@testable import HTTPServing
import NIOCore
import Testing

/// Whom requests are counted for.
@Suite struct TrustedProxiesTests {
    private func client(_ list: String, _ peer: String, _ forwarded: String?) throws -> String {
        let address = try SocketAddress(ipAddress: peer, port: 40_000)
        return try TrustedProxies(list).client(address, forwarded: forwarded)
    }

    @Test(
        arguments: [
            // Nobody is trusted: the header is anybody's word.
            ("", "192.0.2.7", "198.51.100.1", "192.0.2.7"),
            ("10.0.0.0/8", "192.0.2.7", "198.51.100.1", "192.0.2.7"),
            ("10.0.0.0/8", "10.1.2.3", "198.51.100.1", "198.51.100.1"),
            ("10.0.0.0/8, 192.0.2.0/24", "10.1.2.3", "198.51.100.1, 192.0.2.7", "198.51.100.1"),
            // What the client wrote itself stands before what the proxies add.
            ("10.0.0.0/8", "10.1.2.3", "203.0.113.9, 198.51.100.1", "198.51.100.1"),
            ("10.0.0.0/8", "10.1.2.3", "nonsense", "10.1.2.3"),
            ("10.0.0.0/8", "10.1.2.3", "198.51.100.1, nonsense", "10.1.2.3"),
            ("10.0.0.0/8", "10.1.2.3", nil, "10.1.2.3"),
            ("10.1.2.3", "10.1.2.3", "198.51.100.1", "198.51.100.1"),
            ("10.1.2.2", "10.1.2.3", "198.51.100.1", "10.1.2.3"),
            ("10.1.2.2/31", "10.1.2.3", "198.51.100.1", "198.51.100.1"),
            ("::1", "::1", "198.51.100.1", "198.51.100.1"),
            ("10.0.0.0/8", "10.1.2.3", "198.51.100.1:50123", "198.51.100.1"),
            ("10.0.0.0/8", "10.1.2.3", "[2001:db8::7]:443", "2001:db8::7"),
            ("10.0.0.0/8", "10.1.2.3", "[2001:db8::7]", "2001:db8::7"),
            ("10.0.0.0/8", "::ffff:10.1.2.3", "198.51.100.1", "198.51.100.1"),
            ("0.0.0.0/0", "192.0.2.7", "198.51.100.1", "198.51.100.1"),
        ] as [(String, String, String?, String)]
    )
    func `The last hop that is no proxy of ours is the client`(
        list: String,
        peer: String,
        forwarded: String?,
        expected: String
    ) throws {
        let found = try client(list, peer, forwarded)
        #expect(try found == client("", expected, nil))
    }

    @Test func `Hosts of one network of IPv6 are one, and those of another are not`() throws {
        let one = try client("", "2001:db8:1:2::1", nil)
        #expect(try one == client("", "2001:db8:1:2:ffff::9", nil))
        #expect(try one != client("", "2001:db8:1:3::1", nil))
    }

    @Test func `A connection without an address is somebody all the same`() {
        #expect(TrustedProxies().client(nil, forwarded: nil) == "unknown")
    }

    @Test(arguments: ["localhost", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/x", "10.0.0", "::1/129", "/8"])
    func `What is no address is named`(entry: String) {
        #expect(throws: TrustedProxies.Fault(entry: entry)) { try TrustedProxies("10.0.0.0/8," + entry) }
    }
}
