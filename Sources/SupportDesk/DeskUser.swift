import Foundation

/// A user as the database shows them to an operator.
package struct DeskUser: Decodable, Sendable {
    package struct Purchase: Decodable, Sendable {
        package var store: String
        package var environment: String
        package var product: String?
        package var status: String
        package var givesAccess: Bool?
        package var endsAt: String?
        package var ownerSince: String
        package var rule: String

        enum CodingKeys: String, CodingKey {
            case store, environment, product, status, rule
            case givesAccess = "gives_access"
            case endsAt = "ends_at"
            case ownerSince = "owner_since"
        }
    }

    package struct Grant: Decodable, Sendable {
        package var until: String
        package var revokedAt: String?
        package var reason: String

        enum CodingKeys: String, CodingKey {
            case until, reason
            case revokedAt = "revoked_at"
        }
    }

    package struct Job: Decodable, Sendable {
        package var reference: String
        package var kind: String
        package var state: String
        package var outcome: String?
        package var finishedAt: String
        package var error: String?

        enum CodingKeys: String, CodingKey {
            case reference, kind, state, outcome, error
            case finishedAt = "finished_at"
        }
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

        enum CodingKeys: String, CodingKey {
            case id, reference, kind, state, verdict, side
            case createdAt = "created_at"
        }
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

        enum CodingKeys: String, CodingKey {
            case outcome, rule, explanation, assets, error
            case askedAt = "asked_at"
            case endedAt = "ended_at"
            case typeBefore = "type_before"
            case typeAfter = "type_after"
            case isPaused = "is_paused"
        }
    }

    package var userID: String?
    package var isErased: Bool
    package var type: String?
    package var status: String?
    package var createdAt: String?
    package var fullReadAt: String?
    package var nextCheck: String?
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

    enum CodingKeys: String, CodingKey {
        case type, status, waiting, standing, purchases, grants, jobs, tickets
        case userID = "user_id"
        case isErased = "is_erased"
        case createdAt = "created_at"
        case fullReadAt = "full_read_at"
        case nextCheck = "next_check_at"
        case frozenAssets = "frozen_assets"
        case dryRun = "dry_run"
    }

    /// Reads what the desk's records give.
    ///
    /// - Parameter json: one JSON object.
    /// - Throws: `DecodingError`, where they give something else.
    package init(json: String) throws { self = try JSONDecoder().decode(DeskUser.self, from: Data(json.utf8)) }
}
