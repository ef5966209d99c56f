@testable import SupportDesk
import Testing

/// What an operator shows after signing in.
@Suite struct SessionTokenTests {
    @Test func `A token is read as it was written, and no two are the same`() throws {
        let token = SessionToken()
        #expect(SessionToken(token.text) == token)
        #expect(token != SessionToken() && token.digest != SessionToken().digest)
        #expect(token.digest.count == 32)
    }

    @Test func `What has another form is no token`() {
        let text = SessionToken().text
        for wrong in ["", "esop_", String(text.dropLast()), text + "0", text.uppercased(), "esop-" + text.dropFirst(5)]
        {
            #expect(SessionToken(wrong) == nil, "\(wrong)")
        }
        #expect(SessionToken(text.dropLast() + "g") == nil)
    }

    @Test func `Nothing of a token is described`() {
        let token = SessionToken()
        var dumped = ""
        dump(token, to: &dumped)
        #expect(!dumped.contains("esop_") && !"\(token)".contains("esop_") && !dumped.contains("bytes"))
    }
}
