@testable import StoreClients
import Testing
@testable import TextFormats

@Suite struct PlainFormatTests {
    @Test(
        "percent-encoding leaves only the unreserved characters",
        arguments: [
            ("aZ09-._~", "aZ09-._~"), ("$RCAnonymousID:abc", "%24RCAnonymousID%3Aabc"), ("a/b?c#d", "a%2Fb%3Fc%23d"),
            ("é", "%C3%A9"), ("100%", "100%25"), ("a b+c", "a%20b%2Bc"), ("\0", "%00"),
        ]
    )
    func encodes(_ text: String, _ encoded: String) {
        #expect(PercentCoding.encode(text) == encoded)
        #expect(PercentCoding.decode(encoded.utf8) == text)
    }

    @Test("broken escapes and bytes that are no UTF-8 do not decode", arguments: ["%", "%4", "%zz", "%FF", "a%C3"])
    func refusesEscapes(_ text: String) { #expect(PercentCoding.decode(text.utf8) == nil) }

    @Test(
        "HTTP dates are seconds since 1970",
        arguments: [
            ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777), ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Thu, 29 Feb 2024 23:59:59 GMT", 1_709_251_199), ("Fri, 01 Mar 2024 00:00:00 GMT", 1_709_251_200),
            ("Fri, 20 Nov 2026 10:15:00 GMT", 1_795_169_700), ("Sunday, 06-Nov-94 08:49:37 GMT", nil),
            ("Sun, 06 Nov 1994 08:49:37 CET", nil), ("Sun, 06 Nov 1994 24:49:37 GMT", nil),
            ("Sun, 6 Nov 1994 08:49:37 GMT", nil), ("", nil), ("120", nil), ("Sun, +6 Nov 1994 08:49:37 GMT", nil),
        ] as [(String, Int64?)]
    )
    func readsDates(_ text: String, _ seconds: Int64?) { #expect(HTTPDate.seconds(text) == seconds) }

    @Test(
        "a status has the class of its first digit",
        arguments: [
            (nil, "none"), (200, "2xx"), (302, "3xx"), (404, "4xx"), (503, "5xx"), (100, "1xx"), (99, "none"),
            (600, "none"),
        ]
            as [(Int?, String)]
    )
    func classifiesStatus(_ status: Int?, _ label: String) { #expect(StatusClass(status).label == label) }
}
