import Entitlements
import Ledger
import Queue
import StoreClients

/// Finds the users that the ids which apps gave to stores stand for.
struct OwnerNaming: Sendable {
    let accounts: AccountIDs
    let lookups: UserLookups
    /// The users that derived ids stand for; `nil`: no configured store gets such ids.
    let index: AccountIndex?
    /// Raised when a walk through the users is needed.
    let walkNeeded = Signal()

    /// The user that an app's id stands for.
    enum AccountOwner: Hashable, Sendable {
        /// A user of the host, by the host's spelling.
        case user(id: String)
        /// No user: the id says nothing about an owner.
        case noUser
        /// Only a walk through the host's users can tell.
        case pending
        /// The walk takes longer than `AccountIndex.patience`.
        case unresolved
    }

    /// Names the owners of items by the account ids in them, as far as no walk is needed.
    func name(_ items: inout [Observation], for userID: String) async throws(ReadFailure) {
        var unknown: [String] = []
        for index in items.indices where items[index].isUnnamed {
            guard let account = items[index].accountID else { continue }
            if accounts.matches(account, userID: userID) {
                items[index].owner = .account
            } else {
                unknown.append(account)
            }
        }
        guard !unknown.isEmpty else { return }
        let owners = try await known(unknown)
        for index in items.indices where items[index].isUnnamed {
            guard let account = items[index].accountID else { continue }
            if case .user(let other)? = owners[ExactText(account)] {
                items[index].owner = other.isExactly(userID) ? .account : .otherAccount(id: other)
            } else if items[index].source == .onside {
                // Onside's is our own id as it is, so one that is not the user's is another user's.
                items[index].owner = .otherAccount(id: account)
            }
        }
    }

    /// The users that ids stand for, which apps gave to stores.
    ///
    /// Waits two seconds at most for a walk, which serves all jobs that wait; an owner that is unknown then is `pending`.
    func owners(of ids: [String]) async throws(ReadFailure) -> [ExactText: AccountOwner] {
        let clock = ContinuousClock()
        let end = clock.now + Self.patience
        var pause = Duration.milliseconds(50)
        while true {
            let owners = try await askedFor(ids)
            guard owners.values.contains(.pending), clock.now + pause < end else { return owners }
            walkNeeded.raise()
            do { try await clock.sleep(for: pause) } catch { throw ReadFailure(.interrupted) }
            pause = min(pause * 2, .milliseconds(400))
        }
    }

    /// How long a read waits for a walk; the job waits longer.
    private static let patience = Duration.seconds(2)

    private func askedFor(_ ids: [String]) async throws(ReadFailure) -> [ExactText: AccountOwner] {
        var owners = try await known(ids)
        let open = ids.filter { owners[ExactText($0)] == .pending }
        guard let index, !open.isEmpty else { return owners }
        let states = try await readRecords { try await index.ask(open.compactMap(accounts.root)) }
        // A walk may have ended since the index was asked, and have found them.
        let again = states.values.contains(.absent) ? try await known(open) : [:]
        for id in open {
            if case .user? = again[ExactText(id)] {
                owners[ExactText(id)] = again[ExactText(id)]
                continue
            }
            switch accounts.root(in: id).flatMap({ states[$0] }) {
            case .absent: owners[ExactText(id)] = .noUser
            case .late: owners[ExactText(id)] = .unresolved
            case .pending, nil: owners[ExactText(id)] = .pending
            }
        }
        return owners
    }

    /// What is known of ids without a walk; `pending`: only one can tell.
    private func known(_ ids: [String]) async throws(ReadFailure) -> [ExactText: AccountOwner] {
        try await readRecords {
            var owners: [ExactText: AccountOwner] = [:]
            let plain = try await lookups.spellings(ids.flatMap(Self.spellings).sortedExactly)
            for id in ids {
                let user = Self.spellings(id).lazy.compactMap { plain[ExactText($0)] }.first
                let isDerived = index != nil && accounts.root(in: id) != nil
                owners[ExactText(id)] = user.map { .user(id: $0) } ?? (isDerived ? .pending : .noUser)
            }
            let derived = ids.filter { owners[ExactText($0)] == .pending }
            guard let index, !derived.isEmpty else { return owners }
            let users = try await index.users(of: derived.compactMap(accounts.root))
            var found: [ExactText: String] = [:]
            for id in derived {
                // A part of a digest is no proof: the whole of it decides.
                let candidates = accounts.root(in: id).flatMap { users[$0] } ?? []
                found[ExactText(id)] = candidates.first { accounts.matches(id, userID: $0) }
            }
            // A user who has left the host since owns nothing.
            let present = try await lookups.spellings(found.values.map(\.self))
            for (id, user) in found { if let user = present[ExactText(user)] { owners[id] = .user(id: user) } }
            return owners
        }
    }

    /// A UUID stands for the same user in capitals and small letters.
    static func spellings(_ account: String) -> [String] {
        account.utf8.count == 36 && account.utf8.count(where: { $0 == UInt8(ascii: "-") }) == 4
            ? [account, account.lowercased(), account.uppercased()] : [account]
    }
}

extension Observation {
    /// Whether only the app's id could name an owner.
    ///
    /// A family member's share may carry the buyer's id, which says nothing about the member.
    var isUnnamed: Bool { source != .revenueCat && owner == .unnamed && accountID != nil && !isFamilyShared }
}
