package import Logging
import Postgres

extension Leadership {
    /// Repeats a step for as long as this process leads, and tries to lead for as long as it does not; until the task is
    /// cancelled, then it steps down.
    ///
    /// - Parameters:
    ///   - complaint: what the log says of a step that failed.
    ///   - logger: hears of changes.
    ///   - step: does something under a number; returns how long to wait.
    ///   - onChange: hears when this process begins to lead, and when it does no more.
    package func whileLeading(
        _ complaint: Logger.Message,
        logger: Logger,
        _ step: (Int64) async throws -> Duration,
        onChange: (Bool) -> Void = { _ in }
    ) async {
        let clock = ContinuousClock()
        let metadata: Logger.Metadata = ["lead": "\(duty.rawValue)"]
        var fence: Int64?
        var renewal = clock.now
        while !Task.isCancelled {
            var pause = duration / 4
            do {
                if clock.now >= renewal {
                    let held = fence
                    fence = try await take(held)
                    renewal = clock.now + duration / 4
                    if (fence == nil) != (held == nil) { onChange(fence != nil) }
                    if let fence, fence != held {
                        logger.info("leading", metadata: metadata.merging(["lead.fence": "\(fence)"]) { $1 })
                    } else if fence == nil, held != nil {
                        logger.warning("leadership was lost: another process leads", metadata: metadata)
                    }
                }
                if let fence { pause = min(try await step(fence), pause) }
            } catch {
                guard !Task.isCancelled else { break }
                logger.warning(complaint, metadata: metadata.merging(["error.code": "\(code(of: error))"]) { $1 })
                pause = .seconds(1)
            }
            try? await Task.sleep(for: pause)
        }
        guard let fence else { return }
        // A task of its own, because this one is cancelled.
        await Task { try? await stepDown(fence) }.value
    }

    private func code(of error: any Error) -> String {
        (error as? PostgresError).map { $0.sqlState ?? $0.code.rawValue } ?? "\(type(of: error))"
    }
}
