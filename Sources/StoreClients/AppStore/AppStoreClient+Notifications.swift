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
