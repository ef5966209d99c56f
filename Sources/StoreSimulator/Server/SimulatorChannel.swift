internal import HummingbirdCore
internal import Logging
internal import NIOCore
internal import NIOHTTP1

/// An accepted connection.
struct SimulatorConnection: ServerChildChannelValue {
    let channel: any Channel
}

/// Sets up connections whose requests are answered on their event loop.
///
/// Hummingbird's own channel hands each request to a task. Here the answer is a short step without waiting, so the two
/// thread hops would cost more than the answer; and closing, resetting or dripping needs the channel itself.
struct SimulatorChannel: ServerChildChannel {
    let simulation: Simulation

    func setup(channel: any Channel, logger: Logger) -> EventLoopFuture<SimulatorConnection> {
        channel.eventLoop.makeCompletedFuture {
            let decoder = HTTPRequestDecoder(leftOverBytesStrategy: .dropBytes)
            try channel.pipeline.syncOperations.addHandler(ByteToMessageHandler(decoder))
            try channel.pipeline.syncOperations.addHandler(ExchangeHandler(simulation: simulation))
            return SimulatorConnection(channel: channel)
        }
    }

    func handle(value: SimulatorConnection, logger: Logger) async {
        await withTaskCancellationHandler {
            // The future fails only where closing itself failed; the connection is gone all the same.
            try? await value.channel.closeFuture.get()
        } onCancel: {
            // Lets a running answer finish; deliberate delays are cut short.
            value.channel.pipeline.fireUserInboundEventTriggered(ChannelShouldQuiesceEvent())
        }
    }
}
