import Foundation
import Testing

@testable import SupportDesk

/// The second factor.
@Suite struct OneTimeCodeTests {
    private let codes: OneTimeCode

    init() throws { codes = try #require(OneTimeCode(secret: Array("12345678901234567890".utf8))) }

    @Test func `The codes are those of RFC 4226`() {
        let known = [
            "755224", "287082", "359152", "969429", "338314", "254676", "287922", "162583", "399871", "520489",
        ]
        for (counter, code) in known.enumerated() { #expect(codes.code(Int64(counter)) == code) }
    }

    @Test(arguments: [
        (59, "287082"), (1_111_111_109, "081804"), (1_111_111_111, "050471"), (1_234_567_890, "005924"),
        (2_000_000_000, "279037"), (20_000_000_000, "353130"),
    ])
    func `The moments are those of RFC 6238, cut to six digits`(seconds: Int64, code: String) {
        #expect(codes.period(of: code, at: seconds, after: nil) == seconds / 30)
    }

    @Test func `A clock may be off by one period, and no more`() {
        let moment: Int64 = 1_800_000_015
        let period = moment / 30
        for off in Int64(-1)...1 {
            #expect(codes.period(of: codes.code(period + off), at: moment, after: nil) == period + off)
        }
        for off in [Int64(-2), 2] {
            #expect(codes.period(of: codes.code(period + off), at: moment, after: nil) == nil)
        }
    }

    @Test func `A code is taken once, and none before it any more`() {
        let moment: Int64 = 1_800_000_015
        let period = moment / 30
        #expect(codes.period(of: codes.code(period), at: moment, after: period) == nil)
        #expect(codes.period(of: codes.code(period - 1), at: moment, after: period) == nil)
        #expect(codes.period(of: codes.code(period + 1), at: moment, after: period) == period + 1)
    }

    @Test(arguments: ["", "28708", "2870822", "28708a", "２８７０８２", "-87082", "000000"])
    func `What is no code of the moment is none`(code: String) {
        #expect(codes.period(of: code, at: 59, after: nil) == nil)
    }

    @Test func `Spaces do not count, as devices show them`() {
        #expect(codes.period(of: "287 082", at: 59, after: nil) == 1)
    }

    @Test func `The secret is spelled for people and for their device, and described to nobody`() {
        #expect(codes.spelled == "GEZD GNBV GY3T QOJQ GEZD GNBV GY3T QOJQ")
        #expect(
            codes.address(issuer: "entitlement-sync", account: "ann b")
                == "otpauth://totp/entitlement-sync:ann%20b?secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"
                + "&issuer=entitlement-sync&algorithm=SHA1&digits=6&period=30"
        )
        var dumped = ""
        dump(codes, to: &dumped)
        #expect(!dumped.contains("49") && !"\(codes)".contains("GEZD"))
        #expect(OneTimeCode().stored.count == 20 && OneTimeCode().stored != OneTimeCode().stored)
        #expect(OneTimeCode(secret: [1, 2, 3]) == nil)
    }
}
