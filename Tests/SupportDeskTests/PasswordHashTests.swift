import Foundation
import Testing

@testable import SupportDesk

/// Passwords as they are stored.
@Suite struct PasswordHashTests {
    /// So low that tests are quick.
    private static let cheap = PasswordHash.Cost(logN: 4, blockSize: 1, parallelism: 1)

    @Test func `A key that RFC 7914 gives is found again from its password, and from no other`() throws {
        // "pleaseletmein", "SodiumChloride", N 16384, r 8, p 1; the first 32 bytes of the key.
        let salt = Data("SodiumChloride".utf8).base64EncodedString().trimmingCharacters(in: ["="])
        let hash = try #require(PasswordHash("scrypt$14$8$1$\(salt)$cCO9yzr9c0hGHAbNgf046_2o-7qQT44-qbVD9lRdofI"))
        #expect(hash.matches("pleaseletmein"))
        #expect(!hash.matches("pleaseletmeiN"))
        #expect(!hash.matches(""))
    }

    @Test func `A stored hash is read as it was written; two of one password differ`() throws {
        let first = try PasswordHash(of: "correct horse battery", for: "ann", cost: Self.cheap)
        let second = try PasswordHash(of: "correct horse battery", for: "ann", cost: Self.cheap)
        #expect(first.text != second.text)
        let read = try #require(PasswordHash(first.text))
        #expect(read == first)
        #expect(read.matches("correct horse battery"))
    }

    @Test func `The same characters are the same password, however they were composed`() throws {
        let hash = try PasswordHash(of: "caf\u{E9} au lait, s'il", for: "ann", cost: Self.cheap)
        #expect(hash.matches("cafe\u{301} au lait, s'il"))
    }

    @Test(arguments: [
        ("elevenchars", PasswordHash.Fault.short), ("aaaabbbbccccdddd", .simple), ("my name is ANN K.", .named),
        (String(repeating: "abcdefgh", count: 33), .long),
    ])
    func `A password that is too easy or too long is not taken`(password: String, fault: PasswordHash.Fault) {
        #expect(throws: fault) { try PasswordHash(of: password, for: "ann", cost: Self.cheap) }
    }

    @Test(arguments: [
        "", "scrypt", "bcrypt$15$8$3$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        // Gigabytes of memory, or days of work.
        "scrypt$30$8$3$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "scrypt$15$8$99999$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "scrypt$15$8$3$AAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "scrypt$15$8$3$AAAAAAAAAAAAAAAAAAAAAA$AAAA",
        "scrypt$-1$8$3$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    ])
    func `What is no hash, or one that would cost too much, is not read`(text: String) {
        #expect(PasswordHash(text) == nil)
    }

    @Test func `Nothing of a hash is described, and nobody's matches nothing`() throws {
        let hash = try PasswordHash(of: "correct horse battery", for: "ann", cost: Self.cheap)
        var dumped = ""
        dump(hash, to: &dumped)
        #expect(!dumped.contains("scrypt$") && !"\(hash)".contains("$") && !dumped.contains("salt"))
        #expect(!PasswordHash.ofNobody(at: Self.cheap).matches(""))
    }
}
