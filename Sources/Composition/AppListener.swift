package import Logging
package import Postgres
package import Queue
import ServiceLifecycle
package import SupportConsole
package import WebAPI

/// Listens for notifications on one connection, for all parts of an app.
///
/// A notification is a hint: each part also reads by itself, and all of it after a gap.
package struct AppListener: Service {
    private enum Channel: String, CaseIterable {
        /// Another process has queued a job.
        case wake = "entitlement_sync_wake"
        /// A restore has ended.
        case outcome = "entitlement_sync_outcome"
        /// A ticket has changed.
        case desk = "entitlement_sync_desk"
    }

    private let listener: PostgresListener
    private let dequeue: DequeueSignal?
    private let statusHub: StatusHub?
    private let console: SupportConsole?
    private let scope: ServiceScope
    private let logger: Logger

    /// Takes the parts that go by it, and the scope whose services then come out of their rest.
    package init(
        _ listener: PostgresListener,
        dequeue: DequeueSignal?,
        statusHub: StatusHub? = nil,
        console: SupportConsole? = nil,
        scope: ServiceScope = ServiceScope(),
        logger: Logger
    ) {
        self.listener = listener
        self.dequeue = dequeue
        self.statusHub = statusHub
        self.console = console
        self.scope = scope
        self.logger = logger
    }

    private var channels: [String] {
        var channels: [Channel] = []
        if dequeue != nil { channels.append(.wake) }
        if statusHub != nil { channels.append(.outcome) }
        // Workers collect evidence and run transfers: a changed ticket ends their rest.
        if console != nil || dequeue != nil { channels.append(.desk) }
        return channels.map(\.rawValue)
    }

    /// Listens until a graceful shutdown.
    package func run() async {
        guard !channels.isEmpty else { return }
        await PeriodicService("listener", .untilEnd, rests: false, every: .seconds(60), logger: logger) {
            defer {
                statusHub?.disconnected()
                scope.stopListening()
            }
            try await listener.run(
                channels: channels,
                onNotification: { notification in receive(notification) },
                onConnected: {
                    scope.listen()
                    dequeue?.raise()
                    statusHub?.connected()
                    console?.changed()
                },
                onInterrupted: { scope.stopListening() }
            )
            return .idle
        }.run()
    }

    private func receive(_ notification: PostgresNotification) {
        scope.stir()
        switch Channel(rawValue: notification.channel) {
        case .wake: dequeue?.receive(notification.payload)
        case .outcome: statusHub?.notified(notification.payload)
        case .desk: console?.changed()
        case nil: break
        }
    }
}
