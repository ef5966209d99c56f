package import Entitlements
package import FoundationEssentials
package import Postgres
import Queue

/// A restore as its user's app sees it.
package struct RestoreAnswer: Sendable, Hashable {
    package var id: UUID
    /// Whose it is; `nil` once the user is erased.
    package var userID: String?
    /// `queued`, `running`, `done`, `dead` or `canceled`.
    package var state: String
    package var outcome: String?
    package var messageKey: String?
    /// Seconds since it was asked for.
    package var age: Double
    package var products: [RestoredProduct]

    /// How people call it, as `reference_of` in the database spells it.
    package var reference: String { JobReference.text(of: id) }

    /// Whether it will not change any more by itself.
    package var hasEnded: Bool { state == "done" || state == "dead" || state == "canceled" }
}

extension RestoreAnswer {
    /// A restore that was asked for just now.
    package init(queued id: UUID, userID: String) {
        self.init(id: id, userID: userID, state: "queued", age: 0, products: [])
    }

    /// A restore that a batch has ended; `age`: seconds since it was asked for.
    package init(_ end: JobEnd, _ findings: RestoreFindings, age: Double) {
        self.init(
            id: end.id,
            userID: findings.userID,
            state: end.state.rawValue,
            outcome: end.outcome?.rawValue,
            messageKey: end.messageKey?.rawValue,
            age: age,
            products: findings.products
        )
    }
}

/// A purchase of the user's own that gives access.
package struct RestoredProduct: Sendable, Hashable, Codable {
    package var store: String
    /// The store's id of the product; RevenueCat's if only RevenueCat listed it.
    package var productID: String?
    package var entitlements: [String]
    /// RFC 3339; `nil`: it has no end.
    package var endsAt: String?

    package enum CodingKeys: String, CodingKey {
        case store, entitlements
        case productID = "product_id"
        case endsAt = "ends_at"
    }

    /// Writes all members; what is not known is null.
    package func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(store, forKey: .store)
        try container.encode(productID, forKey: .productID)
        try container.encode(entitlements, forKey: .entitlements)
        try container.encode(endsAt, forKey: .endsAt)
    }
}

/// Whose a restore is and what it found, as the transaction that ends it leaves both.
package struct RestoreFindings: Sendable {
    /// `nil` once the user is erased; nothing is notified then.
    package var userID: String?
    package var products: [RestoredProduct]

    /// Asks for those of restores that have ended; no request where there are none.
    ///
    /// `wanted`: for each the products that were asked for; `nil`: all.
    package static func of(_ ends: [JobEnd], wanted: [[String]?]) -> [PostgresRequest<[UUID: RestoreFindings]>] {
        guard !ends.isEmpty else { return [] }
        let keys = ends.map { $0.outcome == .restored || $0.outcome == .alreadySubscriber ? $0.userKey : nil }
        let request = PostgresRequest<[UUID: RestoreFindings]>(
            """
            SELECT f.place, u.user_id, CASE WHEN u.user_id IS NOT NULL THEN f.products ELSE '[]' END
              FROM entitlement_sync.restored_products_of(\(keys), \(wanted.map { $0.map(JSONList.text) })) AS f
              JOIN entitlement_sync.user_sync AS u ON u.user_key = (\(ends.map(\.userKey)))[f.place]
            """
        ) { rows in
            var findings: [UUID: RestoreFindings] = [:]
            for row in rows {
                let (place, userID, products) = try row.decode(Int32.self, String?.self, PostgresJSON.self)
                guard ends.indices.contains(Int(place) - 1) else { continue }
                findings[ends[Int(place) - 1].id] = RestoreFindings(
                    userID: userID,
                    products: try JSONList.read(products)
                )
            }
            return findings
        }
        return [request]
    }
}

/// Lists as JSON, as the database takes and writes them.
package enum JSONList {
    /// A list of texts, or of what holds texts alone: there is nothing that can't be written.
    package static func text(_ list: some Encodable) -> String {
        (try? JSONEncoder().encode(list)).map { String(decoding: $0, as: UTF8.self) } ?? "[]"
    }

    static func read<Element: Decodable>(_ json: PostgresJSON) throws -> [Element] {
        guard json.text != "[]" else { return [] }
        return try JSONDecoder().decode([Element].self, from: Data(json.text.utf8))
    }
}

/// Callers that wait for restores in the worker's own process.
package protocol RestoreAudience: Sendable {
    /// Whether a caller waits for a restore, or may in a moment.
    func awaits(_ id: UUID) -> Bool

    /// Takes how awaited restores have ended, once that is committed.
    ///
    /// - Returns: the restores that a caller waited for here.
    func take(_ answers: [RestoreAnswer]) -> Set<UUID>
}
