package import FoundationEssentials

extension RunReport {
    /// How far a run was at an instant.
    package struct Point: Codable, Hashable, Sendable {
        package var at: Date
        /// Users who had been read.
        package var users: Int64

        package init(at: Date, users: Int64) {
            self.at = at
            self.users = users
        }
    }

    /// How far records had strayed from what the stores say.
    package struct Drift: Codable, Hashable, Sendable {
        /// Users whose records were compared, and how many of them agreed.
        package var looked: Int64
        package var agreeing: Int64
        /// The age of the oldest evidence that a record rests on.
        package var oldestEvidenceSeconds: Double?
        /// How long records took to follow the stores.
        package var convergenceSeconds: Convergence

        package init(
            looked: Int64,
            agreeing: Int64,
            oldestEvidenceSeconds: Double? = nil,
            convergenceSeconds: Convergence = Convergence()
        ) {
            self.looked = looked
            self.agreeing = agreeing
            self.oldestEvidenceSeconds = oldestEvidenceSeconds
            self.convergenceSeconds = convergenceSeconds
        }
    }

    /// Seconds within which half of the records, and 95 of 100, followed the stores.
    package struct Convergence: Codable, Hashable, Sendable {
        package var p50: Double?
        package var p95: Double?

        package init(p50: Double? = nil, p95: Double? = nil) {
            self.p50 = p50
            self.p95 = p95
        }
    }

    /// What becomes of one user.
    package struct Change: Codable, Hashable, Sendable {
        package var userID: String
        package var outcome: String
        package var rule: String?
        package var explanation: String
        package var typeBefore: String?
        package var typeAfter: String?
        /// Assets that freeze or come back.
        package var assets: Int64
        /// How far it is: `predicted`, `held`, `applied` or `void`.
        package var state: String

        package init(
            userID: String,
            outcome: String,
            rule: String?,
            explanation: String,
            typeBefore: String?,
            typeAfter: String?,
            assets: Int64,
            state: String
        ) {
            self.userID = userID
            self.outcome = outcome
            self.rule = rule
            self.explanation = explanation
            self.typeBefore = typeBefore
            self.typeAfter = typeAfter
            self.assets = assets
            self.state = state
        }
    }
}
