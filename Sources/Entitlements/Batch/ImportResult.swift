/// What became of a line of a file that names users' purchases.
package enum ImportResult: String, Sendable, CaseIterable {
    /// It is written once an operator has approved the import.
    case planned
    case imported
    case alreadyOwned = "already_owned"
    /// The line says the same as an earlier one.
    case repeated
    // Conflicts: nothing is written, and operators see the line in the report alone.
    case ownedByAnother = "owned_by_another"
    /// The id that the app gave the store names another user.
    case namesAnother = "names_another"
    /// RevenueCat names another customer.
    case heldElsewhere = "held_elsewhere"
    /// The file names several users for the purchase.
    case namedForSeveral = "named_for_several"
    /// The store's identifiers of the purchase stand in the ledger with several owners.
    case identityCollision = "identity_collision"
    /// Only the id that the app gave the store may name the owner, and there is none.
    case unattributable
    // Lines that lead to no purchase, or to no user who may have it.
    case malformed
    case unknownUser = "unknown_user"
    case notEligible = "not_eligible"
    case notFound = "not_found"
    case sandbox
    /// The store is not configured.
    case storeOff = "store_off"
    /// The store, or the records, gave no answer however often they were asked.
    case unread
    /// The user was erased since.
    case erased

    /// Whether another user's claim keeps the line from being written.
    package var isConflict: Bool {
        switch self {
        case .ownedByAnother, .namesAnother, .heldElsewhere, .namedForSeveral, .identityCollision, .unattributable:
            true
        case .planned, .imported, .alreadyOwned, .repeated, .malformed, .unknownUser, .notEligible, .notFound, .sandbox,
            .storeOff, .unread, .erased:
            false
        }
    }
}
