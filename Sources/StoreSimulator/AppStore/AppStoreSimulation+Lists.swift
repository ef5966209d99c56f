extension AppStoreSimulation {
    private struct HistoryFilter {
        var products: [String]
        var kinds: [String]
        var groups: [String]
        var ownership: String?
        var isRevoked: Bool?
        var start: Int64?
        var end: Int64?
        var isDescending: Bool

        init(_ path: AppStorePath) throws {
            products = path.values("productId")
            kinds = path.values("productType")
            groups = path.values("subscriptionGroupIdentifier")
            let known = AppStoreTransactionScenario.Kind.allCases.map(\.filterWord)
            guard kinds.allSatisfy(known.contains) else { throw AppStoreFailure(4_000_022) }
            ownership = try path.value("inAppOwnershipType", else: 4_000_026) { text in
                ["PURCHASED", "FAMILY_SHARED"].contains(text) ? text : nil
            }
            isRevoked = try path.value("revoked", else: 4_000_030) { Bool($0) }
            let sort = path.values("sort").first ?? "ASCENDING"
            guard ["ASCENDING", "DESCENDING"].contains(sort) else { throw AppStoreFailure(4_000_021) }
            isDescending = sort == "DESCENDING"
            start = try path.value("startDate", else: 4_000_015) { Int64($0) }
            end = try path.value("endDate", else: 4_000_016) { Int64($0) }
            if let start, let end, end <= start { throw AppStoreFailure(4_000_013) }
        }

        func takes(_ purchase: AppStorePurchase) -> Bool {
            (products.isEmpty || products.contains(purchase.product))
                && (kinds.isEmpty || kinds.contains(purchase.kind.filterWord))
                && (groups.isEmpty || (purchase.kind == .autoRenewable && groups.contains(purchase.group)))
                && (ownership.map { $0 == purchase.ownership } ?? true)
                && (isRevoked.map { $0 == (purchase.revokedMs != nil) } ?? true)
                && (start.map { purchase.purchasedMs >= $0 } ?? true)
                && (end.map { purchase.purchasedMs < $0 } ?? true)
        }
    }

    /// A customer's transactions in the order of their last change: what is changed meanwhile comes again.
    func history(_ path: AppStorePath, of account: AppStoreAccount, nowMs: Int64) throws -> Reply {
        let filter = try HistoryFilter(path)
        // Whatever is asked beside the place has to be the same for every page.
        let filters = path.query.split(separator: "&").filter { !$0.hasPrefix("revision=") }.sorted()
        let list = AppStoreRevision(path, account.id + filters.joined(separator: "&"))
        let place = try path.value("revision", else: 4_000_005, list.read)
        let rest = account.purchases.filter { purchase in
            let isAhead = place.map { filter.isDescending ? purchase.sequence < $0 : purchase.sequence > $0 } ?? true
            return isAhead && filter.takes(purchase)
        }.sorted { filter.isDescending ? $0.sequence > $1.sequence : $0.sequence < $1.sequence }
        let page = Array(rest.prefix(AppStoreRevision.pageSize))
        let writer = writer(nowMs: nowMs)
        let texts = try page.map { try writer.transaction($0, of: account) }
        return .object { json in
            json.member("revision", list.write(page.last?.sequence ?? place ?? 0))
            json.member("hasMore", rest.count > page.count)
            writer.identity(&json, path.side)
            json.array("signedTransactions", texts)
        }
    }

    /// A customer's refunds, the oldest first.
    func refunds(_ path: AppStorePath, of account: AppStoreAccount, nowMs: Int64) throws -> Reply {
        let list = AppStoreRevision(path, account.id)
        let place = Int(try path.value("revision", else: 4_000_005, list.read) ?? 0)
        let refunds = account.purchases.filter { $0.revokedMs != nil }
            .sorted { ($0.revokedMs ?? 0, $0.sequence) < ($1.revokedMs ?? 0, $1.sequence) }
        let page = refunds.dropFirst(place).prefix(AppStoreRevision.pageSize)
        let writer = writer(nowMs: nowMs)
        let texts = try page.map { try writer.transaction($0, of: account) }
        return .object { json in
            json.array("signedTransactions", texts)
            json.member("revision", list.write(Int64(place + page.count)))
            json.member("hasMore", place + page.count < refunds.count)
        }
    }
}
