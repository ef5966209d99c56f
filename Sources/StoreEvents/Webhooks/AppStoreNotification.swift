import Entitlements
package import SignedTokens
package import StoreClients
import TextFormats

/// Understands the App Store's server notifications, version 2.
///
/// - SeeAlso: https://developer.apple.com/documentation/appstoreservernotifications
package struct AppStoreNotifications: Sendable {
    private let proofs: AppStoreProofs
    private let apps: [App]

    /// An app whose notifications are taken.
    package struct App: Sendable {
        var bundleID: String
        var appID: Int64?

        /// `appID`: the app's number, which production's notifications name; `nil` takes any.
        package init(bundleID: String, appID: Int64?) {
            self.bundleID = bundleID
            self.appID = appID
        }
    }

    /// Makes a reader of an app's notifications; `appID`: as `App` has it.
    package init(proofs: AppStoreProofs, bundleID: String, appID: Int64?) {
        self.init(proofs: proofs, apps: [App(bundleID: bundleID, appID: appID)])
    }

    /// Makes a reader of the notifications of several apps, each with a bundle id of its own.
    package init(proofs: AppStoreProofs, apps: [App]) {
        self.proofs = proofs
        self.apps = apps
    }

    /// Why a notification is not taken.
    package enum Refusal: Error, Hashable, Sendable {
        /// It is not one of the App Store's for this app.
        case untrusted(ProofRefusal.Code)
        /// The body holds no signed payload.
        case malformed(MalformedEvent)
    }

    private enum Outer: String, CaseIterable { case signedPayload }
    private static let outerFields = JSONFields<Outer>()
    /// The longest signed payload that is taken, in bytes.
    fileprivate static let maximumBytes = 64 << 10

    /// Verifies the notification in a request's body, and every signed text in it.
    package func event(_ body: [UInt8]) async throws(Refusal) -> StoreEvent {
        let signed: String
        do throws(JSONFault) { signed = try Self.signedPayload(body) } catch {
            throw .malformed(MalformedEvent(reason: error.clause))
        }
        do throws(ProofRefusal) { return try await event(signed: signed) } catch { throw .untrusted(error.code) }
    }

    /// Verifies a notification as it stands in the App Store's list of them, without JSON around it.
    package func event(signed: String) async throws(ProofRefusal) -> StoreEvent {
        guard signed.utf8.count <= Self.maximumBytes else { throw ProofRefusal(.malformed, "It is too long.") }
        let notification = try await proofs.verified(signed, as: SignedNotification.self)
        try check(notification)
        return try await event(notification)
    }

    /// The request's body that would have brought a payload, which is Base64 and dots.
    package static func body(of signed: String) -> [UInt8] { Array(#"{"signedPayload":"\#(signed)"}"#.utf8) }

    private static func signedPayload(_ body: [UInt8]) throws(JSONFault) -> String {
        var reader = try JSONReader(body)
        var text: String?
        try reader.readObject(outerFields) { reader, _ throws(JSONFault) in
            text = try reader.readString(upTo: maximumBytes)
        }
        try reader.finish()
        guard let text else { throw .missing }
        return text
    }

    private func check(_ notification: SignedNotification) throws(ProofRefusal) {
        let app = apps.first { $0.bundleID == notification.bundleID }
        // The sandbox does not always name the app's number.
        let isNumbered = app?.appID != nil && notification.environment == AppStoreEnvironment.production.rawValue
        guard let app, !isNumbered || notification.appID == app.appID else {
            throw ProofRefusal(.wrongBundle, "It is about another app.")
        }
    }

    private func event(_ notification: SignedNotification) async throws(ProofRefusal) -> StoreEvent {
        var purchases: [StoreEvent.Purchase] = []
        var users: [String] = []
        if let text = notification.signedTransaction {
            let transaction = try await proofs.transaction(text)
            try same(transaction.environment, notification)
            // Signed texts of two apps are never sent together.
            guard transaction.bundleID == notification.bundleID else {
                throw ProofRefusal(.wrongBundle, "Its parts are about different apps.")
            }
            let ids = [transaction.originalTransactionID, transaction.transactionID]
            purchases = StoreEvent.Purchase.of(
                .appStore,
                environment: notification.ledgerEnvironment,
                app: apps.count > 1 ? transaction.bundleID : nil,
                ids
            )
            // Where a host's ids are UUIDs, the app may have given the user's own.
            if let token = transaction.appAccountToken { users = [token, token.uppercased()] }
        }
        if let text = notification.signedRenewalInfo {
            try same(try await proofs.renewalInfo(text).environment, notification)
        }
        return StoreEvent(
            source: .appStore,
            id: notification.id,
            kind: [notification.type, notification.subtype].compactMap(\.self).joined(separator: "."),
            occurredAt: notification.signedAt,
            users: users,
            purchases: purchases
        )
    }

    /// Signed texts of two environments are never sent together.
    private func same(_ environment: String, _ notification: SignedNotification) throws(ProofRefusal) {
        guard environment == notification.environment else {
            throw ProofRefusal(.wrongEnvironment, "Its parts are of different environments.")
        }
    }
}

/// What a notification says.
struct SignedNotification: AppStorePayload {
    var id: String
    var type: String
    var subtype: String?
    var signedAt: Instant
    var environment: String
    var bundleID: String?
    var appID: Int64?
    var signedTransaction: String?
    var signedRenewalInfo: String?

    /// The word our own records have for the environment.
    var ledgerEnvironment: String {
        environment == AppStoreEnvironment.production.rawValue
            ? AppStoreEnvironment.production.ledgerName : AppStoreEnvironment.sandbox.ledgerName
    }

    private enum Field: String, CaseIterable {
        case notificationType, subtype, notificationUUID, signedDate, data, summary, externalPurchaseToken, appData
    }
    private enum DataField: String, CaseIterable {
        case appAppleId, bundleId, environment, signedTransactionInfo, signedRenewalInfo, externalPurchaseId
    }

    private static let fields = JSONFields<Field>()
    private static let dataFields = JSONFields<DataField>()

    private struct Draft {
        var texts: [Field: String] = [:]
        var data: [DataField: String] = [:]
        var appID: Int64?
        var signedMs: Int64?
    }

    package init(payload: [UInt8]) throws(ProofRefusal) {
        let draft: Draft
        do throws(JSONFault) { draft = try Self.read(payload) } catch {
            throw ProofRefusal(.malformed, "The payload is no notification: \(error.clause).")
        }
        guard let id = draft.texts[.notificationUUID], StoreEvent.isID(id),
            let type = draft.texts[.notificationType], (1...100).contains(type.utf8.count),
            let signedAt = draft.signedMs.flatMap(Instant.init(milliseconds:))
        else { throw ProofRefusal(.malformed, "The payload is no notification: a member is missing.") }
        self.id = id
        self.type = type
        subtype = draft.texts[.subtype].flatMap { $0.isEmpty || $0.utf8.count > 100 ? nil : $0 }
        self.signedAt = signedAt
        // Tokens of purchases outside the store name no environment; those of the sandbox are marked.
        let isMarked = draft.data[.externalPurchaseId]?.hasPrefix("SANDBOX")
        environment = draft.data[.environment] ?? (isMarked == true ? "Sandbox" : "Production")
        bundleID = draft.data[.bundleId]
        appID = draft.appID
        signedTransaction = draft.data[.signedTransactionInfo]
        signedRenewalInfo = draft.data[.signedRenewalInfo]
    }

    private static func read(_ payload: [UInt8]) throws(JSONFault) -> Draft {
        var reader = try JSONReader(payload)
        var draft = Draft()
        try reader.readObject(fields) { reader, field throws(JSONFault) in
            switch field {
            case .signedDate: draft.signedMs = try reader.readOptionalInteger()
            case .data, .summary, .externalPurchaseToken, .appData:
                guard try !reader.readNull() else { return }
                try reader.readObject(dataFields) { reader, field throws(JSONFault) in
                    guard field == .appAppleId else {
                        draft.data[field] =
                            try reader.readNull()
                            ? nil : try reader.readString(upTo: AppStoreNotifications.maximumBytes)
                        return
                    }
                    draft.appID = try reader.readOptionalInteger()
                }
            default: draft.texts[field] = try reader.readOptionalString()
            }
        }
        try reader.finish()
        return draft
    }
}
