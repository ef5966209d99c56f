/// An instant at which tests make the program fail; builds for use pass it without a trace.
package enum FaultPoint: Sendable, CaseIterable {
    /// A request is about to go to a store.
    case storeBefore
    /// A store's answer is complete, and not read yet.
    case storeAfter
    /// A statement is about to be sent; in a transaction or on its own.
    case statementBefore
    /// A statement took place, and its caller has not seen the answer.
    case statementAfter
    /// Everything of a transaction is written but its end.
    case commitBefore
    /// A transaction took place, and its caller does not know.
    case commitLostAnswer
    /// A transaction took place, and its caller does not know it yet.
    case commitAfter
    /// A transfer was taken up, and nothing was asked.
    case transferTaken
    /// What a transfer may be allowed on is on record.
    case transferEvidence
    /// RevenueCat has a customer for the claimant.
    case transferTarget
    /// A transfer is allowed, its call is on record, and nothing was sent.
    case transferAllowed
    /// RevenueCat's transfer call has its answer, which is not noted yet.
    case transferCalled
    /// Where the purchases are was read, and is not noted yet.
    case transferRead
    /// Where the purchases are is on record, and our ledger says what it said.
    case transferRecorded
    /// The ledger follows a transfer, both users are to be read again, and are not queued yet.
    case transferSettled
    /// What the App Store has to say to a transferred purchase's account token is known, and not noted yet.
    case transferToken

    /// The steps of a transfer, in their order.
    package static let transfer: [FaultPoint] = [
        .transferTaken, .transferEvidence, .transferTarget, .transferAllowed, .transferCalled, .transferRead,
        .transferRecorded, .transferSettled, .transferToken,
    ]
}

#if FAULT_POINTS
    extension FaultPoint {
        /// What a plan calls it; spelled out, so that a build without faults can be searched for them.
        package var name: String {
            switch self {
            case .storeBefore: "store.before"
            case .storeAfter: "store.after"
            case .statementBefore: "statement.before"
            case .statementAfter: "statement.after"
            case .commitBefore: "commit.before"
            case .commitLostAnswer: "commit.lost_answer"
            case .commitAfter: "commit.after"
            case .transferTaken: "transfer.taken"
            case .transferEvidence: "transfer.evidence"
            case .transferTarget: "transfer.target"
            case .transferAllowed: "transfer.allowed"
            case .transferCalled: "transfer.called"
            case .transferRead: "transfer.read"
            case .transferRecorded: "transfer.recorded"
            case .transferSettled: "transfer.settled"
            case .transferToken: "transfer.token"
            }
        }
    }
#endif
