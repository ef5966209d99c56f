import Dispatch

extension DispatchQueue {
    /// Does work that blocks here, away from the cooperative pool, and waits for it.
    func run<Value: Sendable>(_ work: @escaping @Sendable () throws -> Value) async throws -> Value {
        try await withCheckedThrowingContinuation { continuation in
            async { continuation.resume(with: Result { try work() }) }
        }
    }
}
