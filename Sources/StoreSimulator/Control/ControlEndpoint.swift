internal import Foundation
internal import NIOCore

/// The endpoint below `/control`, which changes customers, faults and time while the simulator runs.
///
/// - `PUT /control/customers/{id}`: stores a customer; body as in a scenario. Answers the identifiers it has now.
/// - `GET`, `DELETE /control/customers/{id}`
/// - `POST /control/faults`: adds a rule, or a list of rules. `GET` lists them with their use, `DELETE` removes all.
/// - `GET /control/requests`: counts by path and status, and the most requests at once; `?customer=ID` adds that
///   customer's count, `?customers=true` all counts. `DELETE` starts counting afresh; with `?log=true` requests are kept
///   in the order of their arrival from then on, and `GET` with it tells them.
/// - `POST /control/clock`: `{"shift":"+13d"}`, `{"set":1790000000000}`, `{"frozen":true}`, in any combination.
///   `GET` tells the simulated time.
/// - `GET /control/events`: the store events that the real service would have sent as webhooks.
/// - `POST /control/reset`: back to the scenario as loaded, with its relative times counted from now.
/// - `PUT /control/scenario`: another scenario, as JSON.
///
/// It asks for no key, wants JSON whatever the content type says, and answers a fault in the request with 400 and
/// `{"error":TEXT}`.
struct ControlEndpoint {
    let simulation: Simulation

    /// Answers a request outside the stores' own paths.
    func answer(_ request: StoreRequest) -> Reply {
        var reply: Reply
        do {
            reply = try route(request)
        } catch let error as ScenarioError {
            reply = .error(400, error.description)
        } catch let conflict as CustomerBook.Conflict {
            reply = .error(409, "the id \(conflict.id) belongs to \(conflict.owner); change that customer instead")
        } catch {
            reply = .error(500, "the control request failed")
        }
        reply.dateMs = SimulatedClock.machine()
        return reply
    }

    private func route(_ request: StoreRequest) throws -> Reply {
        let (path, query) = (request.path, request.query)
        let prefix = "/control/customers/"
        if path.hasPrefix(prefix), let id = PercentCoding.decode(path.dropFirst(prefix.count)), !id.isEmpty {
            return try customer(id, request)
        }
        switch (request.method, path) {
        case ("GET", "/"), ("GET", "/control"): return .text(StoreSimulator.guide)
        case (_, "/control/faults"): return try faults(request)
        case ("GET", "/control/requests"): return requests(query)
        case ("DELETE", "/control/requests"):
            simulation.resetTally(keepsLog: PercentCoding.value(of: "log", in: query) == "true")
        case (_, "/control/clock"): return try clock(request)
        case ("GET", "/control/events"): return events()
        case ("POST", "/control/reset"): try simulation.load(simulation.withState { $0.scenario })
        case ("PUT", "/control/scenario"):
            try simulation.load(Scenario.decode(json: Data(request.body.readableBytesView)))
        default:
            return try simulation.withState { try $0.control(request) }
                ?? .error(404, "no such control path; GET /control tells which there are")
        }
        return .done
    }

    // MARK: Customers

    private func customer(_ id: String, _ request: StoreRequest) throws -> Reply {
        switch request.method {
        case "PUT":
            let customer: CustomerScenario = try request.decoded(named: id, \.id, "id")
            return show(try simulation.withState { try $0.revenueCat.book.put(customer, nowMs: $0.clock.nowMs) })
        case "GET":
            guard let record = simulation.withState({ $0.revenueCat.book.customer(id) }) else { break }
            return show(record)
        case "DELETE":
            guard simulation.withState({ $0.revenueCat.book.delete(id) != nil }) else { break }
            return .done
        default: return .error(405, "use PUT, GET or DELETE")
        }
        return .error(404, "no customer has the id \(id)")
    }

    private func show(_ record: CustomerRecord) -> Reply {
        func show(_ json: inout JSONBytes, _ items: [some ItemRecord]) {
            for item in items {
                json.object { json in
                    json.member("id", item.id)
                    json.member("store_identifier", item.storeIdentifier)
                    json.member("status", item.status)
                }
            }
        }
        return .object { json in
            json.member("id", record.id)
            json.array("aliases", record.aliases)
            json.array("subscriptions") { show(&$0, record.subscriptions) }
            json.array("purchases") { show(&$0, record.purchases) }
        }
    }

    // MARK: Faults

    private func faults(_ request: StoreRequest) throws -> Reply {
        switch request.method {
        case "POST":
            let rules: FaultList = try request.decoded(emptyIsObject: false)
            simulation.withState { $0.faults.add(rules.rules) }
        case "DELETE": simulation.withState { $0.faults = FaultBook([]) }
        case "GET": break
        default: return .error(405, "use GET, POST or DELETE")
        }
        let entries = simulation.withState { $0.faults.entries }
        return try .object { json in
            try json.array("faults") { json in
                for entry in entries {
                    let rule = String(decoding: try JSONEncoder().encode(entry.rule), as: UTF8.self)
                    json.object { json in
                        json.member("rule", raw: rule)
                        json.member("matched", entry.matched)
                        json.member("used", entry.used)
                    }
                }
            }
        }
    }

    // MARK: Counts

    private func requests(_ query: Substring) -> Reply {
        let (tally, concurrency) = (simulation.withState { $0.tally }, simulation.concurrency)
        return .object { json in
            json.member("total", tally.total)
            json.member("in_flight", concurrency.now)
            json.member("max_in_flight", concurrency.peak)
            json.member("busiest_minute", tally.busiestMinute.requests)
            json.counts("by_path", tally.paths)
            // A connection that was closed without an answer has no status.
            let names = tally.byStatus.map { ($0.key == 0 ? "dropped" : "\($0.key)", $0.value) }
            json.counts("by_status", Dictionary(uniqueKeysWithValues: names))
            if let id = PercentCoding.value(of: "customer", in: query) {
                json.counts("customer", [id: tally.byCustomer[id] ?? 0])
            }
            if PercentCoding.value(of: "customers", in: query) == "true" {
                json.counts("by_customer", tally.byCustomer)
                json.member("uncounted_customers", tally.uncountedCustomers)
            }
            if PercentCoding.value(of: "log", in: query) == "true" { json.array("log", tally.log ?? []) }
        }
    }

    private func events() -> Reply {
        let events = simulation.withState { $0.revenueCat.events }
        return .object { json in
            json.array("events") { json in
                for event in events { json.raw(event) }
            }
        }
    }

    // MARK: Time

    private func clock(_ request: StoreRequest) throws -> Reply {
        if request.method == "POST" {
            let change: ClockChange = try request.decoded(emptyIsObject: false)
            simulation.withState { state in
                if let time = change.set { state.clock.set(time) }
                if case .offset(let milliseconds) = change.shift { state.clock.shift(by: milliseconds) }
                if let frozen = change.frozen { state.clock.setFrozen(frozen) }
            }
        } else if request.method != "GET" {
            return .error(405, "use GET or POST")
        }
        let clock = simulation.withState { $0.clock }
        return .object { json in
            json.member("now_ms", clock.nowMs)
            json.member("shift_ms", clock.shiftMs)
            json.member("frozen", clock.frozenAtMs != nil)
        }
    }
}

extension Simulation.State {
    /// Answers a request below a store's part of the control endpoint.
    ///
    /// - Returns: `nil` where there is no such path.
    /// - Throws: `ScenarioError` for a fault in the request.
    mutating func control(_ request: StoreRequest) throws -> Reply? {
        let parts = request.path.split(separator: "/", maxSplits: 3, omittingEmptySubsequences: false)
        guard parts.count == 4, parts[0].isEmpty, parts[1] == "control" else { return nil }
        let (path, nowMs) = (parts[3], clock.nowMs)
        switch parts[2] {
        case "app-store":
            if let id = path.split(separator: "/").last { shareWithAppStore(String(id)) }
            return try appStore.control(request, path, nowMs: nowMs)
        case "google-play": return try googlePlay.control(request, path, nowMs: nowMs)
        case "onside": return try onside.control(request, path, nowMs: nowMs)
        case "identity": return try identity.control(request, path, nowMs: nowMs)
        case "webhooks": return try webhook(request, path)
        default: return nil
        }
    }
}

extension JSONBytes {
    /// Writes counts by name, sorted.
    fileprivate mutating func counts(_ name: StaticString, _ counts: [String: Int]) {
        object(name) { json in
            for (name, count) in counts.sorted(by: { $0.key < $1.key }) {
                json.key(name)
                json.value(Int64(count))
            }
        }
    }
}

/// One rule, or a list of rules.
private struct FaultList: Decodable {
    let rules: [FaultRule]

    init(from decoder: any Decoder) throws {
        let isList = (try? decoder.unkeyedContainer()) != nil
        rules = isList ? try [FaultRule](from: decoder) : [try FaultRule(from: decoder)]
    }
}

/// A change of the simulated time.
private struct ClockChange: ScenarioObject {
    var set: Int64?
    var shift: Moment?
    var frozen: Bool?

    static let fields: [ScenarioField<Self>] = [
        .optional("set", \.set), .optional("shift", \.shift), .optional("frozen", \.frozen),
    ]

    func check() throws {
        if case .absolute = shift {
            throw FieldFault(message: "is a moment; write a distance such as +13d, or use set", at: "shift")
        }
    }
}
