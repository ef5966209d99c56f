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
            reply = failure(400, error.description)
        } catch let conflict as CustomerBook.Conflict {
            reply = failure(409, "the id \(conflict.id) belongs to \(conflict.owner); change that customer instead")
        } catch {
            reply = failure(500, "the control request failed")
        }
        reply.dateMs = SimulatedClock.machine()
        return reply
    }

    private func route(_ request: StoreRequest) throws -> Reply {
        let parts = request.target.split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
        let path = parts.first ?? ""
        let query = parts.count > 1 ? parts[1] : ""
        let prefix = "/control/customers/"
        if path.hasPrefix(prefix), let id = PercentCoding.decode(path.dropFirst(prefix.count)), !id.isEmpty {
            return try customer(id, request)
        }
        if path.hasPrefix("/control/app-store/") {
            return try simulation.withState { state in
                if let id = path.split(separator: "/").last { state.shareWithAppStore(String(id)) }
                return try state.appStore.control(request, path, query, nowMs: state.clock.nowMs)
            } ?? unknownPath
        }
        if path.hasPrefix("/control/google-play/") {
            return try simulation.withState { try $0.googlePlay.control(request, path, query, nowMs: $0.clock.nowMs) }
                ?? unknownPath
        }
        if path.hasPrefix("/control/onside/") {
            return try simulation.withState { try $0.onside.control(request, path, query, nowMs: $0.clock.nowMs) }
                ?? unknownPath
        }
        if path.hasPrefix("/control/identity/") {
            return try simulation.withState { try $0.identity.control(request, path, query, nowMs: $0.clock.nowMs) }
                ?? unknownPath
        }
        if path.hasPrefix("/control/webhooks/") {
            return try simulation.withState { try $0.control(request, path) } ?? unknownPath
        }
        switch (request.method, path) {
        case ("GET", "/"), ("GET", "/control"):
            var reply = Reply(status: 200, body: Array(StoreSimulator.guide.utf8))
            reply.contentType = "text/plain; charset=utf-8"
            return reply
        case (_, "/control/faults"): return try faults(request)
        case ("GET", "/control/requests"): return requests(query)
        case ("DELETE", "/control/requests"):
            simulation.resetTally(keepsLog: PercentCoding.value(of: "log", in: query) == "true")
        case (_, "/control/clock"): return try clock(request)
        case ("GET", "/control/events"): return events()
        case ("POST", "/control/reset"): try simulation.load(simulation.withState { $0.scenario })
        case ("PUT", "/control/scenario"):
            try simulation.load(Scenario.decode(json: Data(request.body.readableBytesView)))
        default: return unknownPath
        }
        return object { _ in }
    }

    private var unknownPath: Reply { failure(404, "no such control path; GET /control tells which there are") }

    // MARK: Customers

    private func customer(_ id: String, _ request: StoreRequest) throws -> Reply {
        switch request.method {
        case "PUT":
            var scenario: CustomerScenario = try decode(request)
            guard scenario.id.isEmpty || scenario.id == id else {
                throw ScenarioError(keyPath: "id", message: "differs from the path; leave it out")
            }
            scenario.id = id
            return show(try simulation.put(scenario))
        case "GET":
            guard let record = simulation.withState({ $0.revenueCat.book.customer(id) }) else { break }
            return show(record)
        case "DELETE":
            guard simulation.withState({ $0.revenueCat.book.delete(id) != nil }) else { break }
            return object { _ in }
        default: return failure(405, "use PUT, GET or DELETE")
        }
        return failure(404, "no customer has the id \(id)")
    }

    private func show(_ record: CustomerRecord) -> Reply {
        object { json in
            json.key("id")
            json.value(record.id)
            json.key("aliases")
            json.beginArray()
            for alias in record.aliases { json.value(alias) }
            json.endArray()
            json.key("subscriptions")
            json.beginArray()
            for item in record.subscriptions { show(&json, id: item.id, item.storeIdentifier, item.status) }
            json.endArray()
            json.key("purchases")
            json.beginArray()
            for item in record.purchases { show(&json, id: item.id, item.storeIdentifier, item.status) }
            json.endArray()
        }
    }

    private func show(_ json: inout JSONBytes, id: String, _ storeIdentifier: String, _ status: String) {
        json.beginObject()
        json.key("id")
        json.value(id)
        json.key("store_identifier")
        json.value(storeIdentifier)
        json.key("status")
        json.value(status)
        json.endObject()
    }

    // MARK: Faults

    private func faults(_ request: StoreRequest) throws -> Reply {
        switch request.method {
        case "POST":
            let rules: FaultList = try decode(request)
            simulation.inject(rules.rules)
        case "DELETE": simulation.clearFaults()
        case "GET": break
        default: return failure(405, "use GET, POST or DELETE")
        }
        let entries = simulation.withState { $0.faults.entries }
        return object { json in
            json.key("faults")
            json.beginArray()
            for entry in entries {
                json.beginObject()
                json.key("rule")
                // A rule is always encodable: it came in as JSON or YAML.
                json.raw((try? JSONEncoder().encode(entry.rule)).map { String(decoding: $0, as: UTF8.self) } ?? "null")
                json.key("matched")
                json.value(entry.matched)
                json.key("used")
                json.value(entry.used)
                json.endObject()
            }
            json.endArray()
        }
    }

    // MARK: Counts

    private func requests(_ query: Substring) -> Reply {
        let report = simulation.requestReport()
        return object { json in
            json.key("total")
            json.value(report.total)
            json.key("in_flight")
            json.value(report.inFlight)
            json.key("max_in_flight")
            json.value(report.peakInFlight)
            json.key("busiest_minute")
            json.value(report.busiestMinute)
            json.key("by_path")
            json.counts(report.byPath)
            json.key("by_status")
            // A connection that was closed without an answer has no status.
            let names = report.byStatus.map { ($0.key == 0 ? "dropped" : "\($0.key)", $0.value) }
            json.counts(Dictionary(uniqueKeysWithValues: names))
            if let id = PercentCoding.value(of: "customer", in: query) {
                json.key("customer")
                json.counts([id: report.byCustomer[id] ?? 0])
            }
            if PercentCoding.value(of: "customers", in: query) == "true" {
                json.key("by_customer")
                json.counts(report.byCustomer)
                json.key("uncounted_customers")
                json.value(report.uncountedCustomers)
            }
            if PercentCoding.value(of: "log", in: query) == "true" {
                json.key("log")
                json.beginArray()
                for request in report.log { json.value(request) }
                json.endArray()
            }
        }
    }

    private func events() -> Reply {
        let events = simulation.withState { $0.revenueCat.events }
        return object { json in
            json.key("events")
            json.beginArray()
            for event in events { json.raw(event) }
            json.endArray()
        }
    }

    // MARK: Time

    private func clock(_ request: StoreRequest) throws -> Reply {
        if request.method == "POST" {
            let change: ClockChange = try decode(request)
            simulation.withState { state in
                if let time = change.set { state.clock.set(time) }
                if case .offset(let milliseconds) = change.shift { state.clock.shift(by: milliseconds) }
                if let frozen = change.frozen { state.clock.setFrozen(frozen) }
            }
        } else if request.method != "GET" {
            return failure(405, "use GET or POST")
        }
        let clock = simulation.withState { $0.clock }
        return object { json in
            json.key("now_ms")
            json.value(clock.nowMs)
            json.key("shift_ms")
            json.value(clock.shiftMs)
            json.key("frozen")
            json.value(clock.frozenAtMs != nil)
        }
    }

    // MARK: Parts

    private func object(_ body: (inout JSONBytes) -> Void) -> Reply {
        var json = JSONBytes()
        json.beginObject()
        body(&json)
        json.endObject()
        return Reply(status: 200, body: json.bytes)
    }

    private func failure(_ status: Int, _ message: String) -> Reply {
        var json = JSONBytes(capacity: 256)
        json.beginObject()
        json.key("error")
        json.value(message)
        json.endObject()
        return Reply(status: status, body: json.bytes)
    }

    private func decode<Body: Decodable>(_ request: StoreRequest) throws -> Body {
        do {
            return try JSONDecoder().decode(Body.self, from: Data(request.body.readableBytesView))
        } catch let error as DecodingError {
            throw ScenarioError(error)
        }
    }
}

extension JSONBytes {
    /// Writes counts by name, sorted.
    fileprivate mutating func counts(_ counts: [String: Int]) {
        beginObject()
        for (name, count) in counts.sorted(by: { $0.key < $1.key }) {
            key(name)
            value(count)
        }
        endObject()
    }
}

/// One rule, or a list of rules.
private struct FaultList: Decodable {
    let rules: [FaultRule]

    init(from decoder: any Decoder) throws {
        if (try? decoder.unkeyedContainer()) != nil {
            rules = try [FaultRule](from: decoder)
        } else {
            rules = [try FaultRule(from: decoder)]
        }
    }
}

/// A change of the simulated time.
private struct ClockChange: Decodable {
    var set: Int64?
    var shift: Moment?
    var frozen: Bool?

    enum CodingKeys: String, CodingKey, CaseIterable { case set, shift, frozen }

    init(from decoder: any Decoder) throws {
        let fields = try StrictFields<CodingKeys>(decoder)
        set = try fields.optional(.set)
        shift = try fields.optional(.shift)
        frozen = try fields.optional(.frozen)
        if case .absolute = shift {
            throw fields.fault(.shift, "is a moment; write a distance such as +13d, or use set")
        }
    }
}
