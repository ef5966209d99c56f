import Entitlements

extension ImportRecords.Line {
    /// Why it has its result, in a sentence.
    package var reason: String {
        guard let result else { return "it waits: \(detail ?? "its store has not been asked yet")" }
        switch ImportResult(rawValue: result) {
        case .planned: return "it is imported once the import is approved"
        case .imported: return "the user owns the purchase (imported_by_operator, unless the store names the user)"
        case .alreadyOwned: return "the user owns the purchase already"
        case .repeated: return "line \(detail ?? "?") names the same purchase for the same user"
        case .ownedByAnother: return "another user owns the purchase"
        case .namesAnother: return "the id that the app gave the store names another user"
        case .heldElsewhere: return "RevenueCat holds the purchase for another customer"
        case .namedForSeveral: return "the file names several users for the purchase"
        case .identityCollision: return "the store's ids of the purchase belong to several users"
        case .unattributable: return "the store does not say whose the purchase is, and no operator can"
        case .malformed: return ImportFile.LineFault(rawValue: detail ?? "")?.reason ?? "the line can't be read"
        case .unknownUser: return "the host has no user of this id"
        case .notEligible: return "the user's account is banned or being deleted"
        case .notFound: return "the store knows no purchase of this name"
        case .sandbox: return "a sandbox purchase, and the user is not on the list (sandbox allow)"
        case .storeOff: return "the store is not configured"
        case .unread: return unread
        case .erased: return "the user was erased"
        case nil: return result
        }
    }

    /// Why it was not read.
    private var unread: String {
        switch detail.flatMap(ReadFailure.Code.init) {
        case .locked: "other transactions kept the user's row locked; import the line again"
        case .refused: "the database refuses the line; the worker's log says why"
        default: "no answer after all retries: \(detail ?? "unavailable")"
        }
    }
}

extension ImportFile.LineFault {
    fileprivate var reason: String {
        switch self {
        case .tooLong: "longer than \(ImportFile.mostLineBytes) bytes"
        case .encoding: "not in UTF-8"
        case .fields: "write four fields: \(ImportFile.header)"
        case .user: "user_id: write 1 to 1500 bytes without control characters"
        case .store: "store: write app_store, google_play or onside"
        case .kind:
            "kind: write original_transaction_id or order_id (app_store), purchase_token or order_id (google_play), or order_id (onside)"
        case .value: "value: it has not the form of this kind of id"
        }
    }
}
