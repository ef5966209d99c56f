import Entitlements
package import Ledger
import Queue
package import StoreClients

/// RevenueCat as a witness: a customer's lists, and whose purchases it holds.
package struct RevenueCatSource: Sendable {
    let projects: RevenueCatProjects
    private let lookups: UserLookups

    package init(client: RevenueCatClient, lookups: UserLookups) {
        self.init(RevenueCatProjects([client]), lookups: lookups)
    }

    package init(_ projects: RevenueCatProjects, lookups: UserLookups) {
        self.projects = projects
        self.lookups = lookups
    }

    private func query(_ context: ReadContext) -> CustomerQuery {
        CustomerQuery(
            userID: context.userID,
            lane: context.lane,
            sandboxCounts: context.job.sandboxAllowed,
            mayGrant: context.mayGrant,
            isOtherUser: { [lookups] ids in try await Self.others(ids, than: context.userID, lookups) }
        )
    }

    /// Which of these ids are users of the host: other ones than `user`, which may have another spelling as well.
    private static func others(
        _ ids: [String],
        than user: String,
        _ lookups: UserLookups
    ) async throws -> Set<ExactText> {
        Set(try await lookups.spellings(ids).filter { !$0.value.isExactly(user) }.keys)
    }

    /// Names other owners as the host spells them.
    private func respell(_ items: inout [Observation]) async -> ReadFailure? {
        let named = items.compactMap(\.owner.otherID)
        guard !named.isEmpty else { return nil }
        let spellings: [ExactText: String]
        do { spellings = try await lookups.spellings(named.sortedExactly) } catch { return ReadFailure(records: error) }
        for index in items.indices {
            guard let spelling = items[index].owner.otherID.flatMap({ spellings[ExactText($0)] }) else { continue }
            switch items[index].owner {
            case .otherUser: items[index].owner = .otherUser(id: spelling)
            case .heldElsewhere: items[index].owner = .heldElsewhere(id: spelling)
            default: break
            }
        }
        return nil
    }

    /// Reads the user's lists.
    func read(_ context: ReadContext) async -> StorePart {
        var answer = await projects.read(query(context))
        if let failure = await respell(&answer.observations) { return .failed(.revenueCat, failure) }
        // Purchases are left out where a subscription gives access: enough to say yes, not enough to say no.
        let isFull = answer.coverage == .full && (answer.purchasesListed || answer.observations.isEmpty)
        var part = StorePart(
            store: .revenueCat,
            coverage: answer.coverage == .full && !isFull ? .partial : answer.coverage,
            observations: answer.observations,
            failure: answer.failure,
            hasUnreadable: answer.hasUnreadable
        )
        await part.limit(by: passes, context)
        return part
    }

    /// Finds what reported ids lead to.
    func find(_ ids: [TypedID], _ context: ReadContext) async -> ClaimReading {
        var found = await projects.find(ids, for: query(context))
        do throws(ReadFailure) {
            let limited = try await passes.limit(found.own, context)
            found.own = limited.items
            found.hasUnreadable = found.hasUnreadable || limited.hasUnreadable
        } catch {
            found.own = []
            found.failure = found.failure ?? error
        }
        return found
    }

    private var passes: Passes { Passes(lookups: lookups) }

    /// What RevenueCat knows of purchases that the user has shown, each by its stores' ids.
    func owners(
        of purchases: [[String]],
        _ context: ReadContext
    ) async -> (witnesses: [Witnesses], failure: ReadFailure?) {
        var (witnesses, failure) = await projects.owners(of: purchases, for: query(context))
        for place in witnesses.indices {
            let odd = await respell(&witnesses[place].items)
            failure = failure ?? odd
            do throws(ReadFailure) {
                let limited = try await passes.limit(witnesses[place].items, context)
                witnesses[place].items = limited.items
                if limited.hasUnreadable { witnesses[place].hasUnreadable = true }
            } catch {
                failure = failure ?? error
            }
        }
        return (witnesses, failure)
    }

    /// Reads everything that a customer has, any customer; `project`: in one project alone.
    func everything(of customer: String, in project: String? = nil, lane: Lane) async -> CustomerReading {
        let asked = project.map { name in RevenueCatProjects(projects.clients.filter { $0.projectID == name }) }
        return await (asked ?? projects).read(
            CustomerQuery(
                userID: customer,
                lane: lane,
                sandboxCounts: true,
                mayGrant: { _ in false },
                isOtherUser: { [lookups] ids in try await Self.others(ids, than: customer, lookups) }
            )
        )
    }
}

extension NamedOwner {
    /// Another customer that RevenueCat names.
    fileprivate var otherID: String? {
        switch self {
        case .otherUser(let id), .heldElsewhere(let id): id
        case .askedUser, .anonymous, .account, .otherAccount, .unnamed, .unattributable: nil
        }
    }
}
