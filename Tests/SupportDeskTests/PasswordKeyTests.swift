import Foundation
@testable import SupportDesk
import Testing

/// What a password shows.
@Suite struct PasswordKeyTests {
    @Test func `A password makes the key that RFC 7914 gives for it`() throws {
        let cost = try #require(PasswordKey.Cost("scrypt$14$8$1"))
        let key = try PasswordKey(of: "pleaseletmein", salt: Array("SodiumChloride".utf8), cost: cost)
        let known = "7023bdcb3afd7348461c06cd81fd38ebfda8fbba904f8e3ea9b543f6545da1f2"
        #expect(key.bytes.map { String($0 >> 4, radix: 16) + String($0 & 15, radix: 16) }.joined() == known)
    }

    @Test func `New passwords have salts of their own`() throws {
        let first = try PasswordKey(new: "correct horse battery", for: "ann", cost: .least)
        let second = try PasswordKey(new: "correct horse battery", for: "ann", cost: .least)
        #expect(first.salt != second.salt && first.bytes != second.bytes)
        let again = try PasswordKey(of: "correct horse battery", salt: first.salt, cost: first.cost)
        #expect(again.bytes == first.bytes)
    }

    @Test func `The same characters are the same password, however they were composed`() throws {
        let key = try PasswordKey(new: "caf\u{E9} au lait, s'il", for: "ann", cost: .least)
        #expect(try PasswordKey(of: "cafe\u{301} au lait, s'il", salt: key.salt, cost: .least).bytes == key.bytes)
    }

    @Test(arguments: [
        ("elevenchars", PasswordKey.Fault.short), ("aaaabbbbccccdddd", .simple), ("my name is ANN K.", .named),
        ("123456789012", .common), ("password1234", .common), ("qwertyuiop12", .common), ("iloveyou1234", .common),
        ("!!Password-2026", .common), ("8472193822110", .common),
        (String(repeating: "abcdefgh", count: 33), .long), (String(repeating: "\u{FDFA}", count: 85), .long),
    ])
    func `A password that is too easy or too long is not taken`(password: String, fault: PasswordKey.Fault) {
        #expect(throws: fault) { try PasswordKey(new: password, for: "ann", cost: .least) }
    }

    @Test func `The password that was typed may not be too long either`() {
        #expect(throws: PasswordKey.Fault.long) {
            try PasswordKey(of: String(repeating: "a", count: 257), salt: [1], cost: .least)
        }
    }

    @Test(arguments: [
        "", "scrypt", "bcrypt$15$8$3", "scrypt$15$8", "scrypt$15$8$3$", "scrypt$-1$8$3", "scrypt$15$0$3",
        // Gigabytes of memory, or minutes of work.
        "scrypt$30$8$3", "scrypt$18$16$1", "scrypt$15$8$99999", "scrypt$18$2$16",
    ])
    func `What is no cost, or would cost too much, is not read`(text: String) {
        #expect(PasswordKey.Cost(text) == nil)
    }

    @Test func `The usual cost is read as it was written`() {
        #expect(PasswordKey.Cost(PasswordKey.Cost.usual.text) == .usual)
        #expect(PasswordKey.Cost.usual.text == "scrypt$15$8$3")
    }

    @Test func `Nothing of a key is described`() throws {
        let key = try PasswordKey(new: "correct horse battery", for: "ann", cost: .least)
        var dumped = ""
        dump(key, to: &dumped)
        #expect(!dumped.contains("salt") && "\(key)" == "PasswordKey(redacted)")
    }
}
