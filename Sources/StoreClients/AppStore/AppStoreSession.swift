import Entitlements

/// One reading, in the making.
struct AppStoreSession {
    /// The most pages read of one history; a customer with more is never read fully.
    static let maxPages = 50

    private struct Key: Hashable {
        var environment: String
        var id: String
    }

    private let requester: AppStoreRequester
    private let query: AppStoreQuery
    private(set) var requests = 0
    private var failure: ReadFailure?
    private var isComplete = true
    private var hasAnswer = false
    private var isDenied = false
    /// An item was listed, and whether it gives access can't be read.
    private var hasUnreadable = false
    /// Subscriptions by original id, and the place of each.
    private var lines: [Key: (place: Int, observation: Observation)] = [:]
    /// Other purchases by transaction id.
    private var others: [Key: (place: Int, transaction: SignedTransaction)] = [:]

    init(_ requester: AppStoreRequester, _ query: AppStoreQuery) {
        self.requester = requester
        self.query = query
    }

    private var purpose: StoreCall.Purpose { query.isFromClient ? .lookup : .reading }

    /// Reads the customer.
    mutating func run() async {
        // A malformed id has no purchases.
        guard let id = AppStoreID(query.subject.id) else { return }
        do throws(ReadFailure) { try await read(id, in: query.subject.environment) } catch { note(error) }
    }

    /// What was read.
    func reading() -> AppStoreReading {
        let lines = lines.values.sorted { $0.place < $1.place }.map(\.observation)
        let others = others.values.sorted { $0.place < $1.place }.map(\.transaction)
        return AppStoreReading(
            coverage: isComplete ? .full : hasAnswer ? .partial : .none,
            observations: lines + Self.oneTime(others)
                + others.filter(isPass(revoked: true)).map { .init(revokedPass: $0) },
            passes: others.filter(isPass(revoked: false)),
            transactionIDs: Set(others.flatMap { [$0.transactionID, $0.originalTransactionID] }),
            failure: failure,
            isDenied: isDenied,
            hasUnreadable: hasUnreadable,
            requests: requests
        )
    }

    private mutating func read(_ id: AppStoreID, in known: AppStoreEnvironment?) async throws(ReadFailure) {
        let found = try await requester.search(
            .statuses(id),
            in: known,
            lane: query.lane,
            purpose: purpose,
            requests: &requests,
            decode: AppStoreWire.statuses
        )
        if let (answer, environment) = found {
            try check(answer.environment, answer.bundleID, in: environment)
            hasAnswer = true
            if answer.hasOddLines { hasUnreadable = true }
            if await take(answer.lines, in: environment) {
                isComplete = false
            } else {
                try await readHistory(of: id, in: environment)
            }
            return
        }
        // A purchase can be minutes old before the App Store's own API knows it.
        if query.isProven {
            note(ReadFailure(query.isFromClient ? .unavailable : .unknownToStore, store: .appStore))
            isDenied = true
        } else {
            hasAnswer = true
        }
    }

    /// Makes sure that an answer is about our app and the environment that was asked.
    private func check(_ named: String?, _ bundleID: String?, in environment: AppStoreEnvironment) throws(ReadFailure) {
        guard named == environment.rawValue, bundleID == requester.configuration.bundleID else {
            throw ReadFailure(.malformed, store: .appStore)
        }
    }

    private mutating func note(_ failure: ReadFailure) {
        isComplete = false
        self.failure = failure
    }

    // MARK: Subscriptions

    /// Takes the lines of a customer; returns whether one gives access that counts.
    private mutating func take(_ answer: [AppStoreWire.Line], in environment: AppStoreEnvironment) async -> Bool {
        var grants = false
        for line in answer {
            guard let observation = await observe(line, in: environment) else {
                hasUnreadable = true
                continue
            }
            // The status of what an upgrade replaced is that of its replacement.
            guard let observation = observation.value else { continue }
            let key = Key(environment: environment.rawValue, id: line.originalTransactionID)
            lines[key] = (lines[key]?.place ?? lines.count, observation)
            if observation.givesAccess == true, query.mayGrant(observation.entitlements) { grants = true }
        }
        return grants
    }

    private struct Observed {
        var value: Observation?
    }

    /// Verifies one line; `nil` where its signature, or what it says, does not hold.
    private mutating func observe(_ line: AppStoreWire.Line, in environment: AppStoreEnvironment) async -> Observed? {
        guard let transaction = await requester.transaction(line.signedTransaction, in: environment),
            transaction.originalTransactionID == line.originalTransactionID
        else { return nil }
        var renewal: SignedRenewalInfo?
        if let text = line.signedRenewal {
            guard let verified = await requester.renewalInfo(text, of: transaction) else { return nil }
            renewal = verified
        }
        guard !transaction.isUpgraded else { return Observed() }
        return Observed(value: Observation(line: transaction, renewal: renewal, status: line.status))
    }

    // MARK: Other purchases

    private mutating func readHistory(
        of id: AppStoreID,
        in environment: AppStoreEnvironment
    ) async throws(ReadFailure) {
        var revision: String?
        for _ in 0..<Self.maxPages {
            let found = try await requester.ask(
                .history(id, revision: revision),
                in: environment,
                lane: query.lane,
                purpose: purpose,
                requests: &requests,
                decode: AppStoreWire.history
            )
            // Known a moment ago: such an answer can't be right.
            guard case .value(let page) = found else { throw ReadFailure(.unavailable, store: .appStore) }
            try check(page.environment, page.bundleID, in: environment)
            if page.hasOddTexts { hasUnreadable = true }
            for text in page.signed {
                guard let transaction = await requester.transaction(text, in: environment) else {
                    hasUnreadable = true
                    continue
                }
                // Its length counts from a date that is not known.
                if transaction.hasOddPurchaseDate, isPass(revoked: false)(transaction) {
                    hasUnreadable = true
                    continue
                }
                // What is changed while pages are read appears again, and the later word counts.
                let key = Key(environment: transaction.environment, id: transaction.transactionID)
                others[key] = (others[key]?.place ?? others.count, transaction)
            }
            guard page.hasMore else { return }
            guard let next = page.next, next != revision else { throw ReadFailure(.malformed, store: .appStore) }
            revision = next
        }
        note(ReadFailure(.incomplete, store: .appStore))
    }

    private func isPass(revoked: Bool) -> (SignedTransaction) -> Bool {
        { transaction in
            !transaction.isUpgraded && AppStoreMapping.product(transaction.type) == .pass
                && (transaction.revokedAt != nil) == revoked
        }
    }

    /// One observation for each purchase for ever.
    ///
    /// Every restore may have made a transaction of its own; the newest speaks for all of them.
    private static func oneTime(_ transactions: [SignedTransaction]) -> [Observation] {
        var newest: [Key: (place: Int, transaction: SignedTransaction)] = [:]
        for transaction in transactions
        where AppStoreMapping.product(transaction.type) == .oneTime && !transaction.isUpgraded {
            let key = Key(environment: transaction.environment, id: transaction.originalTransactionID)
            if let known = newest[key], known.transaction.purchasedAt > transaction.purchasedAt { continue }
            newest[key] = (newest[key]?.place ?? newest.count, transaction)
        }
        return newest.values.sorted { $0.place < $1.place }.map { Observation(oneTime: $0.transaction) }
    }
}
