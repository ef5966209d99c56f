import Testing
@testable import TextFormats

/// Bodies that two readers could take for two things.
@Suite struct StrictJSONTests {
    private func fault(_ bytes: [UInt8]) -> StrictJSON.Fault? {
        do throws(StrictJSON.Fault) {
            try StrictJSON.check(bytes)
            return nil
        } catch { return error }
    }

    @Test(arguments: [
        "{}", " [] ", #"{"a":{"a":1},"b":[{"a":1},{"a":2}]}"#, #""text""#, "-0.5e3", "null", #"{"":1,"\u00e9":2}"#,
    ])
    func `a sound text is one`(_ text: String) { #expect(fault(Array(text.utf8)) == nil) }

    @Test(arguments: [
        #"{"a":1,"a":2}"#, #"{"a":1,"\u0061":2}"#, #"[{"b":{"a":1,"c":2,"a":1}}]"#, #"{"é":1,"\u00e9":2}"#,
    ])
    func `a member stands once, however it is written`(_ text: String) {
        #expect(fault(Array(text.utf8)) == .duplicate)
    }

    @Test(arguments: [
        "", "01", "[1,]", "{a:1}", "[1] 2", "NaN", "{\"a\":1,}", "\u{FEFF}{}", "'a'", #"{"\ud800":1}"#,
    ])
    func `what is no JSON is none`(_ text: String) { #expect(fault(Array(text.utf8)) == .syntax) }

    @Test func `other encodings are none, and depth has a limit`() {
        #expect(fault([0xFF, 0xFE, 0x7B, 0, 0x7D, 0]) == .syntax)
        #expect(fault([0x7B, 0, 0, 0, 0x7D, 0, 0, 0]) == .syntax)
        #expect(fault(Array(String(repeating: "[", count: 100_000).utf8)) == .syntax)
    }
}
