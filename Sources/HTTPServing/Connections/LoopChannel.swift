package import HummingbirdCore
package import Logging
package import NIOCore

/// Connections that are answered on the threads that read and write them.
///
/// To hand each request to another thread and its answer back costs two wake-ups, and what is short has waited longer by
/// then than it takes. Work that takes long does not belong into an answer anyway.
package struct LoopChannel<Base: ServerChildChannel>: ServerChildChannel {
    package let base: Base
    /// Stands before everything else of a connection.
    package let first: @Sendable () -> any ChannelHandler

    package func setup(channel: any Channel, logger: Logger) -> EventLoopFuture<Base.Value> {
        channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(first()) }
            .flatMap { base.setup(channel: channel, logger: logger) }
    }

    package func handle(value: Base.Value, logger: Logger) async {
        await withTaskExecutorPreference(LoopExecutor(value.channel.eventLoop)) {
            await base.handle(value: value, logger: logger)
        }
    }
}
