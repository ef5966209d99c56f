import Logging
import SupportDesk

/// What a worker does for the desk.
package struct DeskWork: Sendable {
    /// Whether others hear of what becomes of tickets.
    package var tells = false
    let collector: EvidenceCollector
    let runner: TransferRunner
    let tokens: TokenWriter

    package init(collector: EvidenceCollector, runner: TransferRunner, tokens: TokenWriter) {
        self.collector = collector
        self.runner = runner
        self.tokens = tokens
    }
}

extension Worker {
    /// Collects evidence, for people who will look.
    func evidenceDuty() async {
        guard let desk else { return }
        await repeatedly("evidence could not be collected; trying again") {
            if desk.tells { _ = try await desk.collector.records.tell() }
            return try await desk.collector.step()
        }
    }

    /// Carries approved transfers out.
    func transferDuty() async {
        guard let desk else { return }
        await repeatedly("transfers could not be carried on; trying again") { try await desk.runner.step() }
    }

    /// Tells the App Store whose purchases are that were moved; a duty of its own, so that no transfer waits for it.
    func tokenDuty() async {
        guard let desk else { return }
        await repeatedly("account tokens could not be written; trying again") { try await desk.tokens.step() }
    }

    func repeatedly(_ complaint: Logger.Message, _ step: () async throws -> Int) async {
        while !Task.isCancelled, !shared.isStopping {
            do {
                if try await step() > 0 { continue }
            } catch {
                guard !Task.isCancelled, !shared.isStopping else { return }
                logger.warning(complaint, metadata: describe(error))
            }
            try? await Task.sleep(for: .seconds(1))
        }
    }
}
