import Synchronization

/// Tells open pages that something has changed.
final class ChangeHub: Sendable {
    enum Word: Sendable { case changed, stillHere }

    /// Pages that get changes at once; others show them when they are loaded again.
    static let most = 500
    /// Of these, one session's.
    static let mostOfOne = 12
    /// A heartbeat, and the time after which a session is checked again.
    private static let heartbeat = Duration.seconds(15)

    private struct State {
        var listeners: [Int: (stream: AsyncStream<Word>.Continuation, session: [UInt8])] = [:]
        var last = 0
        var isClosed = false
    }

    private let state = Mutex(State())

    /// Follows changes; `nil`: too many do already, or it is over.
    func follow(as session: [UInt8]) -> (number: Int, words: AsyncStream<Word>)? {
        let (stream, continuation) = AsyncStream.makeStream(of: Word.self, bufferingPolicy: .bufferingOldest(4))
        let number: Int? = state.withLock { state in
            guard !state.isClosed, state.listeners.count < Self.most,
                state.listeners.values.count(where: { $0.session == session }) < Self.mostOfOne
            else { return nil }
            state.last += 1
            state.listeners[state.last] = (continuation, session)
            return state.last
        }
        return number.map { ($0, stream) }
    }

    func leave(_ number: Int) {
        state.withLock { $0.listeners.removeValue(forKey: number) }?.stream.finish()
    }

    func changed() { tell(.changed) }

    private func tell(_ word: Word) {
        for listener in state.withLock({ Array($0.listeners.values) }) { listener.stream.yield(word) }
    }

    /// Gives signs of life until the task is cancelled.
    func tick() async {
        while !Task.isCancelled {
            try? await Task.sleep(for: Self.heartbeat)
            tell(.stillHere)
        }
    }

    /// Ends every stream, and takes no new ones.
    func close() {
        let listeners = state.withLock { state in
            state.isClosed = true
            defer { state.listeners = [:] }
            return Array(state.listeners.values)
        }
        for listener in listeners { listener.stream.finish() }
    }
}
