import Logging
import Metrics
import StoreClients
import Synchronization

/// Counts proofs, and tells of those that don't verify: by their fault, never by what is in them.
struct ProofRefusals: Sendable {
    private let logger: Logger
    private let told = Told()

    /// Proofs that were read, by kind and result.
    private static let metric = "entitlement_sync_proofs_total"

    init(logger: Logger) { self.logger = logger }

    /// Notes a proof that was looked at.
    func note(_ kind: String, _ refusal: ProofRefusal?) {
        let result = refusal?.code.rawValue ?? "verified"
        Counter(label: Self.metric, dimensions: [("kind", kind), ("result", result)]).increment()
        guard let refusal, told.mayTell(kind + refusal.code.rawValue) else { return }
        logger.warning(
            "a proof does not verify",
            metadata: ["proof.kind": "\(kind)", "error.code": "\(refusal.code.rawValue)"]
        )
    }

    /// Once a minute each: whoever sends bad proofs can send many.
    private final class Told: Sendable {
        private let last = Mutex<[String: ContinuousClock.Instant]>([:])

        func mayTell(_ name: String) -> Bool {
            last.withLock { last in
                let now = ContinuousClock.now
                if let before = last[name], now - before < .seconds(60) { return false }
                last[name] = now
                return true
            }
        }
    }
}
