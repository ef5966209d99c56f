import Entitlements
import Foundation
import StoreClients
import StoreEvents
import UserRequests

extension StoresReader {
    /// Asks the stores who an event is about that leads to no user by itself.
    ///
    /// The answer is a hint like the event: it names users who are read again, and what the purchase is called. Whose the
    /// purchase is their readings decide. It is empty where no store knows more than the event.
    func resolve(_ ask: Inbox.Ask) async -> Inbox.Answer {
        var search = EventSearch(ask)
        await search.take(appStore)
        await search.take(googlePlay)
        await search.take(owners)
        await search.take(customers)
        return search.answer
    }

    /// What the App Store says of the account that has the purchase: all its lines may lead to the user.
    private func appStore(_ search: EventSearch) async throws(ReadFailure) -> EventSearch.Found {
        var found = EventSearch.Found()
        guard let apps = sources.appStore?.apps, let purchase = search.purchases(of: .appStore).first else {
            return found
        }
        let environment = AppStoreEnvironment(ledgerName: purchase.environment)
        let reading = await apps.read(
            AppStoreQuery(.init(id: purchase.value, environment: environment, app: purchase.app), lane: search.lane)
        )
        if let failure = reading.failure, reading.observations.isEmpty, reading.passes.isEmpty { throw failure }
        let passes = reading.passes.map { Observation(named: $0) }
        for item in reading.observations + passes { found.add(item, isMeant: search.names(item)) }
        return found
    }

    /// What Google Play says of the purchase, and of those that it replaced.
    private func googlePlay(_ search: EventSearch) async throws(ReadFailure) -> EventSearch.Found {
        var found = EventSearch.Found()
        let named = search.purchases(of: .googlePlay)
        guard let source = sources.googlePlay, !named.isEmpty else { return found }
        var packages: [ExactText: String] = [:]
        for purchase in named { if let app = purchase.app { packages[ExactText(purchase.value)] = app } }
        let behind = await source.tokens(behind: named.map(\.value), in: packages, lane: search.lane)
        if let failure = behind.failure, behind.tokens.isEmpty { throw failure }
        guard !behind.tokens.isEmpty else { return found }
        var query = GooglePlayQuery(tokens: behind.tokens, askedAt: search.now, lane: search.lane)
        query.packages = packages.merging(behind.packages) { $1 }
        let reading = await source.apps.read(query)
        if let failure = reading.failure, reading.observations.isEmpty { throw failure }
        for item in reading.observations { found.add(item, isMeant: true) }
        return found
    }

    /// The users that the app's ids at the stores stand for.
    private func owners(_ search: EventSearch) async throws(ReadFailure) -> EventSearch.Found {
        var found = EventSearch.Found()
        guard !search.accounts.isEmpty else { return found }
        let owners = try await naming.owners(of: search.accounts)
        for case .user(let id) in owners.values { found.users.append(id) }
        // A walk through the users goes on, and the event is asked about again.
        found.isPartial = owners.values.contains(.pending)
        return found
    }

    /// The customers of RevenueCat's who may have the purchase, by every id of theirs.
    private func customers(_ search: EventSearch) async throws(ReadFailure) -> EventSearch.Found {
        var found = EventSearch.Found()
        guard let revenueCat = sources.revenueCat else { return found }
        var customers = search.anonymous
        // An account id that the app gave the store has named the user.
        if !search.isNamed {
            for id in search.idsForRevenueCat {
                guard let customer = try await revenueCat.projects.customer(holding: id, lane: search.lane) else {
                    continue
                }
                customers.append(customer)
                break
            }
        }
        for customer in customers {
            guard customer.utf8.starts(with: RevenueCatEvent.anonymous.utf8) else {
                found.users.append(customer)
                continue
            }
            do throws(ReadFailure) {
                found.users += try await revenueCat.projects.aliases(of: customer, lane: search.lane)
            } catch {
                // A customer that RevenueCat does not know, or no longer knows, has no aliases.
                guard error.code == .incomplete || error.code == .unusableID else { throw error }
            }
        }
        return found
    }
}

/// What is known of an event while its stores are asked about it.
struct EventSearch: Sendable {
    /// What one store said.
    struct Found: Sendable {
        /// Names that may be users'.
        var users: [String] = []
        /// Ids that the app gave the store for the buyer.
        var accounts: [String] = []
        var identifiers: [PurchaseIdentifier] = []
        /// More will be known later.
        var isPartial = false

        /// `isMeant`: the event is about the item, and not about another of the same buyer's.
        mutating func add(_ item: Observation, isMeant: Bool) {
            // Whether a member's share carries the buyer's id is not documented: it says nothing about the member.
            guard !item.isFamilyShared || isMeant else { return }
            identifiers += item.identifiers
            if isMeant, !item.isFamilyShared, let account = item.accountID { accounts.append(account) }
        }
    }

    private struct About: Decodable {
        var users: [String]?
        var purchases: [StoreEvent.Purchase]?
        var anonymous: [String]?
    }

    /// The most ids of one event that are added to it.
    private static let most = 100

    private let ask: Inbox.Ask
    private let about: About
    private var found = Found()
    private var failed = false
    /// Our clock, to compare ends with; nothing is decided by it here.
    let now = Instant(microseconds: Int64(Date().timeIntervalSince1970 * 1_000_000))

    init(_ ask: Inbox.Ask) {
        self.ask = ask
        about = (try? JSONDecoder().decode(About.self, from: Data(ask.about.utf8))) ?? About()
    }

    var lane: Lane { ask.isListed ? .sweep : .event }
    var anonymous: [String] { about.anonymous ?? [] }
    var accounts: [String] { found.accounts }
    /// Whether the app has given the buyer's id to the store.
    var isNamed: Bool { !found.users.isEmpty }

    /// By what RevenueCat may know the purchase: no tokens.
    var idsForRevenueCat: [String] {
        let named = (about.purchases ?? []).filter {
            $0.store != Store.googlePlay.rawValue || OrderNumber.isOrder($0.value)
        }.map(\.value)
        let orders = found.identifiers.filter { $0.kind == "order_id" }.map(\.value)
        return Array((named + orders.filter { !named.contains($0) }).prefix(2))
    }

    func purchases(of store: Store) -> [StoreEvent.Purchase] {
        (about.purchases ?? []).filter { $0.store == store.rawValue }
    }

    /// Whether an item is what the event is about.
    func names(_ item: Observation) -> Bool {
        item.identifiers.contains { identifier in
            about.purchases?.contains { $0.store == identifier.store && $0.value == identifier.value } == true
        }
    }

    /// Takes what a store says; that one could not be asked keeps no other from being asked.
    mutating func take(_ ask: (EventSearch) async throws(ReadFailure) -> Found) async {
        do throws(ReadFailure) {
            let more = try await ask(self)
            found.users += more.users
            found.accounts += more.accounts
            found.identifiers += more.identifiers
            if more.isPartial { failed = true }
        } catch {
            failed = true
        }
    }

    var answer: Inbox.Answer {
        let users = found.users.filter { !$0.utf8.starts(with: RevenueCatEvent.anonymous.utf8) }
        let known = about.purchases ?? []
        let purchases = found.identifiers.filter { identifier in
            identifier.kind != "revenuecat_id"
                && !known.contains { $0.store == identifier.store && $0.value == identifier.value }
        }.map { StoreEvent.Purchase(store: $0.store, environment: $0.environment, value: $0.value) }
        return Inbox.Answer(
            ask,
            users: JSONList.text(Array(users.prefix(Self.most))),
            purchases: JSONList.text(Array(purchases.prefix(Self.most))),
            failed: failed
        )
    }
}
