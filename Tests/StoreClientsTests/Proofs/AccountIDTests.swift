import Foundation
@testable import StoreClients
import TestSupport
import Testing
@testable import TextFormats

/// The ways in which apps write our ids for stores; the digests were made with Python's hashlib, hmac and uuid.
@Suite struct AccountIDTests {
    private static let user = "kQ3vZr8mT2fXw1LdYp6sNb4HcJe7"
    private static let plain = [
        user, "94bbf6fee1c9202c3c9dd9ea1408eb30584408999f72f1f9c6ac3fb9f385fdd4",
        "94BBF6FEE1C9202C3C9DD9EA1408EB30584408999F72F1F9C6AC3FB9F385FDD4",
        "lLv2/uHJICw8ndnqFAjrMFhECJmfcvH5xqw/ufOF/dQ=", "lLv2_uHJICw8ndnqFAjrMFhECJmfcvH5xqw_ufOF_dQ",
        "94bbf6fe-e1c9-202c-3c9d-d9ea1408eb30", "94BBF6FE-E1C9-402C-BC9D-D9EA1408EB30",
        "94bbf6fe-e1c9-502c-bc9d-d9ea1408eb30", "94bbf6fe-e1c9-802c-bc9d-d9ea1408eb30",
    ]
    private static let keyed = [
        "5080efe5a8d9f02acd08ef8885315fcc5e8798bb036dada443447938774630d4",
        "UIDv5ajZ8CrNCO+IhTFfzF6HmLsDba2kQ0R5OHdGMNQ=", "5080efe5-a8d9-402a-8d08-ef8885315fcc",
    ]
    private static let named = "d2d4e5cf-a78b-5778-b4a5-0d172927fa98"
    private static let namespace = UUID(uuidString: "6BA7B810-9DAD-11D1-80B4-00C04FD430C8")

    @Test func `20: an id is the user's in each way that is configured, and in no other`() {
        let all = AccountIDs(keys: ["former", "key-1"], namespace: Self.namespace)
        for id in Self.plain + Self.keyed + [Self.named] { #expect(all.matches(id, userID: Self.user), "\(id)") }
        let none = AccountIDs()
        for id in Self.plain { #expect(none.matches(id, userID: Self.user), "\(id)") }
        for id in Self.keyed + [Self.named] { #expect(!none.matches(id, userID: Self.user), "\(id)") }
        let others = AccountIDs(keys: ["key-2"], namespace: UUID())
        for id in Self.keyed + [Self.named] { #expect(!others.matches(id, userID: Self.user), "\(id)") }
    }

    @Test func `The App Store is told of a user by a UUID that is theirs in a way that is configured, or of none`() {
        let named = AccountIDs(keys: ["key-1"], namespace: Self.namespace)
        #expect(named.token(for: Self.user)?.uuidString.lowercased() == Self.named)
        #expect(named.token(for: "python.org")?.uuidString == "886313E1-3B8A-5372-9B90-0C9AEE199E5D")
        for id in ["3f2504e0-4f89-41d3-9a0c-0305e82c3301", "3F2504E0-4F89-41D3-9A0C-0305E82C3301"] {
            for ids in [named, AccountIDs()] {
                let token = ids.token(for: id)
                #expect(token == UUID(uuidString: id), "a UUID stands for itself")
                #expect(token.map { ids.matches($0.uuidString, userID: id) } == true)
            }
        }
        // A digest may be written as UUIDs of several versions, and so may what a key makes.
        let unnamed = AccountIDs(keys: ["key-1"])
        for id in [Self.user, "", "3f2504e0-4f89-41d3-9a0c-0305e82c330", "3f2504e0-4f89-41d3-9a0c-0305e82c330g"] {
            #expect(unnamed.token(for: id) == nil, "\(id)")
        }
        #expect(named.token(for: Self.user).map { named.matches($0.uuidString, userID: Self.user) } == true)
    }

    @Test func `20: an id of somebody else's, or one that is nearly right, proves nothing`() {
        let all = AccountIDs(keys: ["key-1"], namespace: Self.namespace)
        for id in Self.plain + Self.keyed + [Self.named] {
            #expect(!all.matches(id, userID: "kQ3vZr8mT2fXw1LdYp6sNb4HcJe8"), "\(id)")
            #expect(!all.matches(String(id.dropLast()), userID: Self.user), "\(id)")
            #expect(!all.matches(id + "0", userID: Self.user), "\(id)")
        }
        for id in ["", " ", Self.user.lowercased(), Self.user.uppercased(), String(Self.user.prefix(20))] {
            #expect(!all.matches(id, userID: Self.user), "\(id)")
        }
        #expect(!all.matches("", userID: ""))
    }

    @Test func `20: of five thousand strangers' ids of the same form none is the user's`() {
        let all = AccountIDs(keys: ["key-1"], namespace: Self.namespace)
        var random = SeededGenerator(seed: 20)
        let letters = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
        for _ in 0..<5_000 {
            let id = String((0..<28).map { _ in letters[random.below(letters.count)] })
            let uuid = Hex.encode((0..<16).map { _ in UInt8(random.below(256)) })
            let written = [(0, 8), (8, 12), (12, 16), (16, 20), (20, 32)]
                .map { from, end in uuid.dropFirst(from).prefix(end - from) }.joined(separator: "-")
            let digest = Base64.encode((0..<32).map { _ in UInt8(random.below(256)) }, .standard)
            for stranger in [id, written, uuid + uuid, digest] {
                if all.matches(stranger, userID: Self.user) { Issue.record("\(stranger)") }
            }
        }
    }
}

@Suite struct AccountRootTests {
    private static let namespace = UUID(uuidString: "6ba7b810-9dad-11d1-80b4-00c04fd430c8")

    @Test(arguments: [
        "user-1", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "caf\u{e9}", "", String(repeating: "x", count: 900),
    ])
    func `Every spelling of a digest has the root of its user`(_ user: String) {
        let ids = AccountIDs(keys: ["former", "key-1"], namespace: Self.namespace)
        let roots = ids.roots(of: user)
        #expect(roots.count == 4)
        for way in ids.ways(user).dropFirst() {
            #expect(ids.root(in: way).map(roots.contains) == true, "\(way)")
            #expect(ids.matches(way, userID: user))
        }
    }

    @Test(arguments: ["", "user-1", String(repeating: "g", count: 64), String(repeating: "é", count: 32), "a-b-c-d"])
    func `What is no digest has no root`(_ id: String) { #expect(AccountIDs().root(in: id) == nil) }

    @Test func `Configurations are told apart, whatever the order of their keys`() {
        let all = [
            AccountIDs(), AccountIDs(keys: ["a"]), AccountIDs(keys: ["a", "b"]), AccountIDs(namespace: Self.namespace),
        ]
        #expect(Set(all.map(\.fingerprint)).count == all.count)
        #expect(AccountIDs(keys: ["b", "a"]).fingerprint == AccountIDs(keys: ["a", "b"]).fingerprint)
    }
}
