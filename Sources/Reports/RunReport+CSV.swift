/// The changes as a CSV file: a head line, then a row for each.
extension RunReport {
    /// The head line, with its end.
    package static let csvHeader = "user_id,outcome,rule,type_before,type_after,assets,state,explanation\r\n"

    /// One change; rows are made one by one, so that files of any length need no memory.
    ///
    /// - Parameter change: what becomes of a user.
    /// - Returns: the row, with its end.
    package static func csvRow(_ change: Change) -> String {
        CSV.row([
            change.userID, change.outcome, change.rule ?? "", change.typeBefore ?? "", change.typeAfter ?? "",
            String(change.assets), change.state, change.explanation,
        ])
    }
}
