@testable import SupportDesk
import Testing

/// The secret of the second factor.
@Suite struct SecondFactorTests {
    @Test func `It is read as it is spelled, and known to the device`() throws {
        let factor = try #require(SecondFactor(spelled: "gezd gnbv gy3t qojq GEZDGNBVGY3TQOJQ"))
        #expect(factor.bytes == Array("12345678901234567890".utf8))
        #expect(factor.spelled == "GEZD GNBV GY3T QOJQ GEZD GNBV GY3T QOJQ")
        #expect(
            factor.address(account: "ann b")
                == "otpauth://totp/entitlement-sync:ann%20b?secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"
                + "&issuer=entitlement-sync"
        )
    }

    @Test func `Every new one is another, and is read again`() {
        let (first, second) = (SecondFactor(), SecondFactor())
        #expect(first.bytes != second.bytes && first.bytes.count == 20)
        #expect(SecondFactor(spelled: first.spelled)?.bytes == first.bytes)
    }

    @Test(arguments: ["", "GEZD", "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJ1", "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQA"])
    func `What is no secret is not read`(text: String) { #expect(SecondFactor(spelled: text) == nil) }

    @Test func `Nothing of it is described`() {
        let factor = SecondFactor()
        var dumped = ""
        dump(factor, to: &dumped)
        #expect(dumped.contains("redacted") && !dumped.contains("bytes") && "\(factor)" == "SecondFactor(redacted)")
    }
}
