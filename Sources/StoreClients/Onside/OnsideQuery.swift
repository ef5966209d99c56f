package import Entitlements
package import SignedTokens

/// Which orders to read, and what the reader must know to judge the answers.
package struct OnsideQuery: Sendable {
    /// Ids of orders, or of the first order of a line; of those that a client named at most 20 are asked, the proven
    /// ones first.
    package var orderIDs: [String]
    /// Ids that are known to exist, from our records or a verified history: that Onside does not know one means only
    /// that it is not visible yet.
    package var provenIDs: Set<String>
    /// The database's time when the reading begins.
    package var askedAt: Instant
    package var lane: Lane
    /// Whether the ids come from a client: whatever happens says little about the store then, and raises no alarm.
    package var isFromClient: Bool

    package init(
        orderIDs: [String],
        provenIDs: Set<String> = [],
        askedAt: Instant,
        lane: Lane,
        isFromClient: Bool = false
    ) {
        self.orderIDs = orderIDs
        self.provenIDs = provenIDs
        self.askedAt = askedAt
        self.lane = lane
        self.isFromClient = isFromClient
    }
}

/// What Onside said about some orders.
package struct OnsideReading: Sendable {
    /// `full` only where every order was answered; an unknown order is an answer.
    package var coverage: Coverage
    /// One for each line.
    package var observations: [Observation] = []
    /// Why the reading is not full.
    package var failure: ReadFailure?
    /// HTTP requests sent to the merchant API; those for keys, which serve everybody, do not count.
    package var requests: Int
    /// Orders that are not this merchant's, not known, or named by no possible id; as the query spells them.
    package var unknown: [String] = []
    /// A transaction can't be read, or a line makes no sense: whether it gives access is not known.
    package var hasUnreadable = false
}

/// Why a signed history gave nothing.
package enum OnsideProofFailure: Error, Hashable, Sendable {
    /// It proves nothing.
    case refused(ProofRefusal)
    /// It may be genuine: the keys to verify it with could not be had.
    case unread(ReadFailure)
}

/// An order's id: a UUID, in lower case.
struct OnsideOrderID: Hashable, Sendable {
    var text: String

    /// Checks an id; `nil` where it is no UUID of the form 8-4-4-4-12.
    init?(_ text: String) {
        let parts = text.split(separator: "-", omittingEmptySubsequences: false)
        guard text.utf8.count == 36, parts.map(\.utf8.count) == [8, 4, 4, 4, 12],
            parts.allSatisfy({ $0.utf8.allSatisfy { Unicode.Scalar($0).properties.isASCIIHexDigit } })
        else { return nil }
        self.text = text.lowercased()
    }
}

extension OnsideQuery {
    /// The most orders of a client that one reading asks for; what our own records hold is bounded there.
    static let maximumOrders = 20
    /// The most orders that are asked for at once.
    static let maximumAtOnce = 20

    /// An order to be asked for, and how the query spells it.
    struct Order: Sendable {
        var id: OnsideOrderID
        var spelling: String
        var isProven: Bool
    }

    /// The orders to be asked for, the texts that are no ids, and whether orders known to exist are left out.
    var orders: (asked: [Order], impossible: [String], isCut: Bool) {
        let proven = Set(provenIDs.compactMap { OnsideOrderID($0) })
        var seen: Set<OnsideOrderID> = []
        var orders: [Order] = []
        var impossible: [String] = []
        for text in orderIDs {
            guard let id = OnsideOrderID(text) else {
                if !impossible.contains(text) { impossible.append(text) }
                continue
            }
            guard seen.insert(id).inserted else { continue }
            orders.append(Order(id: id, spelling: text, isProven: proven.contains(id)))
        }
        let sorted = orders.filter(\.isProven) + orders.filter { !$0.isProven }
        let limit = isFromClient ? Self.maximumOrders : sorted.count
        return (Array(sorted.prefix(limit)), impossible, sorted.dropFirst(limit).contains(where: \.isProven))
    }
}
