package import Entitlements
import Foundation
import TextFormats

/// What an order number leads to.
package struct GooglePlayOrder: Hashable, Sendable {
    package var id: String
    /// Never shown, never logged; `nil`: it can't be read.
    package var purchaseToken: String?
    /// The raw `state`, such as `PROCESSED` and `REFUNDED`; empty where there is none.
    package var state: String
    package var productIDs: [String] = []
    /// The package that it was sold in, where several were asked for.
    package var package: String?

    /// Every name by which our records may know what was ordered; an order does not say whether it is a test.
    package var identifiers: [PurchaseIdentifier] {
        ["production", "sandbox"].flatMap {
            googlePlayIdentifiers(tokens: [purchaseToken].compactMap(\.self), orders: [id], environment: $0)
        }
    }
}

/// A purchase, or one period of a subscription, whose money went back.
package struct GooglePlayVoidedPurchase: Hashable, Sendable {
    /// Never shown, never logged.
    package var purchaseToken: String
    package var orderID: String?
    package var voidedAt: Instant?
    /// The raw number; 7 is a chargeback, 8 a sale that was not acknowledged.
    package var reason: Int64 = 0
    /// The raw number: 0 user, 1 developer, 2 Google.
    package var source: Int64 = 0

    /// Whether the money was taken back against us: as fraud (5), friendly fraud (6) or by a chargeback (7).
    package var isChargedBack: Bool { (5...7).contains(reason) }
}

extension GooglePlayClient {
    /// How far back the voided list goes, less a minute for clocks that differ.
    package static let voidedReach = Duration.seconds(30 * 86_400 - 60)
    /// The most pages of the voided list; each holds up to 1,000.
    private static let maximumPages = 500

    /// Finds what an order number, which a customer reads from the receipt, leads to: it proves nothing.
    ///
    /// `nil` where there is no such order of our app, or it has no purchase token.
    package func order(_ id: String, lane: Lane) async throws(ReadFailure) -> GooglePlayOrder? {
        guard OrderNumber.isPlausible(id), let segment = PathSegment(id) else { return nil }
        var requests = 0
        return try await requester.send(.order(segment), lane: lane, purpose: .lookup, requests: &requests) {
            said throws(ReadFailure) in
            try said.read { body throws(JSONFault) in try GooglePlayOrder(body, asked: id) } ?? nil
        }
    }

    /// Lists what was voided since some time, 30 days ago at most, oldest first and page by page.
    ///
    /// The time is that at which Google recorded it, which may be later than the one it tells: leave an overlap. It
    /// throws where Google did not tell to the end, and what `each` throws.
    package func voided(
        since: Instant,
        lane: Lane,
        each: ([GooglePlayVoidedPurchase]) async throws -> Void
    ) async throws {
        let earliest = (systemSeconds() - Self.voidedReach.components.seconds) * 1000
        let start = max(since.microseconds / 1000, earliest)
        var query = "type=1&maxResults=1000&startTime=\(start)"
        var cursors: Set<String> = []
        for _ in 0..<Self.maximumPages {
            var requests = 0
            let page = try await requester.send(.voided(query), lane: lane, requests: &requests) {
                said throws(ReadFailure) in
                // There is always a list; whatever this is, it is none.
                guard let page = try said.read(VoidedPage.init) else { throw ReadFailure(.rejected) }
                return page
            }
            try await each(page.items)
            guard let next = page.next else { return }
            // A list that leads back to where it was has no end.
            guard cursors.insert(next).inserted else { break }
            query = "type=1&maxResults=1000&token=\(PercentCoding.encode(next))"
        }
        throw ReadFailure(.malformed, store: .googlePlay)
    }
}

// MARK: Reading

private enum OrderField: String, CaseIterable { case orderId, purchaseToken, state, lineItems }
private let orderFields = JSONFields<OrderField>()
private let lineProduct = JSONFields(only: "productId")

extension GooglePlayOrder {
    /// Reads a whole answer; `nil` for an order of something that has no purchase token, such as a paid app.
    ///
    /// A member of an odd shape says nothing of the others. The number that was asked for stands where the answer's own
    /// can't be read.
    init?(_ body: [UInt8], asked: String) throws(JSONFault) {
        var id: String?
        var token: String?
        var isOdd = false
        var state: String?
        var products: [String?] = []
        var isOrder = false
        try JSONReader.readObject(in: body, orderFields) { reader, field throws(JSONFault) in
            switch field {
            case .orderId:
                isOrder = true
                id = try reader.readSoundName()
            case .purchaseToken:
                isOrder = true
                let read = try reader.readIfSound { reader throws(JSONFault) in try .some(reader.readOptionalName()) }
                if let read { token = read } else { isOdd = true }
            case .state: state = try reader.readSoundName()
            case .lineItems:
                products = try reader.readSoundElements { reader throws(JSONFault) in
                    try reader.readMember(lineProduct) { reader throws(JSONFault) in try reader.readOptionalName() }
                }.values
            }
        }
        guard isOrder else { throw .missing }
        guard token != nil || isOdd else { return nil }
        self.init(id: id ?? asked, purchaseToken: token, state: state ?? "", productIDs: products.compactMap(\.self))
    }
}

private enum VoidedPageField: String, CaseIterable { case tokenPagination, voidedPurchases }
private enum VoidedField: String, CaseIterable {
    case purchaseToken, orderId, voidedTimeMillis, voidedSource, voidedReason
}

private let voidedPageFields = JSONFields<VoidedPageField>()
private let pagination = JSONFields(only: "nextPageToken")
private let voidedFields = JSONFields<VoidedField>()

/// One page of the voided list.
private struct VoidedPage: Sendable {
    var items: [GooglePlayVoidedPurchase] = []
    var next: String?

    /// Reads a whole answer; an item that cannot be read says nothing, and is left out.
    init(_ body: [UInt8]) throws(JSONFault) {
        try JSONReader.readObject(in: body, voidedPageFields) { reader, field throws(JSONFault) in
            switch field {
            case .tokenPagination:
                next = try reader.readMember(pagination) { reader throws(JSONFault) in
                    try reader.readOptionalName()
                }
            case .voidedPurchases:
                guard try !reader.readNull() else { return }
                try reader.readArray { reader throws(JSONFault) in
                    let item = try reader.readIfSound { reader throws(JSONFault) in
                        try GooglePlayVoidedPurchase(&reader)
                    }
                    if let item { items.append(item) }
                }
            }
        }
    }
}

extension GooglePlayVoidedPurchase {
    fileprivate init(_ reader: inout JSONReader) throws(JSONFault) {
        var token: String?
        var order: String?
        var voidedMs: Int64?
        // Missing numbers are 0, as proto3 has it.
        var reason: Int64 = 0
        var source: Int64 = 0
        try reader.readObject(voidedFields) { reader, field throws(JSONFault) in
            switch field {
            case .purchaseToken: token = try reader.readOptionalName()
            case .orderId: order = try reader.readOptionalName()
            case .voidedTimeMillis: voidedMs = try reader.readIntegerOrText()
            case .voidedReason: reason = try reader.readIntegerOrText()
            case .voidedSource: source = try reader.readIntegerOrText()
            }
        }
        guard let token else { throw .missing }
        self.init(
            purchaseToken: token,
            orderID: order,
            voidedAt: voidedMs.flatMap(Instant.init(milliseconds:)),
            reason: reason,
            source: source
        )
    }
}
