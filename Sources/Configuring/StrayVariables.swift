/// Unknown environment variables with names similar to ours: a misspelled setting has no effect, and no error shows it.
package enum StrayVariables {
    /// One such variable.
    package struct Finding: Hashable, Sendable {
        package var name: String
        /// The variable that is like it; `nil`: only the beginning is ours.
        package var like: String?
    }

    /// Beginnings that are ours alone; `HTTP_` and `LOG_` are others' as well.
    private static let families = [
        "REVENUECAT_", "APP_STORE_", "GOOGLE_PLAY_", "ONSIDE_", "JOB_", "DEMOTION_", "ABSENCE_", "RESTORE_", "SUPPORT_",
        "WORKER_", "OUTBOX_", "PUBSUB_", "TRANSFER_", "ACCOUNT_ID_", "RECEIPT_", "ENTITLEMENT_SYNC_", "OIDC_",
        "APP_TOKEN_",
    ]
    /// Others' variables within them: of our own scripts, of schedulers and of Jenkins.
    private static let others: Set<String> = [
        "ENTITLEMENT_SYNC_RUN", "ENTITLEMENT_SYNC_BINARY", "JOB_NAME", "JOB_URL", "JOB_BASE_NAME", "JOB_DISPLAY_URL",
        "JOB_ID", "JOB_COMPLETION_INDEX",
    ]
    private static let known = Set(Variable.allCases.flatMap { [$0.rawValue, $0.fileVariable] })
    private static let most = 20

    /// Finds the first twenty by name, each printable and at most 64 characters long; values are not read.
    package static func find(in environment: [String: String]) -> [Finding] {
        let findings = environment.keys.filter { !known.contains($0) && !others.contains($0) }
            .filter { $0.utf8.count <= 64 && $0.utf8.allSatisfy { (0x21...0x7E).contains($0) } }
            .compactMap { name -> Finding? in
                let upper = name.uppercased()
                if let like = SimilarNames.nearest(to: upper, among: known) { return Finding(name: name, like: like) }
                return families.contains(where: upper.hasPrefix) && !isOfService(upper) ? Finding(name: name) : nil
            }
        return Array(findings.sorted { $0.name < $1.name }.prefix(most))
    }

    /// Kubernetes gives each container the addresses of services, whose names may begin as ours.
    private static func isOfService(_ name: String) -> Bool {
        ["_SERVICE_HOST", "_SERVICE_PORT", "_PORT_"].contains { name.contains($0) } || name.hasSuffix("_PORT")
    }
}
