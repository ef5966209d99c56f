import Composition

/// Lines on stderr for the log of a program that waits: one when the wait turns out to be long, then one a minute.
struct WaitNotes {
    private var next = ContinuousClock.now + .seconds(2)

    /// Writes the sentence where a line is due; a terminal has a bar instead.
    mutating func add(_ sentence: @autoclosure () -> String) {
        guard ContinuousClock.now >= next else { return }
        next = .now + .seconds(60)
        Output.note(sentence())
    }
}
