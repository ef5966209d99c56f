import Entitlements
import Foundation
import HTTPTypes
import Logging
import SignedTokens
import Telemetry
import Transport

extension OnsideClient {
    /// The answer to one order.
    struct Answer: Sendable {
        var transactions: [OnsideTransaction] = []
        var isUnknown = false
        var hasOdd = false
        var failure: ReadFailure?
        var requests = 0
    }

    /// What one request came to, where it says nothing bad about the store.
    private enum Said {
        case signed(CompactJWS)
        case unauthorized, notOurs, notFound
    }

    func ask(_ order: OnsideQuery.Order, _ query: OnsideQuery) async -> Answer {
        var answer = Answer()
        let isRecorded = order.isProven && !query.isFromClient
        do throws(ReadFailure) {
            var said = try await send(order, query, isLast: false, &answer.requests)
            // A token that was on its way for too long is no sign of a wrong secret: a fresh one decides.
            if case .unauthorized = said { said = try await send(order, query, isLast: true, &answer.requests) }
            switch said {
            case .signed(let signed):
                let history = try await open(signed, order, query)
                (answer.transactions, answer.hasOdd) = (history.transactions, history.hasOdd)
            // Our own records have it from Onside that it is ours: that it is not, or not there, is an error somewhere.
            case .notOurs where isRecorded, .notFound where isRecorded:
                warn("not_ours")
                answer.isUnknown = true
                answer.failure = named(.unknownToStore)
            case .notOurs: answer.isUnknown = true
            case .notFound where order.isProven: throw named(.unavailable)
            case .notFound: answer.isUnknown = true
            case .unauthorized: throw named(.unauthorized)
            }
        } catch {
            // An id that the store calls impossible leads nowhere, where a client chose it.
            answer.isUnknown = error.code == .rejected && query.isFromClient && !order.isProven
            answer.failure = answer.isUnknown ? nil : error
        }
        return answer
    }

    private func send(
        _ order: OnsideQuery.Order,
        _ query: OnsideQuery,
        isLast: Bool,
        _ requests: inout Int
    ) async throws(ReadFailure) -> Said {
        let token = MerchantToken(for: configuration, now: systemSeconds()).signed(with: configuration.key)
        var call = call(
            .history,
            path: "/merchant-api/v1/purchases/in-app/history/\(order.id.text)",
            accept: "application/jose",
            bearer: token,
            lane: query.lane
        )
        call.purpose = query.isFromClient ? .lookup : .reading
        return try await requester.send(call, requests: &requests) { response throws(ReadFailure) in
            switch OnsideAnswer(status: response.status) {
            case .content:
                // Pages of proxies have this status as well: what counts is that the body is a signed text.
                let text = String(validating: response.body, as: UTF8.self)?.trimmingCharacters(
                    in: .whitespacesAndNewlines
                )
                guard let text, let signed = try? CompactJWS(text, upTo: OnsideHistory.maximumBytes) else {
                    throw ReadFailure(.malformed)
                }
                return .signed(signed)
            case .unauthorized:
                if isLast { throw ReadFailure(.unauthorized) }
                return .unauthorized
            case .notOurs: return .notOurs
            case .notFound: return .notFound
            case .failure(let code): throw ReadFailure(code)
            }
        }
    }

    /// Verifies an answer, and that it is one to the question.
    private func open(
        _ signed: CompactJWS,
        _ order: OnsideQuery.Order,
        _ query: OnsideQuery
    ) async throws(ReadFailure) -> OnsideHistory {
        let history: OnsideHistory
        do throws(OnsideProofFailure) {
            history = try await verify(signed, lane: query.lane)
        } catch {
            switch error {
            case .unread(let failure): throw failure
            case .refused(let refusal):
                warn(refusal.code.rawValue)
                // Its key may show in the set later; nothing else mends itself.
                throw named(refusal.code == .unknownKey ? .unavailable : .malformed)
            }
        }
        let transactions = history.transactions
        let isNamed = transactions.contains { $0.orderID == order.id.text || $0.originalOrderID == order.id.text }
        // What was asked for may be what can't be read.
        guard isNamed || history.hasOdd else {
            warn("other_order")
            throw named(.malformed)
        }
        guard transactions.allSatisfy({ $0.fetchedAt <= query.askedAt + .seconds(600) }) else {
            warn("from_the_future")
            throw named(.malformed)
        }
        return history
    }

    func named(_ code: ReadFailure.Code) -> ReadFailure { ReadFailure(code, store: .onside) }

    /// Says that an answer was not taken; the right server sends none such.
    private func warn(_ reason: String) {
        guard let unsaid = throttle.leave(for: .malformed) else { return }
        logger.info(
            "a signed answer was refused",
            metadata: ["store": "onside", "error.code": "\(reason)", "log.left_out": "\(unsaid)"]
        )
    }
}
