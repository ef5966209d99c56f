import Entitlements
import Storage
import StoreClients

/// Finds out whom the ids that apps gave to stores stand for.
struct OwnerNaming: Sendable {
    let accounts: AccountIDs
    let lookups: UserLookups

    /// Names the owners of items that stores told which know no users of ours.
    ///
    /// - Throws: `ReadFailure` where the database can't be asked.
    func name(_ items: inout [Observation], for userID: String) async throws(ReadFailure) {
        var unknown: Set<String> = []
        for index in items.indices where items[index].source != .revenueCat && items[index].owner == .nobody {
            // A family member's share may carry the buyer's id, which says nothing about the member.
            guard let account = items[index].accountID, !items[index].isFamilyShared else { continue }
            if accounts.matches(account, userID: userID) {
                items[index].owner = .account
            } else {
                unknown.formUnion(Self.spellings(account))
            }
        }
        guard !unknown.isEmpty else { return }
        let others: Set<String>
        do {
            others = try await lookups.existing(unknown.sorted())
        } catch {
            throw ReadFailure(.interrupted)
        }
        for index in items.indices where items[index].source != .revenueCat && items[index].owner == .nobody {
            guard let account = items[index].accountID, !items[index].isFamilyShared else { continue }
            if let other = Self.spellings(account).first(where: others.contains) {
                items[index].owner = .otherAccount(id: other)
            } else if items[index].source == .onside {
                // Onside's is our own id as it is, so one that is not the user's is somebody else's.
                items[index].owner = .otherAccount(id: account)
            }
        }
    }

    /// A UUID stands for the same user in capitals and small letters.
    private static func spellings(_ account: String) -> [String] {
        account.utf8.count == 36 && account.utf8.count(where: { $0 == UInt8(ascii: "-") }) == 4
            ? [account, account.lowercased(), account.uppercased()] : [account]
    }
}
