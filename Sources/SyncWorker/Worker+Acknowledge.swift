import Entitlements
import Logging
import Metrics
import Queue
package import StoreClients
package import StoreEvents

/// Tells Google Play of sales that were granted.
package struct Acknowledger: Sendable {
    /// What came of one.
    enum Outcome: String, CaseIterable {
        case accepted, already, over, failed, missed
    }

    let records: Acknowledgements
    /// Makes the call; whether the sale was taken as granted, or only a read can tell.
    let call: @Sendable (Acknowledgement) async throws(ReadFailure) -> GooglePlayAcknowledged
    /// Reads whether the sale still waits.
    let state: @Sendable (Acknowledgement) async throws(ReadFailure) -> GooglePlayAcknowledgementState

    package init(records: Acknowledgements, client: GooglePlayClient) {
        self.records = records
        // People have paid and would lose it: it comes before anything that nobody waits for.
        call = { sale throws(ReadFailure) in try await client.acknowledge(sale, lane: .event) }
        state = { sale throws(ReadFailure) in try await client.acknowledgementState(of: sale, lane: .event) }
    }

    /// Makes what is due.
    ///
    /// - Returns: how many were taken up.
    func step() async throws -> Int {
        let due = try await records.take(upTo: 20)
        await withDiscardingTaskGroup { group in
            for sale in due { group.addTask { await settle(sale) } }
        }
        return due.count
    }

    private func settle(_ due: Acknowledgements.Due) async {
        let sale = due.acknowledgement
        do {
            let outcome = try await acknowledge(due)
            Counter(label: WorkerMetricNames.acknowledgements, dimensions: [("result", outcome.rawValue)]).increment()
            switch outcome {
            case .accepted, .already, .over: try await records.end(sale)
            case .failed: try await records.putOff(sale, for: Self.wait(due.attempt), error: "refused")
            case .missed:
                try await records.alarm(
                    "acknowledgement_missed",
                    "Google Play took back a sale that was granted and not acknowledged within its days: look at the"
                        + " worker's log for the reason, and at the Play Console for the orders."
                )
                try await records.end(sale)
            }
        } catch {
            // It stands in the records and is taken up again.
            let code = (error as? ReadFailure)?.code.rawValue ?? "\(type(of: error))"
            try? await records.putOff(sale, for: Self.wait(due.attempt), error: code)
        }
    }

    private func acknowledge(_ due: Acknowledgements.Due) async throws(ReadFailure) -> Outcome {
        let sale = due.acknowledgement
        if due.wasCalled || due.isPastDeadline {
            switch try await state(sale) {
            case .acknowledged: return .already
            case .over: return due.isPastDeadline ? .missed : .over
            case .untold: return due.isPastDeadline ? .missed : .failed
            case .pending: break
            }
        }
        guard case .refused = try await call(sale) else { return .accepted }
        // A second call, or a race of two, is refused as well: what counts is what the sale looks like now.
        switch try await state(sale) {
        case .acknowledged: return .already
        case .over: return .over
        case .pending, .untold: return .failed
        }
    }

    private static func wait(_ attempt: Int) -> Duration { min(.seconds(2) * (1 << min(attempt, 12)), .seconds(3600)) }
}

extension Worker {
    /// Acknowledges sales as they are granted.
    func acknowledgeDuty() async {
        guard let acknowledger else { return }
        while !Task.isCancelled {
            do {
                if try await acknowledger.step() == 20 { continue }
            } catch {
                guard !Task.isCancelled else { return }
                logger.warning("acknowledgements could not be read; trying again", metadata: describe(error))
            }
            await shared.salesWaiting.wait(upTo: .seconds(5))
        }
    }
}
