import Crypto
import Foundation
import StoreSimulator
import Testing
import X509

/// Proofs that prove nothing, each wrong in one way, and what `inspect` says is wrong.
struct InspectRefusalTests {
    /// A proof, and the root under which it is to be looked at.
    struct Forgery {
        var text: String
        var root: String
    }

    struct Case: Sendable, CustomTestStringConvertible {
        var name: String
        var sentence: String
        var make: @Sendable () throws -> Forgery
        var testDescription: String { name }

        init(_ name: String, _ sentence: String, _ make: @escaping @Sendable () throws -> Forgery) {
            self.name = name
            self.sentence = sentence
            self.make = make
        }
    }

    private func check(_ each: Case, _ kind: String, _ variable: String) async throws {
        try await Inspection.with(variable) { bench in
            let forgery = try each.make()
            try bench.write(forgery.text, to: "proof")
            try bench.write(forgery.root, to: "root.pem")
            let words = ["\(kind)=@\(bench.folder)/proof", "--output", "json"]
            let ending = try await bench.inspect(words, root: bench.root)
            #expect(ending.code == 65, "\(ending)")
            let said = try Inspection.Answer(ending)
            #expect(!said.verifies && said.reasons == [each.sentence])
        }
    }

    // MARK: Signed transactions

    private static func payload(_ changes: [String: any Sendable] = [:]) throws -> String {
        let now = Int64(Date().timeIntervalSince1970 * 1000)
        let members: [String: any Sendable] = [
            "transactionId": "2000000700000002", "originalTransactionId": "2000000700000001",
            "bundleId": "com.example.app", "productId": "monthly", "type": "Auto-Renewable Subscription",
            "inAppOwnershipType": "PURCHASED", "environment": "Production", "purchaseDate": now, "signedDate": now,
        ]
        let all = members.merging(changes) { $1 }
        return String(decoding: try JSONSerialization.data(withJSONObject: all, options: .sortedKeys), as: UTF8.self)
    }

    private static func jws(
        flaws: SigningCertificates.Flaws = [],
        from: TimeInterval = -86_400,
        until: TimeInterval = 86_400,
        header: [String: any Sendable]? = nil,
        _ payload: @autoclosure () throws -> String = try payload()
    ) throws -> Forgery {
        let authority = try AppStoreAuthority(validFrom: Date() + from, validUntil: Date() + until, flaws: flaws)
        let whole = try header.map { try $0.merging(["x5c": authority.chain()]) { first, _ in first } }
        return Forgery(
            text: try authority.sign(payload(), header: whole),
            root: try authority.certificates.rootPEM()
        )
    }

    private static let transactions = [
        Case("wrong root", "The certificates do not lead to a pinned root.") {
            Forgery(text: try jws().text, root: try jws().root)
        },
        Case("no marker of a signer", "The signer's certificate lacks the mark of the App Store's signers.") {
            try jws(flaws: .noLeafMarker)
        },
        Case("no marker of an authority", "The authority's certificate lacks the mark of its kind.") {
            try jws(flaws: .noIntermediateMarker)
        },
        Case("expired", "It was signed after its certificates had expired.") { try jws(from: -200, until: -100) },
        Case("not yet valid", "It was signed before its certificates became valid.") { try jws(from: 3_600) },
        Case("swapped leaf", "The signature is not one of the signer's over this text.") {
            let (ours, other) = (try AppStoreAuthority(), try AppStoreAuthority())
            return Forgery(
                text: try other.sign(payload(), header: ["alg": "ES256", "x5c": ours.chain()]),
                root: try ours.certificates.rootPEM()
            )
        },
        Case("no algorithm", "The header's algorithm is not ES256.") {
            var forgery = try jws(header: ["alg": "none"])
            forgery.text = forgery.text.split(separator: ".").prefix(2).joined(separator: ".") + "."
            return forgery
        },
        Case("a secret that is the public key", "The header's algorithm is not ES256.") {
            let authority = try AppStoreAuthority()
            let whole = try authority.sign(payload(), header: ["alg": "HS256", "x5c": authority.chain()])
            let signed = whole.split(separator: ".").prefix(2).joined(separator: ".")
            let key = SymmetricKey(data: Data(authority.certificates.leaf.publicKey.subjectPublicKeyInfoBytes))
            let code = HMAC<SHA256>.authenticationCode(for: Data(signed.utf8), using: key)
            return Forgery(text: signed + "." + base64URL(Data(code)), root: try authority.certificates.rootPEM())
        },
        Case("wrong bundle", "It is about another app.") { try jws(payload(["bundleId": "com.example.other"])) },
        Case("wrong environment", "It is of an environment that does not count here.") {
            try jws(payload(["environment": "Xcode"]))
        },
        Case("altered payload", "The signature is not one of the signer's over this text.") {
            var forgery = try jws()
            var parts = forgery.text.split(separator: ".").map(String.init)
            parts[1] = base64URL(Data(try payload(["productId": "yearly"]).utf8))
            forgery.text = parts.joined(separator: ".")
            return forgery
        },
        Case("trailing data", "A signed text has three parts with dots between them; this has 4.") {
            var forgery = try jws()
            forgery.text += ".x"
            return forgery
        },
        Case("data behind the payload", "The payload is not a transaction: it is no JSON, or something follows it.") {
            try jws(payload() + " x")
        },
        Case("oversize", "It is longer than 65536 bytes.") {
            try jws(payload(["note": String(repeating: "x", count: 70_000)]))
        },
        Case("deep nesting", "The payload is not a transaction: it is nested too deep.") {
            let deep = String(repeating: "[", count: 1_000) + String(repeating: "]", count: 1_000)
            return try jws(payload().replacing("{", with: #"{"note":\#(deep),"#))
        },
    ]

    private static func base64URL(_ data: Data) -> String {
        data.base64EncodedString().replacing("+", with: "-").replacing("/", with: "_").replacing("=", with: "")
    }

    @Test(arguments: transactions)
    func `a signed transaction is refused, and why`(each: Case) async throws {
        try await check(each, "storekit_jws", "APP_STORE_ROOT_CERTIFICATES")
    }

    // MARK: App receipts

    private static func receipt(
        flaws: SigningCertificates.Flaws = [],
        from: TimeInterval = -86_400,
        until: TimeInterval = 86_400,
        _ description: ReceiptDescription = ReceiptDescription(),
        _ change: (inout ReceiptContainer) throws -> Void = { _ in }
    ) throws -> Forgery {
        let authority = try ReceiptAuthority(validFrom: Date() + from, validUntil: Date() + until, flaws: flaws)
        var container = try authority.sign(description.payload())
        try change(&container)
        return Forgery(text: container.text(), root: try authority.certificates.rootPEM())
    }

    /// Another authority, with keys of its own.
    private static let others = Result { try ReceiptAuthority(keys: .init()) }

    private static let receipts = [
        Case("wrong root", "The certificates do not lead to a pinned root.") {
            Forgery(text: try receipt().text, root: try others.get().certificates.rootPEM())
        },
        Case("no marker of a signer", "The signer's certificate lacks the mark of the App Store's signers.") {
            try receipt(flaws: .noLeafMarker)
        },
        Case("no marker of an authority", "The authority's certificate lacks the mark of its kind.") {
            try receipt(flaws: .noIntermediateMarker)
        },
        Case("expired", "It was made after its certificates had expired.") { try receipt(from: -200, until: -100) },
        Case("not yet valid", "It was made before its certificates became valid.") { try receipt(from: 3_600) },
        Case("swapped leaf", "The certificates do not lead to a pinned root.") {
            let other = try others.get().sign(ReceiptDescription().payload())
            return try receipt {
                $0.certificates[0] = other.certificates[0]
                $0.signers = other.signers
            }
        },
        Case("another's signature", "The signature is not one of the signer's over this receipt.") {
            let other = try others.get().sign(ReceiptDescription().payload())
            return try receipt { $0.signers[0].signature = other.signers[0].signature }
        },
        Case("another digest", "The digest is neither SHA-256 nor SHA-1.") {
            try receipt {
                $0.digests = [ReceiptContainer.Algorithm.md5]
                $0.signers[0].digest = ReceiptContainer.Algorithm.md5
            }
        },
        Case("wrong bundle", "It is about another app.") {
            try receipt(ReceiptDescription(bundleID: "com.example.other"))
        },
        Case("wrong environment", "It is of an environment that does not count here.") {
            try receipt(ReceiptDescription(type: "Xcode"))
        },
        Case("altered payload", "The signature is not one of the signer's over this receipt.") {
            try receipt { $0.payload = ReceiptDescription(bundleID: "com.example.apq").payload() }
        },
        Case("trailing data", malformed) {
            var forgery = try receipt()
            forgery.text = ((Data(base64Encoded: forgery.text) ?? Data()) + [0]).base64EncodedString()
            return forgery
        },
        Case("oversize", "It is longer than 1048576 bytes.") {
            try receipt(ReceiptDescription(bundleID: String(repeating: "x", count: 1 << 20)))
        },
        Case("deep nesting", "It is nested deeper than a receipt of the App Store's.") {
            let deep = Array(repeating: [0x30, 0x80] as [UInt8], count: 1_000).flatMap(\.self)
            return Forgery(text: Data(deep).base64EncodedString(), root: try receipt().root)
        },
    ]

    private static let malformed =
        "It is not a signed container (PKCS#7) in the form of the App Store's: a part is missing, is too much, "
        + "or is written in another way."

    @Test(arguments: receipts)
    func `an app receipt is refused, and why`(each: Case) async throws {
        try await check(each, "app_receipt", "RECEIPT_ROOT_CERTIFICATES")
    }
}
