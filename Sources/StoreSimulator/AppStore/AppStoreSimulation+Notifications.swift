internal import Foundation
internal import NIOCore

extension AppStoreSimulation {
    private struct NotificationBody: Decodable {
        var startDate: Int64
        var endDate: Int64
        var onlyFailures: Bool?
        var notificationType: String?
        var notificationSubtype: String?
        var transactionId: String?
    }

    /// What was sent in a span of time, page by page.
    func notifications(_ path: AppStorePath, _ request: StoreRequest, nowMs: Int64) throws -> Reply {
        let data = Data(request.body.readableBytesView)
        guard let body = try? JSONDecoder().decode(NotificationBody.self, from: data) else {
            throw AppStoreFailure(4_000_015)
        }
        let memoryMs = (path.side == .production ? 180 : 30) * TimeText.day
        guard body.startDate >= nowMs - memoryMs else { throw AppStoreFailure(4_000_012) }
        guard body.endDate > body.startDate else { throw AppStoreFailure(4_000_013) }
        guard body.transactionId == nil || body.notificationType == nil else { throw AppStoreFailure(4_000_019) }
        let found = scenario.notifications.map { (it: $0, sentMs: $0.at.milliseconds(from: loadedAtMs)) }
            .filter { notification in
                notification.it.environment == path.side
                    && (body.startDate..<body.endDate).contains(notification.sentMs)
                    && (body.onlyFailures != true || !notification.it.isDelivered)
                    && (body.notificationType.map { $0 == notification.it.type } ?? true)
                    && (body.notificationSubtype.map { $0 == notification.it.subtype } ?? true)
                    && (body.transactionId.map { $0 == notification.it.transaction } ?? true)
            }
        let list = AppStoreRevision(path, "\(body.startDate)-\(body.endDate)-\(body.onlyFailures ?? false)")
        let start = Int(try path.value("paginationToken", else: 4_000_014, list.read) ?? 0)
        let end = min(found.count, start + AppStoreRevision.pageSize)
        let page = start < end ? found[start..<end] : []
        let writer = writer(nowMs: nowMs)
        let payloads = try page.map { notification in
            try writer.notification(
                notification.it,
                sentMs: notification.sentMs,
                subject: notification.it.transaction.flatMap(find)
            )
        }
        return .object { json in
            json.member("paginationToken", list.write(Int64(end)))
            json.member("hasMore", end < found.count)
            json.array("notificationHistory") { json in
                for (payload, notification) in zip(payloads, page) {
                    json.object { json in
                        json.member("signedPayload", payload)
                        json.array("sendAttempts") { json in
                            json.object { json in
                                json.member("attemptDate", notification.sentMs)
                                json.member(
                                    "sendAttemptResult",
                                    literal: notification.it.isDelivered ? "SUCCESS" : "TIMED_OUT"
                                )
                            }
                        }
                    }
                }
            }
        }
    }
}
