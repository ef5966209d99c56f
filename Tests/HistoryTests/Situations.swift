import Entitlements

extension Model {
    /// What has to come up in every run of a whole profile: without it a law could hold because its case never came.
    static let interesting: [String] = [
        "join while queued", "successor while running", "joined the successor", "a tap ends a wait",
        "overtaken read", "overtaken by a newer reading of the user", "lease lost with a reading in hand",
        "late apply after another worker's", "quarantined", "canceled while running", "canceled job without a worker",
        "dead then retried", "dead by failed readings", "dead by an unmapped product", "unmapped, then mapped",
        "delayed retry", "merge of rows of one owner", "followed owner", "followed owner within one batch",
        "brake held", "announced demotion",
        "lapse cuts an unfreeze", "restore cuts a freeze", "asset batch in a run", "asset run of the past ends",
        "asset run of the past fits again, and ends", "assets wait for whoever decides on their user",
        "a ticket is touched", "banned between read and write", "deleted between read and write",
        "paused with a reading in hand", "postponed by a host's lock on the user",
        "postponed by a host's lock on the queue", "postponed for the former owner's row",
        "postponed for another job of the batch", "an asset was locked", "applied twice",
        "applied twice, and another worker has the job", "key repeated",
        "batch of several jobs", "partial reading with access", "partial reading without access", "gone user read",
        "attribution identity_collision", "attribution sources_disagree", "attribution other_user",
        "attribution anonymous", "attribution owner_followed_revenuecat", "merge while following",
        "contested purchase stays", "contest ended",
        "ineligible with access", "restore where a reconcile demotes",
        "run of all", "run of due", "run of since", "dry run of all", "asked for a second run of a scope",
        "run within its limit", "run stopped", "run released", "dry run released", "released by another hash",
        "nothing to release", "run canceled", "run canceled while it was read", "run superseded", "run done",
        "held by a run", "an event waits for no run", "a confirmed demotion passes the brake",
        "changed while a run held it", "another turn in a run", "a run waits for the end of a pause",
        "grant expired", "grant revoked", "paid elsewhere", "paid elsewhere again", "paid elsewhere no longer",
        "erased", "erased in a run", "erased while a run held it",
        "erased with a job in hand", "transferred", "transferred in a run", "a transfer moves several purchases",
        "a transfer closes a ticket", "a store echoes what was transferred", "rule moved_away",
        "another project's key", "several items on one record",
        "several items make one row", "a comped user is read", "the clock was ahead", "records dated to the present",
        "overtaken by what a clock dated ahead", "a purchase known by its notification alone",
        "attribution contradicted",
    ]

    /// Notes what a verdict was about.
    mutating func notice(_ verdict: Verdict, _ attributions: [Attribution], _ item: ModelItem, _ before: Model) {
        note("rule \(verdict.rule.rawValue)")
        for attribution in attributions {
            note("attribution \(attribution.name)")
            if case .followed(_, let owner, let merging) = attribution {
                if !merging.isEmpty { note("merge while following") }
                if jobs.contains(where: { $0.state == .running && $0.user == Int(owner) - 1 }) {
                    note("followed owner while the former one's job runs")
                }
            }
        }
        if item.reading.coverage == .partial { note("partial reading with access") }
        if verdict.rule == .accountGone { note("gone user read") }
        if verdict.messageKey == .nothingEnded { note("restore where a reconcile demotes") }
        if verdict.rule == .notEligible, item.reading.observations.contains(where: { $0.givesAccess == true }) {
            note("ineligible with access")
        }
    }
}
