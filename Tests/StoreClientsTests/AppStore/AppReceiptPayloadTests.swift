import Entitlements
import Foundation
@testable import SignedTokens
@testable import StoreClients
import StoreSimulator
import SwiftASN1
import TestSupport
import Testing
@testable import TextFormats

/// What stands in receipts and signed transactions, read without any signature: nothing crashes, hangs or is guessed.
struct AppReceiptPayloadTests {
    typealias Attribute = ReceiptDescription.Attribute

    private static let purchase = ReceiptDescription.Purchase(
        productID: "monthly",
        transactionID: "2",
        expiresAt: Date()
    )

    private func code(_ payload: [UInt8]) -> ProofRefusal.Code? {
        do throws(ProofRefusal) {
            _ = try AppReceipt(payload: payload)
            return nil
        } catch {
            return error.code
        }
    }

    @Test func `attributes stand in any order, with others between them`() throws {
        let attributes = ReceiptDescription(purchases: [Self.purchase, Self.purchase]).attributes
        let whole = try AppReceipt(payload: Attribute.set(attributes))
        #expect(whole.purchases.count == 2)
        var generator = SeededGenerator(seed: 1)
        for _ in 0..<20 {
            let unknown = [Attribute(9_999, [0xFF]), Attribute(6, []), .text(22, "x"), .text(22, "x")]
            let shuffled = (attributes + unknown).shuffled(using: &generator)
            #expect(try AppReceipt(payload: Attribute.set(shuffled)) == whole)
        }
    }

    @Test
    func `what has to be there is missed, what says two things is refused, and what is said twice alike counts once`()
        throws
    {
        let attributes = ReceiptDescription(purchases: [Self.purchase]).attributes
        #expect(code(Attribute.set(attributes)) == nil)
        for type: Int64 in [0, 2, 12] {
            #expect(code(Attribute.set(attributes.filter { $0.type != type })) == .malformed, "\(type)")
        }
        let plain = try AppReceipt(payload: Attribute.set(attributes))
        for attribute in attributes where [0, 1, 2, 3, 12, 19].contains(attribute.type) {
            for repeated in [attributes + [attribute], [attribute] + attributes, attributes + [attribute, attribute]] {
                #expect(try AppReceipt(payload: Attribute.set(repeated)) == plain, "\(attribute.type)")
            }
            let other: Attribute = attribute.type == 1 ? .integer(1, 7) : .text(attribute.type, "2020-01-01T00:00:00Z")
            for torn in [attributes + [other], [other] + attributes, attributes + [attribute, other]] {
                #expect(code(Attribute.set(torn)) == .malformed, "\(attribute.type)")
            }
        }
        let inside = Self.purchase.attributes
        func wrapped(_ inside: [Attribute]) -> [UInt8] {
            Attribute.set(ReceiptDescription().attributes + [Attribute(17, Attribute.set(inside))])
        }
        for type: Int64 in [1702, 1703] {
            #expect(code(wrapped(inside.filter { $0.type != type })) == .malformed, "\(type)")
        }
        for attribute in inside where AppReceiptAttributes.Kind(rawValue: attribute.type) != nil {
            #expect(code(wrapped(inside + [attribute])) == nil, "\(attribute.type)")
            #expect(
                code(wrapped(inside + [.text(attribute.type, "another")])) == .malformed
                    && code(wrapped(inside + [.integer(attribute.type, 4_711)])) == .malformed,
                "\(attribute.type) says two things"
            )
            #expect(
                code(wrapped(inside.filter { $0.type != attribute.type } + [Attribute(attribute.type, [0x05, 0x00])]))
                    == .malformed,
                "\(attribute.type) of a wrong type"
            )
        }
    }

    @Test(arguments: [
        ("2024-02-23T17:27:16Z", 1_708_709_236), ("2020-07-22T18:33:15+0100", 1_595_439_195),
        ("2020-07-22T18:33:15+01:00", 1_595_439_195), ("2020-07-22T18:33:15-0130", 1_595_448_195),
        ("1970-01-01T00:00:00Z", 0), ("2000-02-29T23:59:59Z", 951_868_799), ("2100-03-01T00:00:00Z", 4_107_542_400),
        ("4001-01-01T00:00:00Z", 64_092_211_200), ("2024-02-23T17:27:16.250Z", 1_708_709_236.25), ("", nil),
        ("2024-02-23", nil), ("2024-02-23T17:27:16", nil), ("2024-02-23 17:27:16Z", nil),
        ("2023-02-29T00:00:00Z", nil), ("2100-02-29T00:00:00Z", nil), ("2024-13-01T00:00:00Z", nil),
        ("2024-00-01T00:00:00Z", nil), ("2024-01-00T00:00:00Z", nil), ("2024-01-01T24:00:00Z", nil),
        ("2024-01-01T00:60:00Z", nil), ("2024-01-01T00:00:00+9", nil), ("2024-01-01T00:00:00+01000", nil),
        ("2024-01-01T00:00:00.Z", nil), ("2024-01-01T00:00:00Zx", nil), ("0000-01-01T00:00:00Z", nil),
        ("+024-01-01T00:00:00Z", nil), ("2024-01-01T00:00:00+٠١00", nil),
    ])
    func `dates are read as RFC 3339 writes them, and as Xcode does`(text: String, seconds: Double?) {
        #expect(RFC3339.receiptInstant(text) == seconds.map { Instant(microseconds: Int64($0 * 1_000_000)) })
    }

    @Test func `each day of four centuries is the one that the calendar says`() {
        let first = Date(timeIntervalSince1970: 0)
        for day in stride(from: 0, to: 400 * 366, by: 1) {
            let date = first + Double(day) * 86_400
            let expected = Instant(microseconds: Int64(day) * 86_400_000_000)
            guard RFC3339.receiptInstant(date.ISO8601Format()) != expected else { continue }
            Issue.record("\(date.ISO8601Format())")
            return
        }
    }

    @Test func `numbers are of up to eight bytes, in the fewest that do`() throws {
        func number(_ bytes: [UInt8]) throws -> Int64 {
            var reader = ASN1Reader(DERBytes.element(0x02, bytes)[...])
            return try reader.next().integer()
        }
        for (bytes, value) in [
            ([0], 0), ([0x7F], 127), ([0x00, 0x80], 128), ([0x80], -128), ([0xFF, 0x7F], -129),
            ([0x7F] + Array(repeating: 0xFF, count: 7), .max), ([0x80] + Array(repeating: 0, count: 7), .min),
        ] as [([UInt8], Int64)] {
            #expect(try number(bytes) == value)
        }
        for bytes in [[], [0, 0], [0, 0x7F], [0xFF, 0x80], [0] + Array(repeating: 0xFF, count: 8)] as [[UInt8]] {
            #expect(throws: ASN1Fault.malformed) { try number(bytes) }
        }
    }

    @Test func `nesting has an end, with lengths and without`() throws {
        func descend(_ bytes: [UInt8]) throws {
            var reader = ASN1Reader(bytes[...])
            while !reader.isAtEnd { reader = try reader.next().elements() }
        }
        func nested(_ levels: Int, _ wrap: ([UInt8]) -> [UInt8]) -> [UInt8] {
            (0..<levels).reduce([]) { inner, _ in wrap(inner) }
        }
        for wrap in [{ DERBytes.element(0x30, $0) }, { [0x30, 0x80] + $0 + [0, 0] }] as [([UInt8]) -> [UInt8]] {
            try descend(nested(ASN1Reader.levels, wrap))
            #expect(throws: ASN1Fault.tooDeep) { try descend(nested(ASN1Reader.levels + 1, wrap)) }
        }
    }

    private static let seeds: [[UInt8]] = {
        var receipt = ReceiptDescription(purchases: [purchase, purchase])
        receipt.expiresAt = Date()
        return [receipt.payload(), ReceiptDescription().payload()]
    }()

    private static let interesting: [UInt8] = [
        0x00, 0x01, 0x02, 0x04, 0x06, 0x0C, 0x11, 0x16, 0x1F, 0x24, 0x30, 0x31, 0x7F, 0x80, 0x81, 0x82, 0x84, 0xA0,
        0xFF,
    ]

    static let rounds = Mutations.count / 2

    @Test(arguments: [UInt64(1), 2])
    func `a mutated payload is read or refused`(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        var read = 0
        for round in 0..<Self.rounds {
            let payload = Mutations.alter(Self.seeds[round % 2], Self.interesting, &random)
            if code(payload) == nil { read += 1 }
        }
        // Otherwise the test would prove nothing.
        #expect(read > Self.rounds / 50 && read < Self.rounds / 2, "\(read)")
    }

    @Test(arguments: [UInt64(1), 2])
    func `no element is read that the library refuses, nor as another`(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        var read = 0
        for round in 0..<Self.rounds / 5 {
            let bytes = Mutations.alter(Self.seeds[round % 2], Self.interesting, &random)
            guard (try? Self.elements(bytes[...], levels: 8)) != nil else { continue }
            read += 1
            if (try? BER.parse(bytes)) == nil { Issue.record("accepted \(bytes)") }
        }
        #expect(read > Self.rounds / 200, "\(read)")
    }

    /// Reads everything, down to what is not made of elements.
    private static func elements(_ bytes: ArraySlice<UInt8>, levels: Int) throws {
        var reader = ASN1Reader(bytes, levels: levels)
        let element = try reader.next()
        try reader.finish()
        guard element.tag & ASN1Reader.Tag.constructed != 0 else { return }
        var inside = try element.elements()
        while !inside.isAtEnd { try elements(inside.next().whole, levels: levels - 1) }
    }

    private static let transaction = Array(
        """
        {"transactionId":"2000000700000002","originalTransactionId":"2000000700000001","bundleId":"com.example.app",\
        "productId":"monthly","type":"Auto-Renewable Subscription","inAppOwnershipType":"PURCHASED","offerType":1,\
        "environment":"Production","purchaseDate":1788678400000,"expiresDate":1788678400000,"isUpgraded":true,\
        "signedDate":1788678400000,"appAccountToken":"7E3FB204-2B4B-4D5A-9D4A-7F5F6D3B5C10","price":4990}
        """.utf8
    )

    @Test(arguments: [UInt64(1), 2])
    func `a mutated transaction is read or refused, and never what is no JSON`(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        var read = 0
        for _ in 0..<Self.rounds {
            let payload = Mutations.alter(Self.transaction, Mutations.json, &random)
            guard (try? SignedTransaction(payload: payload)) != nil else { continue }
            read += 1
            if !Mutations.isJSON(payload) { Issue.record("accepted \(payload)") }
        }
        #expect(read > Self.rounds / 100 && read < Self.rounds / 2, "\(read)")
    }
}
