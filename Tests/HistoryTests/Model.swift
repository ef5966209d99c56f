@testable import Entitlements
import Foundation
import Queue

/// The whole system as it ought to be, in memory: no batches, no locks, no SQL.
///
/// Slow and obvious.
///
/// Users are numbered as in the history; a user's key is the number and one.
struct Model {
    var setup: HistorySetup
    var people: [Person]
    var jobs: [Job] = []
    var sweeps: [Sweep] = []
    var purchases: [LedgerRow] = []
    /// Which ledger row a name leads to.
    var names: [PurchaseIdentifierKey: Int] = [:]
    /// Names that several rows were first seen under in one reading: any of them may keep it.
    var contested: [PurchaseIdentifierKey: Set<Int>] = [:]
    var tickets: [TicketKey: Ticket] = [:]
    var assets: [Int64: Asset] = [:]
    var decisions: [Decision] = []
    var alarms: Set<String> = []
    var paused: Set<String> = []
    var catalog: [String: Bool] = ["premium": true]
    /// Lease epochs that hold; false for one that has run out and was not rescued yet.
    var leases: [Int32: Bool] = [:]
    var ticketNumber = 0
    var situations: Set<String> = []

    init(setup: HistorySetup) {
        self.setup = setup
        people = setup.users.map { Person(type: $0.type, status: $0.status) }
    }

    struct Person {
        var exists = true
        /// The record of an account that was erased: it has no name, and stands behind the history's users.
        var isErased = false
        /// The database's key of the record, once it has been seen.
        var key: Int64?
        /// A job or a ticket has met the user.
        var isKnown = false
        var type: UserType
        var status: UserStatus
        var epoch: Int64 = 0
        var readAt: Instant?
        /// What is on record was dated by a clock that was ahead.
        var isAhead = false
        var absentSince: Instant?
        var movedAwayAt: Instant?
        /// When the user is looked at again.
        var look: Instant?
        var everObserved = false
        /// The type that the last decision gave, or found right.
        var decidedType: UserType?
        var flips = 0
        var grants: [Grant] = []
        var sandbox = SandboxState.none
        var row: Row?
        var run: Run?
    }

    struct Grant {
        var id: Int64
        /// What another payer calls it; `nil`: our own people gave it.
        var externalID: String?
        var isActive = true
    }

    /// A user's place in the queue: at most one restore and one reconcile, and a successor of each.
    typealias Row = QueueRow<Int>

    struct Job {
        enum State: String { case queued, running, done, dead, canceled }
        var id: UUID?
        var user: Int
        var kind: JobKind
        var attempt = 0
        var error: String?
        /// Waits for a time that has not come.
        var isDelayed = false
        var state = State.queued
        var outcome: Outcome?
        var key: MessageKey?
        var ticket: TicketKey?
        var proofs: Set<String> = []
        var clientError: String?
        /// Every id that was returned to somebody.
        var wasReturned = false
    }

    struct LedgerRow {
        var facts: Purchase
        var mergedInto: Int?
        /// It was dated by a clock that was ahead.
        var isAhead = false
        /// The database's number of the row, once it has been seen.
        var number: Int64?
    }

    struct TicketKey: Hashable, Comparable {
        var claimant: Int
        var purchase: Int?

        static func < (left: Self, right: Self) -> Bool {
            (left.claimant, left.purchase ?? -1) < (right.claimant, right.purchase ?? -1)
        }
    }

    struct Ticket {
        var number: Int
        var kind: TicketRequest.Kind
        var owner: Int?
        var originalID: String?
        var isVisible: Bool
        var priority: Int16
        var touches = 0
        /// Ids that the claimant has typed.
        var typedIDs: Set<String> = []

        /// An erasure of either user forgets what was typed.
        mutating func forgetTypedIDs() {
            if let id = originalID, typedIDs.contains(id) { originalID = nil }
            typedIDs = []
        }
    }

    struct Asset {
        static let lapsed = "subscription_lapsed"
        var owner: Int
        var reasons: [String]
        /// Frozen, and nobody wrote down why.
        var isMysterious = false
        var isLapsed: Bool { reasons.contains(Self.lapsed) }
    }

    struct Run {
        var epoch: Int64
        var freezes: Bool
        var cursor: Int64
        var decision: Int
    }

    struct Decision {
        var job: Int
        var rule: Rule
        var outcome: Outcome
        var before: UserType?
        var after: UserType?
        var assets: Int
        var isBraked: Bool
        var isObserved: Bool
        /// How many observations the verdict left.
        var observations: Int
    }

    var isObserving: Bool { setup.mode == .observe }

    /// How the records name a user: those of an erased account have their key alone.
    func name(_ user: Int) -> String {
        people[user].isErased ? "erased-\(people[user].key.map(String.init) ?? "?")" : userID(user)
    }

    /// The user behind a key of the records.
    func user(behind key: Int64) -> Int? { people.firstIndex { $0.key == key } }

    mutating func note(_ input: String) { situations.insert(input) }
}
