/// An instant at which tests make the program fail; builds for use pass it without a trace.
package enum FaultPoint: Sendable, CaseIterable {
    /// A request is about to go to a store.
    case storeBefore
    /// A store's answer is complete, and nobody has seen it.
    case storeAfter
    /// A statement is about to be sent; in a transaction or on its own.
    case statementBefore
    /// A statement took place, and its caller has not seen the answer.
    case statementAfter
    /// Everything of a transaction is written but its end.
    case commitBefore
    /// A transaction took place, and its caller does not know.
    case commitLostAnswer
    /// A transaction took place, and its caller is about to be told.
    case commitAfter
}

#if FAULT_POINTS
    extension FaultPoint {
        /// What a plan calls it.
        package var name: String {
            switch self {
            case .storeBefore: "store.before"
            case .storeAfter: "store.after"
            case .statementBefore: "statement.before"
            case .statementAfter: "statement.after"
            case .commitBefore: "commit.before"
            case .commitLostAnswer: "commit.lost_answer"
            case .commitAfter: "commit.after"
            }
        }
    }
#endif
