package import Hummingbird
import Logging
package import NIOCore

/// What is known of a request to the admin address beside what it says.
package struct AdminContext: RequestContext {
    package var coreContext: CoreRequestContextStorage
    /// The address at the other end of the connection.
    package let peer: SocketAddress?

    package init(source: ApplicationRequestContextSource) {
        coreContext = .init(source: source)
        peer = source.channel.remoteAddress
    }
}
