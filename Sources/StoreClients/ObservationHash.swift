import Crypto
package import Entitlements

extension Observation {
    /// SHA-256 over every fact.
    ///
    /// Each fact is written as its length and its bytes, so that no two sets of facts are written alike.
    package var factsHash: [UInt8] {
        var facts = CanonicalFacts()
        facts.add(source == .revenueCat ? "revenuecat/2" : "\(source.rawValue)/1")
        facts.add(kind.rawValue)
        facts.add(store)
        facts.add(environment)
        facts.add(identifiers.count)
        for identifier in identifiers {
            facts.add(identifier.kind)
            facts.add(identifier.store)
            facts.add(identifier.environment)
            facts.add(identifier.value)
        }
        facts.add(productID)
        facts.add(entitlements.count)
        for entitlement in entitlements { facts.add(entitlement) }
        facts.add(status.raw)
        facts.add(givesAccess.map { $0 ? "true" : "false" })
        facts.add(isPaymentPending ? "pending" : nil)
        facts.add(renewal)
        facts.add(periodStartsAt.map { String($0.microseconds) })
        facts.add(periodEndsAt.map { String($0.microseconds) })
        facts.add(ownership)
        switch owner {
        case .askedUser: facts.add("asked")
        case .anonymous: facts.add("anonymous")
        case .otherUser(let id), .otherAccount(let id), .heldElsewhere(let id):
            facts.add("other")
            facts.add(id)
        case .account: facts.add("account")
        case .unnamed: facts.add("unnamed")
        case .unattributable: facts.add("unattributable")
        }
        if source != .revenueCat {
            facts.add(accountID)
            facts.add(lookupID)
            facts.add(acknowledgement.map { "\($0.deadline.microseconds)" })
        }
        return Array(SHA256.hash(data: facts.bytes))
    }
}

/// Facts behind one another, each separated from its neighbours and distinct from a missing one.
private struct CanonicalFacts {
    private(set) var bytes: [UInt8] = []

    mutating func add(_ text: String?) {
        guard let text else {
            bytes.append(UInt8(ascii: "-"))
            return
        }
        bytes += "\(text.utf8.count):".utf8
        bytes += text.utf8
    }

    mutating func add(_ count: Int) { bytes += "#\(count)".utf8 }
}
