import Entitlements
import Foundation
import Postgres
import Queue
import UserRequests

extension Run {
    /// Makes one step in the database and in the model.
    mutating func make(_ step: Step) async throws {
        let users = setup.users.count
        switch step {
        case .tap(let user, let proof, let error, let key):
            try await tap(user % users, proof: proof, error: error, key: key)
        case .reconcile(let user): try await reconcile(user % users)
        case .store(let item, let change): truth.apply(change, to: item % truth.items.count, users: users)
        case .host(let user, let change): try await host(user % users, change)
        case .grant(let user): try await grant(user % users)
        case .endGrant(let user, let revoking): try await endGrant(user % users, revoking: revoking)
        case .pay(let user): try await pay(user % users)
        case .endPay(let user): try await endPay(user % users)
        case .pause(let name, let on):
            try await controls.set(name, paused: on)
            if on { model.paused.insert(name) } else { model.paused.remove(name) }
        case .map(let on): try await map(on)
        case .sandbox(let user, let allowed): try await sandbox(user % users, allowed: allowed)
        case .claim(let side, let limit): try await claim(side, limit)
        case .read(let side, let pick, let manner): try await read(side, pick: pick, manner)
        case .apply(let side, let limit, let turn, let held): try await apply(side, limit, turn: turn, held: held)
        case .again(let side): try await again(side)
        case .expire(let side): try await expire(side)
        case .rescue(let side): try await rescue(side)
        case .beat(let side): try await beat(side)
        case .restart(let side): try await restart(side)
        case .assets(let side, let user): try await assets(side, user % users)
        case .cancel(let pick): try await cancel(pick)
        case .retryDead(let pick): try await retryDead(pick)
        case .wait: try await wait()
        case .sweep(let scope, let isDry, let most): try await sweep(scope, isDry: isDry, most: most)
        case .feed(let batch): try await feed(batch)
        case .plan: try await plan()
        case .part(let side): try await part(side)
        case .release(let pick, let wrong): try await release(pick, wrong: wrong)
        case .cancelRun(let pick): try await cancelRun(pick)
        case .notify(let item): try await notify(item % truth.items.count)
        case .othersKey(let on): truth.hasOthersKey = on
        case .clockJump(let user): try await clockJump(user % users)
        case .fallDue(let user): try await fallDue(user % users)
        case .erase(let user): try await erase(user % users)
        case .transfer(let item, let user, let echoes):
            try await transfer(item % truth.items.count, to: user % users, echoes: echoes)
        }
    }

    // MARK: People

    private mutating func tap(_ user: Int, proof: Int?, error: String?, key: Int?) async throws {
        let item = proof.map { truth.items[$0 % truth.items.count] }
        let name = item?.names.last
        let store = item?.store == "play_store" ? "google_play" : "app_store"
        let proofs = name.map { #"[{"store":"\#(store)","kind":"transaction_id","value":"\#($0)"}]"# } ?? "[]"
        let words = proofs + (error ?? "")
        let keyText = key.map { "key-\($0)" }
        let remembered = key.flatMap { keys["\(user)/\($0)"] }
        do {
            let id = try id(
                await lane.host.query(
                    """
                    SELECT entitlement_sync.request_restore(
                        \(userID(user)), \(PostgresJSON(proofs)), \(error), NULL, \(keyText))
                    """
                )
            )
            try expect(model.people[user].exists, "a tap of nobody was accepted")
            try expect(remembered.map { $0.words == words } ?? true, "a key was used for other words")
            if let remembered {
                model.note("key repeated")
                try returned(id, for: remembered.job)
                return
            }
            let job = model.tap(user, proof: name.map(plain), error: error)
            try returned(id, for: job)
            if let key { keys["\(user)/\(key)"] = (words, job) }
        } catch let error as PostgresError where error.sqlState == "ES001" {
            try expect(!model.people[user].exists, "a tap was refused")
        } catch let error as PostgresError where error.sqlState == "ES004" {
            try expect(remembered.map { $0.words != words } ?? false, "a key was refused")
        }
    }

    private mutating func notify(_ item: Int) async throws {
        guard truth.items[item].isAtStore else { return }
        let rows = truth.items[item].identifiers.compactMap { model.names[$0.key] }
        let owner = rows.compactMap { model.purchases[$0].facts.ownerKey }.first.map { Int($0) - 1 }
        guard let user = owner ?? truth.items[item].account, user < setup.users.count, model.people[user].exists else {
            return
        }
        notified[user, default: []].insert(item)
        try await reconcile(user)
    }

    private mutating func reconcile(_ user: Int) async throws {
        do {
            let id = try await Requests(pool: lane.host).reconcile(userID(user), reason: "manual")
            try expect(model.people[user].exists, "a reconcile of nobody was accepted")
            try returned(id, for: model.enqueue(user, .reconcile))
        } catch let error as PostgresError where error.sqlState == "ES001" {
            try expect(!model.people[user].exists, "a reconcile was refused")
        }
    }

    private static var tomorrow: PostgresTimestamp {
        PostgresTimestamp(microsecondsSinceUnixEpoch: StoreTruth.future.microseconds)
    }

    private mutating func grant(_ user: Int) async throws {
        guard model.people[user].exists else { return }
        let id = try await controls.grant(userID(user), until: Self.tomorrow, reason: "a gift")
        model.people[user].grants.append(.init(id: id))
        model.enqueue(user, .reconcile)
    }

    private mutating func endGrant(_ user: Int, revoking: Bool) async throws {
        guard model.people[user].exists, let place = model.people[user].grants.firstIndex(where: \.isActive) else {
            return
        }
        let id = model.people[user].grants[place].id
        model.people[user].grants[place].isActive = false
        model.note(revoking ? "grant revoked" : "grant expired")
        if revoking {
            _ = try await controls.revoke(id)
            model.enqueue(user, .reconcile)
        } else {
            try await lane.host.query(
                "UPDATE entitlement_sync.\"grant\" SET until = now() - interval '1 hour' WHERE id = \(id)"
            )
        }
    }

    private mutating func pay(_ user: Int) async throws {
        guard model.people[user].exists else { return }
        let known = model.people[user].grants.firstIndex { $0.externalID != nil }
        let externalID = known.flatMap { model.people[user].grants[$0].externalID } ?? "invoice-\(UUID())"
        let id = try await lane.host.query(
            "SELECT entitlement_sync.put_access(\(userID(user)), 'shop', \(externalID), \(Self.tomorrow))"
        ).one.decode(Int64.self)
        if let known {
            try expect(model.people[user].grants[known].id == id, "what is paid elsewhere has changed its id")
            if !model.people[user].grants[known].isActive { model.note("paid elsewhere again") }
            model.people[user].grants[known].isActive = true
        } else {
            model.note("paid elsewhere")
            model.people[user].grants.append(.init(id: id, externalID: externalID))
        }
        model.enqueue(user, .reconcile)
    }

    private mutating func endPay(_ user: Int) async throws {
        guard model.people[user].exists,
            let place = model.people[user].grants.firstIndex(where: { $0.externalID != nil }),
            let externalID = model.people[user].grants[place].externalID
        else { return }
        let wasActive = model.people[user].grants[place].isActive
        let ended = try await lane.host.query("SELECT entitlement_sync.end_access('shop', \(externalID))").one
            .decode(Bool.self)
        try expect(ended == wasActive, "what was paid elsewhere ends once")
        guard wasActive else { return }
        model.note("paid elsewhere no longer")
        model.people[user].grants[place].isActive = false
        model.enqueue(user, .reconcile)
    }

    private mutating func sandbox(_ user: Int, allowed: Bool) async throws {
        guard model.people[user].exists else { return }
        if allowed {
            try await controls.allowSandbox(userID(user), until: Self.tomorrow)
            model.people[user].sandbox = .allowed
            model.enqueue(user, .reconcile)
        } else if model.people[user].sandbox != .none {
            try await lane.host.query(
                """
                UPDATE entitlement_sync.sandbox_user SET until = now() - interval '1 hour'
                 WHERE user_id = \(userID(user))
                """
            )
            model.people[user].sandbox = .past
        }
    }

    private mutating func map(_ on: Bool) async throws {
        guard (model.catalog["gold"] != nil) != on else { return }
        if on {
            try await lane.host.query(
                """
                INSERT INTO entitlement_sync.product (store, product_id, entitlement, grants_access)
                VALUES ('revenuecat', 'gold', 'gold', true)
                """
            )
        } else {
            try await lane.host.query("DELETE FROM entitlement_sync.product WHERE product_id = 'gold'")
        }
        model.catalog["gold"] = on ? true : nil
        model.catalogChanged()
    }

    // MARK: Operators

    private mutating func cancel(_ pick: Int) async throws {
        let known = model.jobs.indices.filter { model.jobs[$0].id != nil }
        guard !known.isEmpty else { return }
        let job = known[known.count - 1 - pick % known.count]
        guard let id = model.jobs[job].id else { return }
        let answer = try await commands.cancel(id)
        let expected = model.cancel(job)
        try expect(answer.rawValue == expected, "a cancellation was answered \(answer.rawValue), not \(expected)")
    }

    private mutating func retryDead(_ pick: Int) async throws {
        let dead = model.jobs.indices.filter { model.jobs[$0].state == .dead }
        guard !dead.isEmpty else { return }
        let job = dead[dead.count - 1 - pick % dead.count]
        guard let id = model.jobs[job].id else { return }
        let answer = try await commands.retry(id)
        try expect(answer == model.retryDead(job), "a retry was answered \(answer)")
    }

    mutating func wait() async throws {
        try await lane.host.query(
            """
            UPDATE entitlement_sync.queue AS q
               SET due = least(q.due, now()),
                   restore_due = CASE WHEN q.restore_due IS NOT NULL THEN least(q.restore_due, now()) END,
                   reconcile_due = CASE WHEN q.reconcile_due IS NOT NULL THEN least(q.reconcile_due, now()) END
            """
        )
        for job in model.jobs.indices { model.jobs[job].isDelayed = false }
        try await lane.host.query("UPDATE entitlement_sync.run SET late_due = now() WHERE late_due > now()")
        for place in model.sweeps.indices { model.sweeps[place].lateWaits = false }
    }

    // MARK: The host's application

    mutating func host(_ user: Int, _ change: HostChange) async throws {
        let id = userID(user)
        if case .signUpAgain = change {
            guard !model.people[user].exists else { return }
            try await lane.host.query("INSERT INTO users (id) VALUES (\(id))")
            model.people[user].exists = true
            model.people[user].type = .free
            model.people[user].status = .active
            return
        }
        guard model.people[user].exists else { return }
        switch change {
        case .ban: try await set(.banned, of: user)
        case .banForGood: try await set(.bannedFinal, of: user)
        case .askDeletion: try await set(.toBeDeleted, of: user)
        case .onboard: try await set(.onboarding, of: user)
        case .activate: try await set(.active, of: user)
        case .remove:
            if hasReading(of: user) { model.note("deleted between read and write") }
            try await lane.host.query("DELETE FROM assets WHERE user_id = \(id)")
            try await lane.host.query("DELETE FROM users WHERE id = \(id)")
            model.people[user].exists = false
            model.assets = model.assets.filter { $0.value.owner != user }
        case .makeSubscriber: try await set(.subscriber, of: user)
        case .makeFree: try await set(.free, of: user)
        case .addAssets(let count): try await addAssets(count, of: user, [])
        case .addLapsedAssets(let count): try await addAssets(count, of: user, [Model.Asset.lapsed])
        case .addMysteriousAsset: try await addAssets(1, of: user, [], mysterious: true)
        case .moderate:
            try await lane.host.query(
                """
                UPDATE assets SET frozen_reasons = frozen_reasons || '{moderation}', frozen_at = coalesce(frozen_at, now())
                 WHERE user_id = \(id) AND NOT frozen_reasons @> '{moderation}'
                """
            )
            for (key, asset) in model.assets where asset.owner == user && !asset.reasons.contains("moderation") {
                model.assets[key]?.reasons.append("moderation")
                model.assets[key]?.isMysterious = false
            }
        case .clearModeration:
            try await lane.host.query(
                """
                UPDATE assets SET frozen_reasons = array_remove(frozen_reasons, 'moderation'),
                       frozen_at = CASE WHEN array_remove(frozen_reasons, 'moderation') <> '{}' THEN frozen_at END
                 WHERE user_id = \(id) AND frozen_reasons @> '{moderation}'
                """
            )
            for (key, asset) in model.assets where asset.owner == user {
                model.assets[key]?.reasons.removeAll { $0 == "moderation" }
            }
        case .giveAsset(let other):
            let other = other % setup.users.count
            guard model.people[other].exists, let asset = firstAsset(of: user) else { return }
            try await lane.host.query("UPDATE assets SET user_id = \(userID(other)) WHERE id = \(asset)")
            model.assets[asset]?.owner = other
        case .dropAsset:
            guard let asset = firstAsset(of: user) else { return }
            try await lane.host.query("DELETE FROM assets WHERE id = \(asset)")
            model.assets[asset] = nil
        case .signUpAgain: break
        }
    }

    private func firstAsset(of user: Int) -> Int64? { model.assets.filter { $0.value.owner == user }.keys.min() }

    private func hasReading(of user: Int) -> Bool {
        workers.values.contains { $0.hands.contains { $0.user == user && $0.taken != nil } }
    }

    private mutating func set(_ status: UserStatus, of user: Int) async throws {
        if !status.isEligible, model.people[user].status.isEligible, hasReading(of: user) {
            model.note("banned between read and write")
        }
        try await lane.host.query("UPDATE users SET status = \(status.rawValue) WHERE id = \(userID(user))")
        model.people[user].status = status
    }

    private mutating func set(_ type: UserType, of user: Int) async throws {
        try await lane.host.query("UPDATE users SET type = \(type.rawValue) WHERE id = \(userID(user))")
        model.people[user].type = type
    }

    private mutating func addAssets(_ count: Int, of user: Int, _ reasons: [String], mysterious: Bool = false)
        async throws
    {
        let isFrozen = mysterious || !reasons.isEmpty
        let rows = try await lane.host.query(
            """
            INSERT INTO assets (user_id, frozen_reasons, frozen_at)
            SELECT \(userID(user)), \(reasons), CASE WHEN \(isFrozen) THEN now() END
              FROM generate_series(1, \(Int32(count))) RETURNING id
            """
        )
        for row in rows {
            model.assets[try row.decode(Int64.self)] = .init(owner: user, reasons: reasons, isMysterious: mysterious)
        }
    }
}
