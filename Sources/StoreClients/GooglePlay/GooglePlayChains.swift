import Entitlements

/// Reads the purchases behind some tokens, with the chains of tokens that they replaced.
///
/// Tokens are asked for in rounds: first those of the query, then the ones that their answers name, and so on. A token
/// is asked for once, whatever names it.
struct GooglePlayChains: Sendable {
    /// The most links of a chain that are followed.
    static let maximumSteps = 16
    /// The most tokens of a query that a client named; what our own records hold is bounded there.
    static let maximumTokens = 20
    /// The most tokens that are asked for at once.
    static let maximumAtOnce = 20

    /// What was answered about a token.
    enum Page: Sendable {
        case subscription(SubscriptionPurchase)
        case product(ProductPurchase)
        /// Google knows no such purchase.
        case unknown
        /// Google will not tell about it any more.
        case gone
        case failed(ReadFailure)

        var failure: ReadFailure? { if case .failed(let failure) = self { failure } else { nil } }
    }

    /// An answer about a token.
    struct Answer: Sendable {
        var page: Page
        /// The package that gave it; `nil`: none.
        var package: String?
        var requests: Int
    }

    /// Asks for a token, which may also be that of a one-time purchase, and was sold in a package; `nil`: not known in which.
    typealias Fetch = @Sendable (PurchaseToken, _ mayBeProduct: Bool, _ package: String?) async -> Answer

    private let query: GooglePlayQuery
    private var pages: [ExactText: Page] = [:]
    private var packages: [ExactText: String]
    /// Tokens that may stand for a purchase of their own, in the order in which they were named.
    private var heads: [String] = []
    /// Whether a chain is longer than we follow.
    private var isCutShort = false
    private var requests = 0

    init(_ query: GooglePlayQuery) {
        self.query = query
        packages = query.packages
    }

    /// Asks, round by round, and puts the answers together.
    ///
    /// `fetch` asks for one token, and tells how many requests it took.
    mutating func read(_ fetch: @escaping Fetch) async -> GooglePlayReading {
        var seen: Set<ExactText> = []
        let asked = query.tokens.filter { seen.insert(ExactText($0)).inserted }
        heads = Array(asked.prefix(query.isFromClient ? Self.maximumTokens : asked.count))
        let isWhole = asked.count == heads.count
        var next = heads
        for step in 0...Self.maximumSteps where !next.isEmpty {
            await ask(next, mayBeProducts: step == 0, fetch)
            next = named()
        }
        isCutShort = !next.isEmpty
        return reading(isWhole: isWhole)
    }

    /// Asks for some tokens at once.
    private mutating func ask(
        _ tokens: [String],
        mayBeProducts: Bool,
        _ fetch: @escaping Fetch
    ) async {
        await withTaskGroup(of: (String, Answer).self) { group in
            var running = 0
            for text in tokens {
                guard let token = PurchaseToken(text) else {
                    pages[ExactText(text)] = .unknown
                    continue
                }
                if running == Self.maximumAtOnce, let answer = await group.next() { take(answer) } else { running += 1 }
                group.addTask { [package = packages[ExactText(text)]] in
                    (token.text, await fetch(token, mayBeProducts, package))
                }
            }
            for await answer in group { take(answer) }
        }
    }

    private mutating func take(_ answered: (token: String, answer: Answer)) {
        let answer = answered.answer
        pages[ExactText(answered.token)] = answer.page
        requests += answer.requests
        guard let package = answer.package else { return }
        packages[ExactText(answered.token)] = package
        // What it replaced was sold in the same app.
        if case .subscription(let purchase) = answer.page, let linked = purchase.linkedToken {
            packages[ExactText(linked)] = packages[ExactText(linked)] ?? package
        }
    }

    /// The tokens that have to be asked for next.
    private mutating func named() -> [String] {
        var next: [String] = []
        for head in heads {
            guard case .subscription(let purchase)? = pages[ExactText(head)], !purchase.replacesLinked,
                let linked = purchase.linkedToken, !heads.contains(where: linked.isExactly)
            else { continue }
            // The older purchase goes on, whatever becomes of this one.
            heads.append(linked)
        }
        for head in heads {
            let last = walk(from: head).open
            for token in [head, last].compactMap(\.self) where pages[ExactText(token)] == nil && !next.contains(token) {
                next.append(token)
            }
        }
        return next
    }

    /// A purchase and those it replaced, as far as they are known by now.
    private struct Walk {
        /// The tokens, newest first.
        var lineage: [String]
        /// The last token, where the walk goes on behind it once it is answered.
        var open: String?
    }

    private func walk(from head: String) -> Walk {
        var walk = Walk(lineage: [head])
        guard case .subscription(let purchase)? = pages[ExactText(head)], purchase.replacesLinked else { return walk }
        var link = purchase.linkedToken
        // What our records know of the user's was walked when it was recorded.
        var isKnown = query.known.contains(head)
        while let token = link, !walk.lineage.contains(token), walk.lineage.count <= Self.maximumSteps + 1 {
            walk.lineage.append(token)
            isKnown = isKnown || query.known.contains(token)
            guard !isKnown else { break }
            switch pages[ExactText(token)] {
            case .subscription(let older): link = older.linkedToken
            case .failed, nil:
                walk.open = token
                link = nil
            case .product, .unknown, .gone: link = nil
            }
        }
        return walk
    }

    // MARK: Putting together

    private func reading(isWhole: Bool) -> GooglePlayReading {
        var reading = GooglePlayReading(coverage: .full, requests: requests)
        let walks = heads.map(walk)
        let lineages = zip(heads, walks).map { $1.lineage + expired(before: $0) }
        for (index, head) in heads.enumerated() {
            let isReplaced = lineages.enumerated().contains { other, lineage in
                // In a circle each has replaced the other; the one that was named first stands for all.
                other != index && lineage.contains(head) && (other < index || !lineages[index].contains(heads[other]))
            }
            guard !isReplaced else { continue }
            switch pages[ExactText(head)] {
            case .subscription(let purchase):
                // Whose it is may depend on the older tokens: as long as one of them could not be read, it has no
                // owner.
                let walk = walks[index]
                if let last = walk.open, pages[ExactText(last)]?.failure != nil { continue }
                if purchase.isUnreadable(at: query.askedAt) { reading.hasUnreadable = true }
                reading.observations += purchase.observations(
                    token: head,
                    lineage: walk.lineage,
                    at: query.askedAt,
                    mayGrant: query.mayGrant
                )
            case .product(let purchase):
                if purchase.isUnreadable { reading.hasUnreadable = true }
                reading.observations += purchase.observations(
                    token: head,
                    at: query.askedAt,
                    isKnown: query.known.contains(head)
                )
            case .unknown: reading.unknown.append(head)
            case .gone, .failed, nil: break
            }
        }
        for place in reading.observations.indices {
            let item = reading.observations[place]
            guard let token = item.lookupID, let package = packages[ExactText(token)] else { continue }
            reading.observations[place].storeApp = package
        }
        reading.failure = failure(isWhole: isWhole)
        if reading.failure != nil {
            let isAnswered = heads.contains { head in pages[ExactText(head)].map { $0.failure == nil } ?? false }
            reading.coverage = isAnswered ? .partial : .none
        }
        return reading
    }

    /// The expired purchase that one made in Play stands in the place of; it is linked by nothing else.
    private func expired(before head: String) -> [String] {
        if case .subscription(let purchase)? = pages[ExactText(head)], purchase.replacesLinked,
            let token = purchase.expiredToken
        {
            [token]
        } else {
            []
        }
    }

    private func failure(isWhole: Bool) -> ReadFailure? {
        for token in heads + pages.keys.sorted().map(\.text) {
            if let failure = pages[ExactText(token)]?.failure { return failure }
        }
        // A chain without an end is the store's fault; more tokens than anybody has are not.
        if isCutShort { return ReadFailure(.malformed, store: .googlePlay) }
        return isWhole ? nil : ReadFailure(.incomplete, store: .googlePlay)
    }
}
