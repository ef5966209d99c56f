import Foundation
import Postgres
import TestSupport
import Testing

/// A site whose stores are asked directly: the App Store, Google Play and Onside, and no RevenueCat.
struct StoreSite: Sendable {
    let site: Site
    let simulator: Simulator
    /// Proofs as devices would have them, by kind and by what they are about.
    let proofs: [String: String]

    /// Makes one, lets the test act on it, and takes it down.
    static func with(
        scenario: String,
        settings: [String: String] = [:],
        _ body: @Sendable (StoreSite) async throws -> Void
    ) async throws {
        let folder = FileManager.default.temporaryDirectory.path + "/store-files-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: folder) }
        let simulator = try await Simulator(scenario: scenario, files: folder)
        var all: [String: String] = [:]
        for line in try String(contentsOfFile: folder + "/stores.env", encoding: .utf8).split(separator: "\n") {
            let sides = line.split(separator: "=", maxSplits: 1)
            all[String(sides[0])] = sides.count > 1 ? String(sides[1]) : ""
        }
        // These tests are about the stores behind it.
        for name in ["REVENUECAT_API_KEY", "REVENUECAT_PROJECT_ID", "REVENUECAT_BASE_URL"] { all[name] = "" }
        all.merge(settings) { $1 }
        var proofs: [String: String] = [:]
        for line in try String(contentsOfFile: folder + "/proofs.tsv", encoding: .utf8).split(separator: "\n") {
            let parts = line.split(separator: "\t")
            proofs["\(parts[0]) \(parts[1])"] = String(parts[2])
        }
        try await Site.with(settings: all) { [proofs] site in
            try await site.execute(
                """
                INSERT INTO entitlement_sync.product (store, product_id, entitlement, grants_access, duration)
                VALUES ('app_store', 'premium_monthly', 'premium', true, NULL),
                       ('app_store', 'lifetime', 'premium', true, NULL),
                       ('app_store', 'pass30', 'premium', true, interval '30 days'),
                       ('google_play', 'pro', 'premium', true, NULL),
                       ('onside', 'premium_monthly', 'premium', true, NULL),
                       ('onside', 'lifetime', 'premium', true, NULL);
                """
            )
            try await body(StoreSite(site: site, simulator: simulator, proofs: proofs))
        }
    }

    /// The argument of `restore --proof`.
    func argument(_ kind: String, of subject: String) throws -> String {
        "\(kind)=\(kind == "purchase_token" ? subject : try #require(proofs["\(kind) \(subject)"], "\(kind) \(subject)"))"
    }
}
