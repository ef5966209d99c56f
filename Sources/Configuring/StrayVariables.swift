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
                if let like = nearest(upper) { return Finding(name: name, like: like) }
                return families.contains(where: upper.hasPrefix) && !isOfService(upper) ? Finding(name: name) : nil
            }
        return Array(findings.sorted { $0.name < $1.name }.prefix(most))
    }

    /// Kubernetes gives each container the addresses of services, whose names may begin as ours.
    private static func isOfService(_ name: String) -> Bool {
        ["_SERVICE_HOST", "_SERVICE_PORT", "_PORT_"].contains { name.contains($0) } || name.hasSuffix("_PORT")
    }

    /// The known variable that a name differs from by two slips at most; slips seldom are in the first letter.
    private static func nearest(_ name: String) -> String? {
        let letters = Array(name.utf8)
        return known.lazy.compactMap { candidate -> (name: String, slips: Int)? in
            let other = Array(candidate.utf8)
            guard other.first == letters.first, abs(other.count - letters.count) <= 2 else { return nil }
            let slips = distance(letters, other)
            return slips <= 2 ? (candidate, slips) : nil
        }.min { ($0.slips, $0.name) < ($1.slips, $1.name) }?.name
    }

    /// Letters that are missing, too many, or others.
    private static func distance(_ one: [UInt8], _ other: [UInt8]) -> Int {
        var row = Array(0...other.count)
        for (line, letter) in one.enumerated() {
            var diagonal = row[0]
            row[0] = line + 1
            for (place, counterpart) in other.enumerated() {
                let next = min(row[place] + 1, row[place + 1] + 1, diagonal + (letter == counterpart ? 0 : 1))
                diagonal = row[place + 1]
                row[place + 1] = next
            }
        }
        return row[other.count]
    }
}
