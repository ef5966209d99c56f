import Logging
import Metrics
import SignedTokens
import Telemetry

/// Counts proofs, and logs those that don't verify: by their fault, never by what is in them.
struct ProofRefusals: Sendable {
    private let logger: Logger
    /// One line a minute for each kind and code, because a client can send many bad proofs.
    private let lines = LogThrottle<String>(every: .seconds(60))

    /// Proofs that were read, by kind and result.
    private static let metric = "entitlement_sync_proofs_total"

    init(logger: Logger) { self.logger = logger }

    /// Counts and logs a proof that was read.
    func note(_ kind: String, _ refusal: ProofRefusal?) {
        let result = refusal?.code.rawValue ?? "verified"
        Counter(label: Self.metric, dimensions: [("kind", kind), ("result", result)]).increment()
        guard let refusal, lines.leave(for: kind + refusal.code.rawValue) != nil else { return }
        logger.warning(
            "a proof does not verify",
            metadata: ["proof.kind": "\(kind)", "error.code": "\(refusal.code.rawValue)"]
        )
    }
}
