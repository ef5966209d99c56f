import Foundation
import Postgres
import TestSupport
import Testing

/// A file of purchases, what the stores hold of them, and what is right for each line.
struct ImportScene: Sendable {
    /// Lines that lead to an import; one in a hundred more is a conflict.
    let size: Int

    private var conflicts: Int { max(3, size / 100) }

    static func original(_ number: Int) -> String { "\(3_000_000_000_000_000 + number)" }

    /// Every other purchase is the App Store's; of Google Play's every fourth is named by its order.
    var scenario: String {
        // So slow that a kill hits work.
        var text = "faults: [{latency: \(size > 1_000 ? 5 : 60)ms}]\napp_store:\n  customers:\n"
        for number in 0..<size where number.isMultiple(of: 2) {
            let state = number.isMultiple(of: 10) ? "expired, expires: -9d" : "active"
            text +=
                "    - {id: apple-\(number), transactions: [{original: \"\(Self.original(number))\", product: premium_monthly, state: \(state)}]}\n"
        }
        text += "google_play:\n  purchases:\n"
        for number in 0..<size where !number.isMultiple(of: 2) {
            text += "    - {token: tok-\(number), order_id: GPA.\(number), state: active}\n"
        }
        for number in 0..<conflicts {
            text +=
                "    - {token: conflict-\(number), state: active\(number % 3 == 1 ? ", account: owner-\(number)" : "")}\n"
        }
        return text
    }

    var users: String {
        """
        INSERT INTO users (id) SELECT 'user-' || n FROM generate_series(0, \(size - 1)) AS n;
        INSERT INTO users (id) SELECT x.name || '-' || n FROM generate_series(0, \(conflicts - 1)) AS n,
                                      unnest(ARRAY['owner', 'claimant', 'second']) AS x(name);
        """
    }

    /// Every third conflict is owned by another user, every third names another, and every third stands in the file twice.
    var file: String {
        var text = "user_id,store,kind,value\n"
        for number in 0..<size {
            let name =
                number.isMultiple(of: 2)
                ? "app_store,original_transaction_id,\(Self.original(number))"
                : number % 4 == 3 ? "google_play,order_id,GPA.\(number)" : "google_play,purchase_token,tok-\(number)"
            text += "user-\(number),\(name)\n"
        }
        for number in 0..<conflicts {
            text += "claimant-\(number),google_play,purchase_token,conflict-\(number)\n"
            if number % 3 == 2 { text += "second-\(number),google_play,purchase_token,conflict-\(number)\n" }
        }
        return text
    }

    /// How many lines have which result in the end.
    var results: [String: Int] {
        var results = ["imported": size]
        for number in 0..<conflicts {
            switch number % 3 {
            case 0: results["owned_by_another", default: 0] += 1
            case 1: results["names_another", default: 0] += 1
            default: results["named_for_several", default: 0] += 2
            }
        }
        return results
    }

    /// Sets the site up: users, and the owners whose purchases others claim.
    func prepare(_ site: Site) async throws {
        try await site.execute(users)
        for number in 0..<conflicts where number.isMultiple(of: 3) {
            try await site.execute(
                """
                SELECT entitlement_sync.request_restore('owner-\(number)',
                    '[{"store":"google_play","kind":"purchase_token","value":"conflict-\(number)"}]');
                """
            )
        }
        let ending = try await site.run("worker", "--until-idle")
        try #require(ending.code == 0, "\(ending)")
    }
}

/// What `import` prints as JSON.
struct ImportSummary: Decodable {
    var id: Int64
    var state: String
    var lines: Int
    var results: [String: Int]
    var conflicts: Int
    var gives_access: Int
    var left: Int
    var hash: String?

    private enum CodingKeys: String, CodingKey {
        case id = "import"
        case state, lines, results, conflicts, gives_access, left, hash
    }

    init(_ ending: Program.Ending) throws {
        self = try JSONDecoder().decode(Self.self, from: Data(ending.out.utf8))
    }
}
