import HummingbirdCore
import Logging
package import NIOCore

/// Connections that are answered on the threads that read and write them.
///
/// To hand a request to another thread and its answer back costs two wake-ups, which take longer than a short answer.
/// Work that takes long does not belong into an answer anyway.
struct LoopChannel<Base: ServerChildChannel>: ServerChildChannel {
    let base: Base
    /// Stands before everything else of a connection.
    let first: @Sendable () -> any ChannelHandler

    func setup(channel: any Channel, logger: Logger) -> EventLoopFuture<Base.Value> {
        channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(first()) }
            .flatMap { base.setup(channel: channel, logger: logger) }
    }

    func handle(value: Base.Value, logger: Logger) async {
        await withTaskExecutorPreference(LoopExecutor(value.channel.eventLoop)) {
            await base.handle(value: value, logger: logger)
        }
    }
}

/// Runs tasks on an event loop, where they must be brief.
package final class LoopExecutor: TaskExecutor {
    private let loop: any EventLoop

    package init(_ loop: any EventLoop) { self.loop = loop }

    package func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        loop.execute { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
    }
}
