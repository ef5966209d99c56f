import Entitlements
package import Logging
import Metrics
package import Queue
import ServiceLifecycle
package import StoreClients

/// Acknowledges granted sales to Google Play, which refunds a sale that stays unacknowledged for three days.
package struct Acknowledger: Service {
    private static let width = 20

    /// What came of one.
    enum Outcome: String, CaseIterable {
        case accepted, already, over, failed, missed
    }

    package let records: Acknowledgements
    private let apps: GooglePlayApps
    private let signal: Signal
    private let logger: Logger

    /// `signal` is raised when sales wait.
    package init(records: Acknowledgements, apps: GooglePlayApps, signal: Signal, logger: Logger) {
        self.records = records
        self.apps = apps
        self.signal = signal
        self.logger = logger
    }

    package func run() async {
        await PeriodicService("acknowledger", .untilEnd, every: .seconds(5), wokenBy: signal, logger: logger) {
            try await step()
        }.run()
    }

    /// Acknowledges due sales.
    package func step() async throws -> PeriodicService.Next {
        let due = try await records.take(upTo: Self.width)
        await withDiscardingTaskGroup { group in
            for sale in due { group.addTask { await settle(sale) } }
        }
        return due.count == Self.width ? .again : .idle
    }

    private func settle(_ due: Acknowledgements.Due) async {
        let sale = due.acknowledgement
        do {
            let outcome = try await acknowledge(due)
            Counter(label: "entitlement_sync_acknowledgements_total", dimensions: [("result", outcome.rawValue)])
                .increment()
            switch outcome {
            case .accepted, .already, .over: try await records.end(sale)
            case .failed: try await records.postpone(sale, for: Self.wait(due.attempt), error: "refused")
            case .missed:
                try await records.alarm(
                    "acknowledgement_missed",
                    "Google Play took back a sale that was granted and not acknowledged within its days: see the"
                        + " worker's log for the reason, and at the Play Console for the orders."
                )
                try await records.end(sale)
            }
        } catch {
            // It stands in the records and is taken up again.
            let code = (error as? ReadFailure)?.code.rawValue ?? "\(type(of: error))"
            try? await records.postpone(sale, for: Self.wait(due.attempt), error: code)
        }
    }

    // A user has paid and would lose the purchase: it comes before background work.
    private static let lane = Lane.event

    private func acknowledge(_ due: Acknowledgements.Due) async throws(ReadFailure) -> Outcome {
        let sale = due.acknowledgement
        guard let client = try await client(of: sale) else {
            // Nothing is set up for the app any more, or none of them knows the sale.
            if due.isPastDeadline { return .missed }
            throw ReadFailure(.storeOff, store: .googlePlay)
        }
        if due.wasCalled || due.isPastDeadline {
            switch try await client.acknowledgementState(of: sale, lane: Self.lane) {
            case .acknowledged: return .already
            case .over: return due.isPastDeadline ? .missed : .over
            case .unknown: return due.isPastDeadline ? .missed : .failed
            case .pending: break
            }
        }
        guard case .refused = try await client.acknowledge(sale, lane: Self.lane) else { return .accepted }
        // A second call, or a race of two, is refused as well: what counts is the sale's state now.
        switch try await client.acknowledgementState(of: sale, lane: Self.lane) {
        case .acknowledged: return .already
        case .over: return .over
        case .pending, .unknown: return .failed
        }
    }

    /// The client of the app that a sale was made in; of a sale from when there was one app, the first that knows it.
    private func client(of sale: Acknowledgement) async throws(ReadFailure) -> GooglePlayClient? {
        if sale.package != nil || apps.clients.count == 1 { return apps.client(of: sale.package) }
        for client in apps.clients {
            guard case .unknown = try await client.acknowledgementState(of: sale, lane: Self.lane) else {
                return client
            }
        }
        return nil
    }

    private static func wait(_ attempt: Int) -> Duration { min(.seconds(2) * (1 << min(attempt, 12)), .seconds(3600)) }
}
