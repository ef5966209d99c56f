import Foundation

/// A user as the database shows them to an operator.
package struct DeskUser: Decodable, Sendable {
    package struct Purchase: Decodable, Sendable {
        package var store: String
        /// The app that it was seen in, by its store's name; else RevenueCat's project.
        package var storeApp: String?
        package var environment: String
        package var product: String?
        package var status: String
        package var givesAccess: Bool?
        package var endsAt: String?
        package var ownerSince: String
        package var rule: String
    }

    package struct Grant: Decodable, Sendable {
        package var until: String
        package var revokedAt: String?
        package var reason: String
        package var source: String
        package var entitlement: String?
    }

    package struct Job: Decodable, Sendable {
        package var reference: String
        package var kind: String
        package var state: String
        package var outcome: String?
        package var finishedAt: String
        package var error: String?
    }

    package struct Ticket: Decodable, Sendable {
        package var id: Int64
        package var reference: String
        package var kind: String
        package var state: String
        package var verdict: String?
        package var createdAt: String
        /// `claimant` or `owner`.
        package var side: String
    }

    /// The result of the last dry run, within the last day.
    package struct DryRun: Decodable, Sendable {
        package var askedAt: String
        /// `nil`: a worker has it before itself.
        package var endedAt: String?
        package var outcome: String?
        package var rule: String?
        package var explanation: String?
        package var typeBefore: String?
        package var typeAfter: String?
        /// How many would be frozen or unfrozen.
        package var assets: Int64
        /// Why the stores gave no answer.
        package var error: String?
        /// The reconcile itself would wait until a pause is over.
        package var isPaused: Bool
    }

    package var userID: String?
    package var isErased: Bool
    package var type: String?
    package var status: String?
    package var createdAt: String?
    package var fullReadAt: String?
    package var nextCheckAt: String?
    /// Assets that a lapse froze.
    package var frozenAssets: Int64?
    /// A job of theirs is queued or running.
    package var waiting: Bool
    /// As far as they may know it themselves; `nil`: they were erased.
    package var standing: UserStanding?
    /// The latest; `nil`: none was requested.
    package var dryRun: DryRun?
    package var purchases: [Purchase]
    package var grants: [Grant]
    package var jobs: [Job]
    package var tickets: [Ticket]

    private enum CodingKeys: String, CodingKey {
        case isErased, type, status, createdAt, fullReadAt, nextCheckAt, frozenAssets, waiting, standing, dryRun
        case purchases, grants, jobs, tickets
        case userID = "userId"
    }

    /// Its members are called as in SQL.
    static let decoder = {
        let decoder = JSONDecoder()
        decoder.keyDecodingStrategy = .convertFromSnakeCase
        return decoder
    }()

    /// Reads what the desk's records give, one JSON object.
    package init(json: String) throws { self = try Self.decoder.decode(DeskUser.self, from: Data(json.utf8)) }
}
