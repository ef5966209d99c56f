import Glibc
import Logging
import Synchronization

/// Writes lines to a file descriptor, one `write(2)` each, and never waits long for a reader that does not read.
///
/// A pipe or terminal that takes nothing for ``patience`` is not waited for again: lines are dropped and counted until
/// it takes some, and the next line then follows one that says how many are missing. The program goes on meanwhile; a
/// log that is not read must not stop restores.
package final class LogSink: Sendable {
    private struct State {
        var isStalled = false
        var unreported = 0
        var dropped = 0
        /// Only a part of the last line went out.
        var isTorn = false
    }

    package let format: LogFormat
    private let descriptor: CInt
    private let patience: Duration
    private let state = Mutex(State())

    /// `patience`: the longest single wait for a reader, a second at most.
    package init(descriptor: CInt = STDERR_FILENO, format: LogFormat, patience: Duration = .milliseconds(50)) {
        self.descriptor = descriptor
        self.format = format
        self.patience = patience
    }

    package var droppedLines: Int { state.withLock { $0.dropped } }

    /// Writes a line of at most `LogLine.limit` bytes, or drops it.
    func write(_ line: [UInt8]) {
        state.withLock { state in
            guard isWritable(&state) else { return drop(&state) }
            if state.unreported > 0 {
                guard send(notice(of: state.unreported), &state) else { return drop(&state) }
                state.unreported = 0
                // The notice may have taken the last room.
                guard isWritable(&state) else { return drop(&state) }
            }
            if !send(line, &state) { drop(&state) }
        }
    }

    private func drop(_ state: inout State) {
        state.dropped += 1
        state.unreported += 1
    }

    /// Asks first, because a write to a full pipe would block, and one to a closed pipe raises SIGPIPE.
    private func isWritable(_ state: inout State) -> Bool {
        var request = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
        let wait = state.isStalled ? 0 : CInt(min(max(patience / .milliseconds(1), 0), 1000))
        var count = poll(&request, 1, wait)
        while count < 0 && errno == EINTR { count = poll(&request, 1, wait) }
        let isReady = count == 1 && request.revents & Int16(POLLERR | POLLHUP | POLLNVAL) == 0
        state.isStalled = !isReady
        return isReady
    }

    private func send(_ line: [UInt8], _ state: inout State) -> Bool {
        let bytes = state.isTorn ? [0x0A] + line : line
        var sent = 0
        while sent < bytes.count {
            let count = bytes[sent...].withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            if count < 0 && errno == EINTR { continue }
            guard count > 0 else {
                state.isTorn = state.isTorn || sent > 0
                return false
            }
            sent += count
        }
        state.isTorn = false
        return true
    }

    private func notice(of count: Int) -> [UInt8] {
        var line = LogLine(
            format: format,
            time: now(),
            level: .warning,
            message: "log lines were dropped",
            label: "log"
        )
        line.add("log.dropped", String(count))
        return line.finished()
    }
}

/// The system's clock, for the time of a line.
func now() -> timespec {
    var time = timespec()
    clock_gettime(CLOCK_REALTIME, &time)
    return time
}
