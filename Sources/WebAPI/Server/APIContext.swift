import HTTPServing
import Hummingbird
import Logging
import NIOCore

/// What is known of a request beside what it says.
struct APIContext: RequestContext {
    var coreContext: CoreRequestContextStorage
    /// Names the request in the log and in its answer.
    var requestID: String
    /// The address at the other end of the connection.
    let peer: SocketAddress?
    let channel: any Channel

    init(source: ApplicationRequestContextSource) {
        coreContext = .init(source: source)
        requestID = ""
        peer = source.channel.remoteAddress
        channel = source.channel
    }
}

extension SecurityLog {
    /// Counts and logs that a request was refused because of who sent it.
    func refused(_ endpoint: String, _ reason: String, _ context: APIContext) {
        refused(endpoint, reason, context.logger)
    }
}
