/// What a decision will do, in one sentence, before it is made.
struct Outlook {
    /// What is sold, such as `App Store, premium_monthly`.
    var purchase: String
    /// How many other purchases the transfer moves.
    var others: Int
    /// How many more people have to approve after this one.
    var approvalsLeft: Int
    /// Until when the owner may object, in words; `nil`: no owner is waited for.
    var ownerUntil: String?
    /// How many hours an owner gets who has not been asked yet; `nil`: no owner is asked.
    var ownerHours: Int?

    private var moved: String {
        switch others {
        case 0: purchase
        case 1: "\(purchase) and 1 other purchase"
        default: "\(purchase) and \(others) other purchases"
        }
    }

    /// What approving does.
    var approving: String {
        var then: [String] = []
        if approvalsLeft == 1 { then.append("1 more approver has agreed") }
        if approvalsLeft > 1 { then.append("\(approvalsLeft) more approvers have agreed") }
        if let ownerUntil { then.append("the owner's time has passed without an objection (\(ownerUntil))") }
        let start = "If you approve, \(moved) may move from the owner to the claimant"
        let asked =
            ownerHours.map {
                " The owner is notified now that it was asked for, never who asked, and has \($0) \($0 == 1 ? "hour" : "hours") to object."
            } ?? ""
        return
            (then.isEmpty
            ? "\(start) as soon as an operator starts the transfer."
            : "\(start) once \(then.joined(separator: " and ")), and an operator starts the transfer.") + asked
    }

    /// What skipping the rest of the owner's time does, where so many people have to agree yet.
    func waiving(approvalsMissing: Int) -> String {
        let until = ownerUntil.map { " and not at \($0)" } ?? ""
        let agreed =
            switch approvalsMissing {
            case ...0: "as soon as"
            case 1: "once 1 more approver has agreed and"
            default: "once \(approvalsMissing) more approvers have agreed and"
            }
        return "If you skip it, the owner's time ends now\(until): \(moved) may move to the claimant \(agreed) "
            + "an operator starts the transfer. This is no approval, and the owner may still object until then."
    }

    /// What starting the transfer does.
    var transferring: String {
        "The transfer moves \(moved) now: the claimant becomes a subscriber, and the owner becomes what is left to them."
    }
}
