internal import Foundation
internal import NIOCore

/// The state of the App Store.
struct AppStoreSimulation: SimulatedStore {
    static let endpoints = AppStorePath.Endpoint.allCases.map(\.rawValue)

    var scenario: AppStoreScenario
    /// Test notifications that were requested, by their tokens.
    var tests: [String: AppStoreTestNotification] = [:]
    private(set) var accounts: [AppStoreAccount] = []
    /// Each account's index, by its name.
    private var indices: [String: Int] = [:]
    /// What the request's customer has at RevenueCat, for each environment at most one account.
    var shared: [AppStoreAccount] = [] {
        didSet {
            for account in shared.indices {
                for place in shared[account].purchases.indices {
                    let original = shared[account].purchases[place].original
                    if let token = sharedTokens[original] { shared[account].purchases[place].accountToken = token }
                }
            }
        }
    }
    /// Account tokens that were set for shared purchases, by the original transaction.
    private var sharedTokens: [String: String] = [:]
    /// Where an id leads, for each environment.
    private var owners: [AppStoreSide: [String: Int]] = [:]
    private var admission = AppStoreAdmission()
    /// Each endpoint of an environment has a budget for an hour.
    private var rates = RateWindows(lengthMs: 3_600_000)
    /// The number of the last change.
    private var sequence: Int64 = 0
    /// When the notifications were sent.
    let loadedAtMs: Int64

    init(_ scenario: AppStoreScenario, nowMs: Int64) throws {
        self.scenario = scenario
        loadedAtMs = nowMs
        for customer in scenario.customers { try put(customer, nowMs: nowMs) }
    }

    // MARK: Accounts

    /// Stores an account in the place of one with the same name.
    ///
    /// - Throws: `ScenarioError` where another account has one of its ids.
    mutating func put(_ customer: AppStoreCustomerScenario, nowMs: Int64) throws {
        let index = indices[customer.id] ?? accounts.endIndex
        let before = index < accounts.endIndex ? accounts[index] : nil
        let account = AppStoreAccount(customer, nowMs: nowMs, sequence: &sequence, replacing: before)
        for id in account.ids.sorted() {
            if let other = owners[account.side]?[id], other != index {
                throw ScenarioError(
                    keyPath: "app_store.customers",
                    message: "use the id \"\(id)\" twice (\(accounts[other].id), \(account.id))"
                )
            }
        }
        if let before {
            for id in before.ids { owners[before.side]?[id] = nil }
            accounts[index] = account
        } else {
            accounts.append(account)
            indices[account.id] = index
        }
        for id in account.ids { owners[account.side, default: [:]][id] = index }
    }

    /// The account behind an id that is visible.
    func account(_ id: String, on side: AppStoreSide, nowMs: Int64) -> AppStoreAccount? {
        guard let index = owners[side]?[id] else { return shared(id, on: side) }
        return accounts[index].visibleFromMs <= nowMs ? accounts[index] : nil
    }

    private func shared(_ id: String, on side: AppStoreSide) -> AppStoreAccount? {
        shared.first { $0.side == side && $0.ids.contains(id) }
    }

    /// A transaction, whether it is visible or not.
    func find(_ id: String) -> (purchase: AppStorePurchase, account: AppStoreAccount)? {
        for side in AppStoreSide.allCases {
            guard let account = owners[side]?[id].map({ accounts[$0] }) ?? shared(id, on: side),
                let purchase = account.purchase(id)
            else { continue }
            return (purchase, account)
        }
        return nil
    }

    func writer(nowMs: Int64) -> AppStoreWriter {
        AppStoreWriter(bundleID: scenario.bundleID, appID: scenario.appID, nowMs: nowMs)
    }

    // MARK: Requests

    func route(_ request: StoreRequest) -> StoreRoute? {
        guard let path = AppStorePath(request) else { return nil }
        var subjects = path.id.isEmpty ? [] : [path.id]
        if let index = owners[path.side]?[path.id] { subjects.append(accounts[index].id) }
        return StoreRoute(endpoint: path.endpoint.rawValue, template: path.template, subjects: subjects)
    }

    mutating func answer(_ request: StoreRequest, route: StoreRoute, nowMs: Int64) -> Reply {
        guard let path = AppStorePath(request) else { return Reply(status: 404) }
        do {
            guard admission.admits(request.bearer, scenario, at: SimulatedClock.machine() / 1000),
                scenario.isReleased || path.side == .sandbox
            else { throw AppStoreFailure.unauthenticated }
            if scenario.hasRateLimits { try spend(on: path, nowMs: nowMs) }
            if let type = request.contentType, request.body.readableBytes > 0, !type.hasPrefix("application/json") {
                throw AppStoreFailure(status: 415)
            }
            return try respond(to: request, path, nowMs: nowMs)
        } catch let failure as AppStoreFailure {
            return failure.reply()
        } catch {
            return AppStoreFailure(5_000_000).reply()
        }
    }

    private mutating func spend(on path: AppStorePath, nowMs: Int64) throws {
        let share = path.side == .production ? 1 : 0.1
        let limit = max(1, Int(path.endpoint.perSecond * 3600 * share * scenario.rateScale))
        let reading = rates.count(path.template, limit: limit, nowMs: nowMs)
        guard reading.isExceeded else { return }
        throw AppStoreFailure(status: 429, code: 4_290_000, retryAtMs: nowMs + reading.remainingMs)
    }

    func failure(status: Int, effect: FaultRule, nowMs: Int64) -> Reply {
        AppStoreFailure.usual(
            status: status,
            code: effect.errorType.flatMap { Int64($0) },
            retryAtMs: nowMs + (effect.backoffMs ?? 1000)
        ).reply()
    }

    private mutating func respond(to request: StoreRequest, _ path: AppStorePath, nowMs: Int64) throws -> Reply {
        switch path.endpoint {
        case .statuses: return try statuses(path, of: owner(path, nowMs: nowMs), nowMs: nowMs)
        case .transaction:
            let account = try owner(path, nowMs: nowMs)
            guard let purchase = account.purchase(path.id) else { throw AppStoreFailure(4_000_048) }
            let text = try writer(nowMs: nowMs).transaction(purchase, of: account)
            return .object { $0.member("signedTransactionInfo", text) }
        case .history: return try history(path, of: owner(path, nowMs: nowMs), nowMs: nowMs)
        case .refunds: return try refunds(path, of: owner(path, nowMs: nowMs), nowMs: nowMs)
        case .lookup: return try transactions(ofOrder: path, nowMs: nowMs)
        case .token: return try setToken(path, request, nowMs: nowMs)
        case .notifications: return try notifications(path, request, nowMs: nowMs)
        case .test: return try requestTest(path, nowMs: nowMs)
        case .testStatus: return try testStatus(path)
        }
    }

    /// The account of the id in the path.
    private func owner(_ path: AppStorePath, nowMs: Int64) throws -> AppStoreAccount {
        guard AppStorePath.isID(path.id) else { throw AppStoreFailure(4_000_006) }
        guard let account = account(path.id, on: path.side, nowMs: nowMs) else { throw AppStoreFailure(4_040_010) }
        return account
    }

    private func statuses(_ path: AppStorePath, of account: AppStoreAccount, nowMs: Int64) throws -> Reply {
        let wanted = try path.values("status").map { text in
            guard let status = Int(text), (1...5).contains(status) else { throw AppStoreFailure(4_000_031) }
            return status
        }
        let writer = writer(nowMs: nowMs)
        return try .object { json in
            writer.identity(&json, path.side)
            try json.array("data") { json in
                for (group, purchases) in account.lines {
                    let purchases = purchases.filter { wanted.isEmpty || wanted.contains($0.state.number) }
                    guard !purchases.isEmpty else { continue }
                    try json.object { json in
                        json.member("subscriptionGroupIdentifier", group)
                        try json.array("lastTransactions") { json in
                            for purchase in purchases {
                                try json.object { json in
                                    json.member("status", purchase.state.number)
                                    json.member("originalTransactionId", purchase.original)
                                    json.member(
                                        "signedTransactionInfo",
                                        try writer.transaction(purchase, of: account)
                                    )
                                    json.member("signedRenewalInfo", try writer.renewal(purchase, of: account))
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    private func transactions(ofOrder path: AppStorePath, nowMs: Int64) throws -> Reply {
        guard path.side == .production else { throw AppStoreFailure(4_000_000) }
        let writer = writer(nowMs: nowMs)
        let texts = try accounts.filter { $0.side == path.side && $0.visibleFromMs <= nowMs }.flatMap { account in
            try account.purchases.filter { $0.orderID == path.id }.map { try writer.transaction($0, of: account) }
        }
        return .object { json in
            json.member("status", texts.isEmpty ? 1 : 0)
            json.array("signedTransactions", texts)
        }
    }

    private struct TokenBody: Decodable {
        var appAccountToken: String
    }

    private mutating func setToken(_ path: AppStorePath, _ request: StoreRequest, nowMs: Int64) throws -> Reply {
        guard AppStorePath.isID(path.id) else { throw AppStoreFailure(4_000_006) }
        let data = Data(request.body.readableBytesView)
        guard let body = try? JSONDecoder().decode(TokenBody.self, from: data) else { throw AppStoreFailure(4_000_000) }
        guard let token = UUID(uuidString: body.appAccountToken) else { throw AppStoreFailure(4_000_183) }
        guard let account = account(path.id, on: path.side, nowMs: nowMs) else { throw AppStoreFailure(4_040_005) }
        guard account.purchase(path.id) != nil else { throw AppStoreFailure(4_000_048) }
        guard let newest = account.newest(of: path.id) else { throw AppStoreFailure(4_000_187) }
        guard newest.ownership != "FAMILY_SHARED" else { throw AppStoreFailure(4_000_185) }
        guard let index = owners[path.side]?[path.id] else {
            sharedTokens[newest.original] = token.uuidString.lowercased()
            return Reply(status: 200)
        }
        // Earlier transactions keep what they had.
        for place in accounts[index].purchases.indices
        where accounts[index].purchases[place].original == path.id
            && accounts[index].purchases[place].purchasedMs >= newest.purchasedMs
        {
            sequence += 1
            accounts[index].purchases[place].accountToken = token.uuidString.lowercased()
            accounts[index].purchases[place].sequence = sequence
        }
        return Reply(status: 200)
    }
}
