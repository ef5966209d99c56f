/// A request below the App Store's base URLs, understood.
struct AppStorePath: Sendable {
    /// What can be asked; the raw value names it in fault rules.
    enum Endpoint: String, Sendable, CaseIterable {
        case statuses = "app_store.statuses"
        case transaction = "app_store.transaction"
        case history = "app_store.history"
        case lookup = "app_store.lookup"
        case refunds = "app_store.refunds"
        case token = "app_store.token"
        case notifications = "app_store.notifications"
        case test = "app_store.test"
        case testStatus = "app_store.test_status"

        /// Method and path template below the base URL.
        var template: (method: String, path: String) {
            switch self {
            case .statuses: ("GET", "/inApps/v1/subscriptions/{id}")
            case .transaction: ("GET", "/inApps/v1/transactions/{id}")
            case .history: ("GET", "/inApps/v2/history/{id}")
            case .lookup: ("GET", "/inApps/v1/lookup/{id}")
            case .refunds: ("GET", "/inApps/v2/refund/lookup/{id}")
            case .token: ("PUT", "/inApps/v1/transactions/{id}/appAccountToken")
            case .notifications: ("POST", "/inApps/v1/notifications/history")
            case .test: ("POST", "/inApps/v1/notifications/test")
            case .testStatus: ("GET", "/inApps/v1/notifications/test/{id}")
            }
        }

        /// Requests a second that production allows, counted over an hour.
        var perSecond: Double {
            switch self {
            case .statuses, .transaction, .history, .notifications: 50
            case .lookup, .refunds: 10
            case .token: 20
            case .test, .testStatus: 1
            }
        }
    }

    var side: AppStoreSide
    var endpoint: Endpoint
    /// The id in the path, decoded; empty where the path has none.
    var id: String
    var query: Substring

    /// Method and path template, as requests are counted.
    var template: String { "\(endpoint.template.method) \(Self.prefix(side))\(endpoint.template.path)" }

    /// Understands a request.
    ///
    /// - Returns: `nil` where it is none of the App Store's.
    init?(_ request: StoreRequest) {
        let path = request.path
        query = request.query
        guard let side = AppStoreSide.allCases.first(where: { path.hasPrefix(Self.prefix($0) + "/") }) else {
            return nil
        }
        self.side = side
        let segments = path.dropFirst(Self.prefix(side).count).split(separator: "/", omittingEmptySubsequences: false)
        for endpoint in Endpoint.allCases where endpoint.template.method == request.method {
            let template = endpoint.template.path.split(separator: "/", omittingEmptySubsequences: false)
            guard template.count == segments.count,
                zip(template, segments).allSatisfy({ $0 == $1 || ($0 == "{id}" && !$1.isEmpty) })
            else { continue }
            let place = template.firstIndex(of: "{id}")
            guard let id = place.map({ PercentCoding.decode(segments[$0]) }) ?? "" else { return nil }
            self.endpoint = endpoint
            self.id = id
            return
        }
        return nil
    }

    /// Every value of a query key, which may be repeated.
    func values(_ key: String) -> [String] {
        query.split(separator: "&").compactMap { pair in
            let parts = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            guard parts.first.flatMap({ PercentCoding.decode($0) }) == key, parts.count == 2 else { return nil }
            return PercentCoding.decode(parts[1], plusIsSpace: true)
        }
    }

    /// The first value of a query key, as it is read; nil where there is none.
    ///
    /// - Throws: the failure of a code where it can't be read.
    func value<Value>(_ key: String, else code: Int64, _ read: (String) -> Value?) throws -> Value? {
        try values(key).first.map { text in
            guard let value = read(text) else { throw AppStoreFailure(code) }
            return value
        }
    }

    /// Whether a text has the form of a transaction's id.
    static func isID(_ text: String) -> Bool {
        (1...32).contains(text.utf8.count) && text.utf8.allSatisfy { (0x30...0x39).contains($0) }
    }

    private static func prefix(_ side: AppStoreSide) -> String {
        side == .production ? "/app-store" : "/app-store-sandbox"
    }
}
