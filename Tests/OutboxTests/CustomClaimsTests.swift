import Foundation
import Testing

@testable import Outbox

@Suite struct CustomClaimsTests {
    private static let pro = AccessClaims(entitlements: ["pro"], until: 1_797_786_566)

    @Test(
        arguments: [
            (nil, #"{"entitlements":["pro"],"until":1797786566}"#),
            ("", #"{"entitlements":["pro"],"until":1797786566}"#),
            ("{}", #"{"entitlements":["pro"],"until":1797786566}"#),
            (#"{"admin":true}"#, #"{"admin":true,"entitlements":["pro"],"until":1797786566}"#),
            // What others wrote stays byte for byte: numbers that no double holds, escapes, nested members of our names.
            (
                #" { "n" : 12345678901234567890.10 , "until": 5, "o":{"until":1,"entitlements":2} ,"\u00e4":"\u00df" } "#,
                #"{"n" : 12345678901234567890.10,"o":{"until":1,"entitlements":2},"\u00e4":"\u00df","entitlements":["pro"],"#
                    + #""until":1797786566}"#
            ),
            // Ours by another spelling, and ours of another type.
            (
                #"{"\u0075ntil":7,"entitlements":"all","z":null}"#,
                #"{"z":null,"entitlements":["pro"],"until":1797786566}"#
            ),
            (#"{"until":7,"until":8}"#, #"{"entitlements":["pro"],"until":1797786566}"#),
        ] as [(String?, String)]
    )
    func `Only our two members are replaced`(_ text: String?, _ expected: String) throws {
        let claims = try CustomClaims(text)
        #expect(!claims.say(Self.pro))
        #expect(claims.text(saying: Self.pro) == expected)
        #expect(try CustomClaims(expected).say(Self.pro))
    }

    @Test(arguments: ["[]", "1", "null", "{", #"{"a":1"#, #"{"a":1} x"#, #"{"a" 1}"#, #"{"until":}"#, "{'a':1}"])
    func `What is no object is not replaced`(_ text: String) {
        #expect(throws: (any Error).self) { try CustomClaims(text) }
    }

    @Test(
        arguments: [
            (nil, true), ("{}", true), (#"{"admin":true}"#, true), (#"{"entitlements":[],"until":0}"#, true),
            (#"{"until":0}"#, false), (#"{"entitlements":[]}"#, false), (#"{"entitlements":[],"until":1}"#, false),
            (#"{"entitlements":["pro"],"until":0}"#, false),
        ] as [(String?, Bool)]
    )
    func `Without our members there is no access`(_ text: String?, _ says: Bool) throws {
        #expect(try CustomClaims(text).say(.none) == says)
    }

    @Test(arguments: [
        #"{"entitlements":["pro"],"until":1797786567}"#, #"{"entitlements":["pro"],"until":1797786566.0}"#,
        #"{"entitlements":["pro"],"until":"1797786566"}"#, #"{"entitlements":["Pro"],"until":1797786566}"#,
        #"{"entitlements":["pro","pro"],"until":1797786566}"#, #"{"entitlements":{"pro":1},"until":1797786566}"#,
        #"{"entitlements":["pro"]}"#,
    ])
    func `Anything else is another word`(_ text: String) throws {
        #expect(try !CustomClaims(text).say(Self.pro))
    }

    @Test func `Names are escaped`() throws {
        let odd = AccessClaims(entitlements: ["a\"b\\", "ä"], until: 1)
        let text = try CustomClaims(nil).text(saying: odd)
        let object = try #require(try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any])
        #expect(object["entitlements"] as? [String] == odd.entitlements)
        #expect(try CustomClaims(text).say(odd))
    }
}
