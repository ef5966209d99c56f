import Foundation

#if canImport(FoundationNetworking)
    import FoundationNetworking
#endif

/// What an app asks entitlement-sync: what the user has, Restore, the proof of a new purchase, cases with support.
public struct Entitlements: Sendable {
    /// Where the routes begin: `https://api.example.com/v1`, or `…/v1/apps/NAME`.
    public var api: URL
    /// The signed-in user's id; the answer on disk counts for this user alone.
    public var user: String
    /// Gives a user's sign-in token, or fails where another user is signed in by now; `true` asks for a fresh one (Firebase:
    /// `getIDTokenForcingRefresh`).
    public var token: @Sendable (_ user: String, _ isFresh: Bool) async throws -> String
    /// Where the last answer is kept, best in Application Support.
    public var file: URL
    /// The language of the texts, as in `Accept-Language`.
    public var language = Locale.preferredLanguages.first ?? "en"
    public var now: @Sendable () -> Date = { Date() }
    public var pause: @Sendable (_ seconds: Double) async throws -> Void = { try await Task.sleep(for: .seconds($0)) }
    /// The share by which a pause is longer, so that not all devices come back at once.
    public var jitter: @Sendable () -> Double = { .random(in: 0...0.25) }
    private let disk = Disk()

    public init(
        api: URL,
        user: String,
        file: URL,
        token: @escaping @Sendable (_ user: String, _ isFresh: Bool) async throws -> String
    ) {
        (self.api, self.user, self.file, self.token) = (api, user, file, token)
    }

    /// The longest time that the answer on disk is shown without a new one: three days.
    public static let longestOffline = 259_200.0
    /// The pauses before a request is sent again, unless the answer names one.
    static let pauses = [1.0, 2, 4, 8]
    /// A longer `Retry-After` is not waited for in front of a person.
    static let longestPause = 60.0
    /// How often a restore is asked for, 20 s each, before the app lets it go on without waiting.
    static let polls = 6

    // MARK: At each launch

    /// Asks what the user has; without an answer it is the one on disk, as long as that is shown.
    ///
    /// - Throws: `Failure`; `noAnswer`: and there is none on disk that may still be shown.
    public func entitlement() async throws -> Access {
        let generation = await disk.generation
        do {
            let data = try await send("GET", "/entitlement", tries: 2, mayAnswerFromDisk: true)
            let access = try Self.decode(Access.self, data)
            if let kept = try? JSONEncoder().encode(Kept(user: user, at: now(), answer: data)) {
                await disk.keep(kept, in: file, of: generation)
            }
            return access
        } catch Failure.noAnswer(let later) {
            guard let last = lastAnswer() else { throw Failure.noAnswer(retryAfter: later) }
            return last
        }
    }

    /// Writes answers down, but none that was asked for before the last sign-out.
    private actor Disk {
        private(set) var generation = 0

        func keep(_ answer: Data, in file: URL, of generation: Int) {
            guard generation == self.generation else { return }
            // A fresh install has no Application Support yet. An answer that can't be written is returned all the same.
            let folder = file.deletingLastPathComponent()
            try? FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
            try? answer.write(to: file, options: .atomic)
        }

        func forget(_ file: URL) {
            generation += 1
            try? FileManager.default.removeItem(at: file)
        }
    }

    /// The answer on disk, at once: until its `until`, at most three days, and not by a clock that was set back.
    public func lastAnswer() -> Access? {
        guard let data = try? Data(contentsOf: file), let kept = try? JSONDecoder().decode(Kept.self, from: data),
            kept.user == user, var access = try? Self.decode(Access.self, kept.answer),
            (-300...Self.longestOffline).contains(now().timeIntervalSince(kept.at)),
            access.until.map({ now() < $0 }) ?? true
        else { return nil }
        access.isFromDisk = true
        access.entitlements?.removeAll { $0.endsAt.map { $0 <= now() } ?? false }
        return access
    }

    /// Forgets the answer on disk, as at sign-out; one that is under way is not kept either.
    public func forget() async { await disk.forget(file) }

    // MARK: Restore, and after a purchase

    /// Sends the proof of a new purchase: the same call as Restore.
    ///
    /// Finish the transaction where the ending is `unlocked` and `restore.products` has its product.
    public func afterPurchase(_ proof: Proof, onStep: OnStep = { _ in }) async throws -> Shown {
        try await restore([proof], origin: "paywall", onStep: onStep)
    }

    /// Restores with what the device can show: sends the first 20 proofs.
    ///
    /// `clientError`: the name or code of the store library's error, never its text.
    ///
    /// - Throws: `Failure.signIn`, `.refused`; an outage ends in `tryAgain`, or in `nil` once the restore was taken.
    public func restore(
        _ proofs: [Proof],
        clientError: String? = nil,
        origin: String = "profile",
        onStep: OnStep = { _ in }
    ) async throws -> Shown {
        var restore: Restore?
        do {
            await onStep(.sending)
            let request = RestoreRequest(proofs: Array(proofs.prefix(20)), client_error: clientError, origin: origin)
            let body = try JSONEncoder().encode(request)
            var seen = try Self.decode(Restore.self, try await send("POST", "/restores", body, onStep))
            restore = seen
            await onStep(.checking)
            for poll in 0..<Self.polls where !seen.hasEnded {
                if poll > 0 { try await pause(1) }
                seen = try Self.decode(Restore.self, try await send("GET", "/restores/\(seen.id)?wait=25", nil, onStep))
                restore = seen
                if seen.messageKey == "still_checking" { await onStep(.stillChecking(seen)) }
            }
            // What was unlocked is on disk before the person reads of it.
            if seen.ending == .unlocked { _ = try? await entitlement() }
            return Shown(ending: seen.ending, restore: seen)
        } catch Failure.noAnswer {
            // Once it was taken it goes on, whether it can be asked for or not.
            return Shown(ending: restore == nil ? .tryAgain : nil, restore: restore)
        }
    }

    // MARK: Cases with support

    /// The user's cases, those first in which support awaits an answer.
    public func tickets() async throws -> [Ticket] {
        let all = try Self.decode(Tickets.self, try await send("GET", "/tickets")).tickets
        return all.filter { $0.state == "question" } + all.filter { $0.state != "question" }
    }

    /// The case to show.
    public func ticket() async throws -> Ticket? { try await tickets().first }

    /// Answers a question; an owner's `decision` is `object` or `agree`.
    ///
    /// Gives the text to show.
    public func reply(to ticket: Ticket, _ text: String? = nil, decision: String? = nil) async throws -> String {
        let reply = Reply(text: text, decision: decision, question_id: decision == "agree" ? ticket.questionId : nil)
        let data = try await send("POST", "/tickets/\(ticket.id)/replies", try JSONEncoder().encode(reply))
        return try Self.decode(Noted.self, data).message
    }

    /// Gives the owner's purchase to their other account, whose app shows the reference.
    ///
    /// Gives the text to show.
    public func release(_ reference: String) async throws -> String {
        let data = try await send("POST", "/releases", try JSONEncoder().encode(["reference": reference]))
        return try Self.decode(Noted.self, data).message
    }

    // MARK: Requests

    /// What follows a status: the table "Errors and limits" in entitlement-sync's http.md.
    enum Next { case done, freshToken, waitAsAsked, again, refused }

    static func next(_ status: Int?) -> Next {
        switch status {
        case nil, 408, 500, 502, 504: .again
        case .some(200..<300): .done
        case 401: .freshToken
        case 429, 503: .waitAsAsked
        case .some(500...): .again
        default: .refused
        }
    }

    /// Sends a request, and again as the table says, always under the same idempotency key.
    private func send(
        _ method: String,
        _ path: String,
        _ body: Data? = nil,
        _ onStep: OnStep = { _ in },
        tries: Int = pauses.count + 1,
        mayAnswerFromDisk: Bool = false
    ) async throws -> Data {
        guard let url = URL(string: api.absoluteString + path) else { throw Failure.noAnswer(retryAfter: nil) }
        var request = URLRequest(url: url, timeoutInterval: 35)
        request.httpMethod = method
        request.setValue(language, forHTTPHeaderField: "Accept-Language")
        if let body {
            request.httpBody = body
            request.setValue("application/json", forHTTPHeaderField: "Content-Type")
            request.setValue(UUID().uuidString, forHTTPHeaderField: "Idempotency-Key")
        }
        var (attempt, asksFresh, wasRenewed) = (0, false, false)
        while true {
            var (data, answer) = (Data(), HTTPURLResponse?.none)
            do {
                let token = try await token(user, asksFresh)
                asksFresh = false
                request.setValue("Bearer " + token, forHTTPHeaderField: "Authorization")
                let (received, response) = try await URLSession.shared.data(for: request)
                (data, answer) = (received, response as? HTTPURLResponse)
            } catch { try Task.checkCancellation() }
            // Not an answer of the service but of a proxy: what is on disk is shown in its place.
            let isProblem = answer?.mimeType == "application/problem+json"
            var wait = Self.pauses[min(attempt, Self.pauses.count - 1)]
            switch Self.next(answer?.statusCode) {
            case .done: return data
            case .refused:
                guard isProblem || !mayAnswerFromDisk else { throw Failure.noAnswer(retryAfter: nil) }
                let problem = try? JSONDecoder().decode(Problem.self, from: data)
                throw Failure.refused(problem ?? Problem(type: "", status: answer?.statusCode ?? 0))
            case .freshToken:
                guard !wasRenewed else {
                    throw isProblem || !mayAnswerFromDisk ? Failure.signIn : .noAnswer(retryAfter: nil)
                }
                (asksFresh, wasRenewed) = (true, true)
                continue
            case .waitAsAsked:
                wait = max(1, (answer?.value(forHTTPHeaderField: "Retry-After")).flatMap(Double.init) ?? wait)
            case .again: break
            }
            attempt += 1
            guard attempt < tries, wait <= Self.longestPause else { throw Failure.noAnswer(retryAfter: wait) }
            wait *= 1 + jitter()
            await onStep(.waiting(seconds: wait))
            try await pause(wait)
        }
    }

    private static func decode<Value: Decodable>(_ type: Value.Type, _ data: Data) throws -> Value {
        let decoder = JSONDecoder()
        decoder.dateDecodingStrategy = .iso8601
        decoder.keyDecodingStrategy = .convertFromSnakeCase
        // A page of a proxy is no answer.
        do { return try decoder.decode(type, from: data) } catch { throw Failure.noAnswer(retryAfter: nil) }
    }
}

// MARK: What a person is shown

extension Entitlements {
    /// For a spinner.
    ///
    /// It stops at `stillChecking`, where the person goes on and so does the restore, and at the end.
    public enum Step: Sendable {
        case askingStore, sending, checking, waiting(seconds: Double), stillChecking(Restore)
    }

    public typealias OnStep = @MainActor @Sendable (Step) -> Void

    /// How a restore ends for a person.
    public enum Ending: String, Sendable { case unlocked, nothing, tryAgain, support }

    static let endings: [String: Ending] = [
        "restored": .unlocked, "already_subscriber": .unlocked, "nothing_to_restore": .nothing,
        "store_unavailable": .tryAgain, "store_account_mismatch": .support, "not_eligible": .support,
    ]

    /// What to show: `restore.message` where there is one, else the app's own words for the ending.
    public struct Shown: Sendable {
        /// `nil`: it is still being checked, and goes on.
        public var ending: Ending?
        public var restore: Restore?
    }

    public enum Failure: Error, Sendable {
        /// No connection, or no answer after all tries; `retryAfter`: the pause that was due when it gave up, in seconds.
        case noAnswer(retryAfter: Double?)
        /// A fresh token was not taken either.
        case signIn
        /// The request has to change; for the developer.
        case refused(Problem)
    }
}

// MARK: What is sent and answered

extension Entitlements {
    public struct Proof: Codable, Sendable {
        public var store, kind, value: String
        public init(store: String = "app_store", kind: String = "storekit_jws", value: String) {
            (self.store, self.kind, self.value) = (store, kind, value)
        }
    }

    struct RestoreRequest: Encodable { var proofs: [Proof], client_error: String?, origin: String }
    struct Reply: Encodable { var text, decision, question_id: String? }
    struct Noted: Decodable { var message: String }
    struct Tickets: Decodable { var tickets: [Ticket] }
    struct Kept: Codable { var user: String, at: Date, answer: Data }

    public struct Access: Decodable, Sendable {
        /// `free` or `subscriber`.
        public var type: String
        public var until: Date?
        public var restoreSuggested: Bool
        /// Each thing that gives access now.
        public var entitlements: [Entitlement]?
        public var stores: [StoreState]
        /// There was no answer: this is the last one.
        public var isFromDisk = false
        enum CodingKeys: String, CodingKey { case type, until, restoreSuggested, entitlements, stores }
    }

    public struct Entitlement: Decodable, Sendable {
        public var id, store, source, productId: String?
        public var endsAt: Date?
        public var willRenew: Bool?
    }

    public struct StoreState: Decodable, Sendable { public var store, state: String, message: String? }

    public struct Restore: Decodable, Sendable {
        public var id, reference, state: String
        public var outcome, messageKey, message: String?
        public var products: [Product]
        public var estimatedWaitS: Int?
        public var hasEnded: Bool { ["done", "dead", "canceled"].contains(state) }
        public var ending: Ending? { hasEnded ? endings[outcome ?? ""] ?? .tryAgain : nil }
    }

    public struct Product: Decodable, Sendable {
        public var store: String
        public var productId: String?
        public var entitlements: [String]
        public var endsAt: Date?
    }

    public struct Ticket: Decodable, Sendable {
        /// `role`: `claimant` or `owner`; `state`: `open`, `question` or `decided`.
        public var id, role, state, message: String
        public var reference, question, questionId, store, productId: String?
        public var createdAt: Date
        public var askedAt, answerBy: Date?
    }

    public struct Problem: Decodable, Sendable {
        public var type: String
        public var status: Int
        public var title, detail, field, fix, instance: String?
    }
}

// MARK: StoreKit 2, with RevenueCat where the app has it

#if canImport(StoreKit)
    import StoreKit
    #if canImport(RevenueCat)
        import RevenueCat
    #endif

    extension Entitlements {
        /// A tap on Restore: asks the store (which may ask for its password), then restores with all that it has signed.
        public func restore(onStep: OnStep = { _ in }) async throws -> Shown {
            await onStep(.askingStore)
            var clientError: String?
            do { try await AppStore.sync() } catch StoreKitError.userCancelled {
                clientError = "cancelled"
            } catch { clientError = "connection_error" }
            #if canImport(RevenueCat)
                do { _ = try await Purchases.shared.restorePurchases() } catch let error as RevenueCat.ErrorCode {
                    clientError = "\(error.errorCode)"
                } catch { clientError = "connection_error" }
            #endif
            var proofs: [Proof] = []
            for await result in StoreKit.Transaction.currentEntitlements {
                proofs.append(Proof(value: result.jwsRepresentation))
            }
            // Names the store account of the device, even if nothing was bought with it.
            if let app = try? await AppTransaction.shared {
                proofs = proofs.prefix(19) + [Proof(kind: "app_transaction", value: app.jwsRepresentation)]
            }
            return try await restore(proofs, clientError: clientError, onStep: onStep)
        }

        /// After `product.purchase(options: [.appAccountToken(…)])`, with the transaction of its `success`.
        public func afterPurchase(
            _ result: VerificationResult<StoreKit.Transaction>,
            onStep: OnStep = { _ in }
        ) async throws -> Shown {
            let shown = try await afterPurchase(Proof(value: result.jwsRepresentation), onStep: onStep)
            await finish([result], as: shown)
            return shown
        }

        /// What the store gives the app by itself, from `Transaction.unfinished` and `Transaction.updates`: finishes what gives
        /// nothing any more, and sends the proofs of the rest in one restore, 20 at most; `nil` where nothing is left to send.
        @discardableResult
        public func afterUpdates(_ results: [VerificationResult<StoreKit.Transaction>]) async throws -> Shown? {
            var rest: [VerificationResult<StoreKit.Transaction>] = []
            for result in results {
                if case .verified(let one) = result,
                    one.revocationDate != nil || one.expirationDate.map({ $0 <= now() }) == true
                {
                    await one.finish()
                } else if rest.count < 20 {
                    rest.append(result)
                }
            }
            guard !rest.isEmpty else { return nil }
            let shown = try await restore(rest.map { Proof(value: $0.jwsRepresentation) }, origin: "paywall")
            await finish(rest, as: shown)
            return shown
        }

        /// Finishes what was unlocked; the store gives the rest to the app again.
        private func finish(_ results: [VerificationResult<StoreKit.Transaction>], as shown: Shown) async {
            guard shown.ending == .unlocked, let products = shown.restore?.products else { return }
            for case .verified(let one) in results where products.contains(where: { $0.productId == one.productID }) {
                await one.finish()
            }
        }
    }
#endif
