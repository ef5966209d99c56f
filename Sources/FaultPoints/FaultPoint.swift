/// An instant at which tests make the program fail; builds for use pass it without a trace.
package enum FaultPoint: String, Sendable, CaseIterable {
    /// A request is about to go to a store.
    case storeBefore = "store.before"
    /// A store's answer is complete, and nobody has seen it.
    case storeAfter = "store.after"
    /// A statement is about to be sent; in a transaction or on its own.
    case statementBefore = "statement.before"
    /// A statement took place, and its caller has not seen the answer.
    case statementAfter = "statement.after"
    /// Everything of a transaction is written but its end.
    case commitBefore = "commit.before"
    /// A transaction took place, and its caller does not know.
    case commitLostAnswer = "commit.lost_answer"
    /// A transaction took place, and its caller is about to be told.
    case commitAfter = "commit.after"
}
