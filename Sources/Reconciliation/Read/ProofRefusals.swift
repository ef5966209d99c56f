import Logging
import Metrics
import SignedTokens
import StoreClients
import Synchronization

/// Counts proofs, and tells of those that don't verify: by their fault, never by what is in them.
struct ProofRefusals: Sendable {
    private let logger: Logger
    private let lines = LineLimit()

    /// Proofs that were read, by kind and result.
    private static let metric = "entitlement_sync_proofs_total"

    init(logger: Logger) { self.logger = logger }

    /// Counts and logs a proof that was read.
    func note(_ kind: String, _ refusal: ProofRefusal?) {
        let result = refusal?.code.rawValue ?? "verified"
        Counter(label: Self.metric, dimensions: [("kind", kind), ("result", result)]).increment()
        guard let refusal, lines.allows(kind + refusal.code.rawValue) else { return }
        logger.warning(
            "a proof does not verify",
            metadata: ["proof.kind": "\(kind)", "error.code": "\(refusal.code.rawValue)"]
        )
    }

    /// One line a minute for each kind and code, because a client can send many bad proofs.
    private final class LineLimit: Sendable {
        private let last = Mutex<[String: ContinuousClock.Instant]>([:])

        func allows(_ name: String) -> Bool {
            last.withLock { last in
                let now = ContinuousClock.now
                if let before = last[name], now - before < .seconds(60) { return false }
                last[name] = now
                return true
            }
        }
    }
}
