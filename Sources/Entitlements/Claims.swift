/// What the claimant submitted and reported, and what lookups of it found; none of it decides by itself.
package struct ClaimFindings: Sendable, Hashable {
    package var clientError: ClientError?
    /// What the typed ids led to; empty where nothing was found or asked.
    package var found: [FoundPurchase] = []
    /// Why the lookup of a reported id failed; an answer that there is nothing has to wait for it.
    package var failure: ReadFailure?
    /// Where typed ids led to items that can't be read; the answer to the claimant does not depend on them.
    package var unreadable: Set<Store> = []
    /// Proofs that did not verify, by kind and fault.
    package var refusals: [String] = []
    /// The store accounts of the user's devices; each once.
    package var accounts: [SubmittedAccount] = []
}

/// A purchase that a typed id led to.
package struct FoundPurchase: Sendable, Hashable {
    package var identifier: PurchaseIdentifier
    package var store: String
    /// The store's customer id; never shown, never logged.
    package var customerID: String
    /// The store's own id of the purchase, by which people know it.
    package var storeID: String?

    package init(identifier: PurchaseIdentifier, store: String, customerID: String, storeID: String? = nil) {
        self.identifier = identifier
        self.store = store
        self.customerID = customerID
        self.storeID = storeID
    }

    package static func == (left: Self, right: Self) -> Bool {
        left.identifier == right.identifier && left.store.isExactly(right.store)
            && left.customerID.isExactly(right.customerID)
            && left.storeID.map(ExactText.init) == right.storeID.map(ExactText.init)
    }

    package func hash(into hasher: inout Hasher) {
        identifier.hash(into: &hasher)
        hasher.combineExactly(customerID)
    }

    package var isAnonymous: Bool { customerID.hasPrefix("$RCAnonymousID:") }
}

/// The error the app met on the device, in any SDK's spelling.
package enum ClientError: String, Sendable, CaseIterable {
    case receiptAlreadyInUse = "receipt_already_in_use"
    case loginDiscarded = "login_discarded"
    case appNotRegistered = "app_not_registered"
    case cancelled
    case connectionError = "connection_error"
    case serviceUnavailable = "service_unavailable"
    case internalError = "internal_error"
    case other

    /// Reads a code or name as the SDKs send it; letter case, separators and a one-key JSON object do not matter.
    package init(_ text: String) {
        // The JavaScript bridge wraps the name: {"serviceUnavailable":{}}.
        let parts = text.split(separator: "\"", omittingEmptySubsequences: false)
        let isObject = text.first { !$0.isWhitespace } == "{" && parts.count >= 3
        let name = (isObject ? parts[1] : text[...]).lowercased()
        let folded = name.filter { $0.isASCII && ($0.isLetter || $0.isNumber) }
        // A sign is no separator: Play's -1 and RevenueCat's 1 are two errors.
        let isNegative = folded.allSatisfy(\.isNumber) && name.contains("-")
        self = Self.spellings[isNegative ? "-" + folded : folded] ?? .other
    }

    private static let spellings = Dictionary(
        names.flatMap { error, names in names.map { ($0, error) } },
        uniquingKeysWith: { first, _ in first }
    )

    /// Spellings by meaning: Onside, RevenueCat (names and numbers), StoreKit 1 and 2, Play Billing.
    private static let names: [ClientError: [String]] = [
        .receiptAlreadyInUse: ["receiptalreadyinuse", "receiptalreadyinuseerror", "7", "7102"],
        .loginDiscarded: ["logindiscarded", "notloggedin", "loginrequired"],
        .appNotRegistered: ["appnotregistered"],
        .cancelled: [
            "cancelled", "canceled", "usercancelled", "usercanceled", "purchasecancelled", "purchasecancellederror",
            "paymentcancelled", "skerrorpaymentcancelled", "1",
        ],
        .connectionError: [
            "connectionerror", "networkerror", "offlineconnectionerror", "servicedisconnected",
            "cloudservicenetworkconnectionfailed", "10", "35", "-1",
        ],
        .serviceUnavailable: [
            "serviceunavailable", "storeproblem", "storeproblemerror", "servicetimeout", "billingunavailable", "2",
            "-3",
        ],
        .internalError: [
            "internalerror", "unknownerror", "unknownbackenderror", "systemerror", "unexpectederror", "error", "16",
        ],
    ]
}
