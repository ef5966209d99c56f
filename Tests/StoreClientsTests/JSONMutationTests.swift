import Foundation
@testable import StoreClients
import TestSupport
import Testing
@testable import TextFormats

/// Mutated answers: nothing crashes or hangs, and we take no text for JSON that Foundation refuses.
@Suite struct JSONMutationTests {
    private static let seeds: [[UInt8]] = [
        Array(#"{"object":"list","items":[{"id":"sub1","n":-1.5e2,"t":true,"x":null}],"next_page":null}"#.utf8),
        Array(#"["é漢😀","\u00e9\ud83d\ude00\n",[[[{"a":{}}]]],0,10,1788678400000,false]"#.utf8),
        Array(Fixture.page([Fixture.subscription()]).utf8),
    ]

    @Test("100: no mutated text is taken for JSON that Foundation refuses", arguments: 0..<4 as Range<UInt64>)
    func acceptsNoMore(_ seed: UInt64) {
        var generator = SeededGenerator(seed: seed)
        var accepted = 0
        for round in 0..<Mutations.count / 4 {
            let body = Mutations.alter(Self.seeds[round % Self.seeds.count], Mutations.json, &generator)
            _ = try? decodePage(body, item: WireItem.subscription)
            do throws(JSONFault) {
                var reader = try JSONReader(body)
                try reader.skipValue()
                try reader.finish()
            } catch { continue }
            accepted += 1
            let foundation = try? JSONSerialization.jsonObject(with: Data(body), options: .fragmentsAllowed)
            #expect(foundation != nil, "accepted \(body)")
        }
        // Otherwise the test would prove nothing.
        #expect(accepted > Mutations.count / 80)
    }

    @Test("100: an answer cut off anywhere is malformed")
    func refusesEveryPrefix() throws {
        let whole = Array(Fixture.page([Fixture.subscription(), Fixture.subscription(id: "sub2")]).utf8)
        #expect(try decodePage(whole, item: WireItem.subscription).items.count == 2)
        for count in whole.indices {
            #expect(throws: JSONFault.self) { try decodePage(Array(whole[..<count]), item: WireItem.subscription) }
        }
    }

    /// Off unless asked for: a debug build says nothing about speed.
    @Test(
        "decoding reaches 150 MB/s",
        .enabled(if: ProcessInfo.processInfo.environment["STORE_CLIENTS_MEASURE"] != nil)
    )
    func measuresThroughput() throws {
        let items = (0..<100).map { Fixture.subscription(id: "sub\($0)") }
        let body = Array(Fixture.page(items).utf8)
        let rounds = 2_000
        var read = 0
        let elapsed = try ContinuousClock().measure {
            for _ in 0..<rounds { read += try decodePage(body, item: WireItem.subscription).items.count }
        }
        #expect(read == rounds * 100)
        let seconds = Double(elapsed.components.seconds) + Double(elapsed.components.attoseconds) * 1e-18
        let rate = Double(body.count * rounds) / seconds / 1e6
        print("decoded \(Int(rate)) MB/s, \(Int(Double(read) / seconds)) items/s")
        #expect(rate >= 150)
    }
}
