package import Entitlements

extension AppStoreClient {
    /// The most pages of one list; each holds up to 20 notifications.
    private static let maximumPages = 50_000

    /// Lists the notifications that the App Store sent, or tried to: 180 days back, in the sandbox 30.
    ///
    /// A place in the list can expire; the list is then read again from its beginning, once. `onlyFailures` leaves out
    /// those that reached us. `each` takes a page of signed payloads, not yet verified; one may come twice.
    package func notifications(
        from start: Instant,
        until end: Instant,
        onlyFailures: Bool,
        in environment: AppStoreEnvironment,
        lane: Lane,
        each: ([String]) async throws -> Void
    ) async throws {
        let body = Array(
            (#"{"startDate":\#(start.microseconds / 1000),"endDate":\#(end.microseconds / 1000),"#
                + #""onlyFailures":\#(onlyFailures)}"#).utf8
        )
        var place: String?
        var places: Set<String> = []
        var hasRestarted = false
        for _ in 0..<Self.maximumPages {
            switch try await notifications(at: place, body, in: environment, lane: lane) {
            case .page(let page):
                if !page.signed.isEmpty { try await each(page.signed) }
                guard page.hasMore else { return }
                // A list that leads back to where it was has no end.
                guard let next = page.next, places.insert(next).inserted else {
                    throw ReadFailure(.malformed, store: .appStore)
                }
                place = next
            case .expired:
                guard !hasRestarted else { throw ReadFailure(.unavailable, store: .appStore) }
                hasRestarted = true
                place = nil
                places = []
            }
        }
        throw ReadFailure(.malformed, store: .appStore)
    }

    private enum NotificationPage {
        case page(AppStoreWire.Page)
        /// The place in the list is no longer known.
        case expired
    }

    private func notifications(
        at place: String?,
        _ body: [UInt8],
        in environment: AppStoreEnvironment,
        lane: Lane
    ) async throws(ReadFailure) -> NotificationPage {
        var requests = 0
        return try await requester.send(
            .notifications(page: place),
            in: environment,
            lane: lane,
            purpose: .reading,
            body: body,
            requests: &requests
        ) { answer throws(ReadFailure) in
            switch answer {
            case .content(let body): return .page(try decoded(body, AppStoreWire.notifications))
            case .refused(_, 4_000_014) where place != nil, .refused(_, 4_000_017) where place != nil: return .expired
            case .refused: throw ReadFailure(.rejected)
            }
        }
    }
}

/// What became of a test notification.
package enum AppStoreTest: Sendable, Hashable {
    /// It is under way.
    case pending
    /// What the App Store sent, not yet verified, and in its words what became of each attempt, the newest last.
    case sent(signed: String?, attempts: [String])
}

extension AppStoreClient {
    /// Asks the App Store to send a test notification to the address that is set for an environment.
    ///
    /// - Returns: the token by which its status is asked for; `nil`: no address is set.
    package func requestTest(in environment: AppStoreEnvironment) async throws(ReadFailure) -> String? {
        var requests = 0
        return try await requester.send(
            .test(token: nil),
            in: environment,
            lane: .support,
            purpose: .reading,
            requests: &requests
        ) { answer throws(ReadFailure) -> String? in
            switch answer {
            case .content(let body): return try decoded(body, AppStoreWire.testToken)
            case .refused(_, 4_040_007): return nil
            case .refused: throw ReadFailure(.rejected, store: .appStore)
            }
        }
    }

    /// Asks what became of a test notification.
    package func test(_ token: String, in environment: AppStoreEnvironment) async throws(ReadFailure) -> AppStoreTest {
        var requests = 0
        return try await requester.send(
            .test(token: token),
            in: environment,
            lane: .support,
            purpose: .reading,
            requests: &requests
        ) { answer throws(ReadFailure) -> AppStoreTest in
            switch answer {
            case .content(let body):
                let (signed, attempts) = try decoded(body, AppStoreWire.testStatus)
                return attempts.isEmpty ? .pending : .sent(signed: signed, attempts: attempts)
            case .refused(_, 4_040_008): return .pending
            case .refused: throw ReadFailure(.rejected, store: .appStore)
            }
        }
    }
}
