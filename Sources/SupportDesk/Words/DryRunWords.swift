import Entitlements

/// What a reconcile would do, where people read it.
package enum DryRunWords {
    /// What would change, in one sentence, by a dry run that has its answer.
    package static func sentence(_ run: DeskUser.DryRun) -> String {
        guard run.error != ReadFailure.Code.locked.rawValue else {
            return "Another process worked on this user's records each time. Ask again in a moment."
        }
        guard run.outcome != Outcome.storeUnavailable.rawValue else {
            let reason = run.error.map { TicketWords.plain($0).lowercased() }
            return "The stores did not say all that a decision needs\(reason.map { " (\($0))" } ?? "")."
                + " A reconcile would change nothing, and try again."
        }
        let change = [type(run), assets(run)].compactMap(\.self).joined(separator: ", and ")
        return change.isEmpty
            ? "A reconcile would change nothing: the user stays \(run.typeBefore ?? "as they are")."
            : "A reconcile would " + change + "."
    }

    private static func type(_ run: DeskUser.DryRun) -> String? {
        guard let before = run.typeBefore, let after = run.typeAfter, before != after else { return nil }
        return "make this user \(called(after)) instead of \(called(before))"
    }

    private static func called(_ type: String) -> String {
        type == UserType.subscriber.rawValue ? "a subscriber" : type
    }

    private static func assets(_ run: DeskUser.DryRun) -> String? {
        guard run.assets > 0 else { return nil }
        let verb = run.typeAfter == UserType.subscriber.rawValue ? "unfreeze" : "freeze"
        return "\(verb) \(run.assets) \(run.assets == 1 ? "asset" : "assets")"
    }
}
