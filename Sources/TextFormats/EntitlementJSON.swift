package import Entitlements
import FoundationEssentials

/// Sets of what gives a user access, as JSON.
package enum EntitlementJSON {
    /// The set as it is kept, of which the view `entitlement_status` is made: what is null, false or `production` is left out.
    package static func record(_ set: [HeldEntitlement]) -> String {
        list(set) { held, object in
            object.add("id", held.name)
            object.add("store", held.store)
            object.add("source", held.source)
            object.add("product_id", held.productID)
            object.add("ends_at", text(held.endsAt))
            object.add("will_renew", held.willRenew)
            if held.environment != "production" { object.add("environment", held.environment) }
            if held.isAtRisk { object.add("at_risk", true) }
        }
    }

    /// The set as it is published: all members, ends in whole seconds.
    package static func published(_ set: [HeldEntitlement]) -> String {
        list(set) { held, object in
            object.add(orNull: "id", held.name)
            object.add(orNull: "store", held.store)
            object.add(orNull: "source", held.source)
            object.add(orNull: "product_id", held.productID)
            object.add(orNull: "ends_at", text(held.endsAt, inSeconds: true))
            object.add(orNull: "will_renew", held.willRenew)
        }
    }

    /// Reads what `record` wrote; throws a `DecodingError` for anything else.
    package static func read(record: String) throws -> [HeldEntitlement] {
        // Most users who are promoted had nothing.
        record == "[]" ? [] : try JSONDecoder().decode([Item].self, from: Data(record.utf8)).map { try $0.held() }
    }

    /// From the year 10000 on a time has no text that can be read again.
    private static let noEnd = Instant(microseconds: 253_402_300_800_000_000)

    /// An end; `nil`: there is none.
    private static func text(_ end: Instant?, inSeconds: Bool = false) -> String? {
        end.flatMap { $0 < noEnd ? RFC3339.text($0, inSeconds: inSeconds) : nil }
    }

    private struct Item: Decodable {
        var id, store, source, product_id, ends_at, environment: String?
        var will_renew, at_risk: Bool?

        func held() throws -> HeldEntitlement {
            var held = HeldEntitlement()
            held.name = id
            held.store = store
            held.source = source
            held.productID = product_id
            held.environment = environment ?? (store == nil ? nil : "production")
            held.endsAt = try ends_at.map { text -> Instant in
                // A grant may end beyond the years of stores' answers.
                guard let end = RFC3339.receiptInstant(text) else {
                    throw DecodingError.dataCorrupted(.init(codingPath: [], debugDescription: "ends_at: no time"))
                }
                return end
            }
            held.willRenew = will_renew
            held.isAtRisk = at_risk ?? false
            return held
        }
    }

    private static func list(_ set: [HeldEntitlement], _ write: (HeldEntitlement, inout Object) -> Void) -> String {
        var object = Object()
        object.text = "["
        for held in set {
            if object.text.utf8.count > 1 { object.text += "," }
            object.text += "{"
            object.isFirst = true
            write(held, &object)
            object.text += "}"
        }
        object.text += "]"
        return object.text
    }

    private struct Object {
        var text = ""
        var isFirst = true

        private mutating func name(_ name: String) {
            if !isFirst { text += "," }
            isFirst = false
            text += "\""
            text += name
            text += "\":"
        }

        mutating func add(_ member: String, _ value: String?) {
            guard let value else { return }
            name(member)
            text += JSONText.quoted(value)
        }

        mutating func add(_ member: String, _ value: Bool?) {
            guard let value else { return }
            name(member)
            text += value ? "true" : "false"
        }

        mutating func add(orNull member: String, _ value: String?) {
            value == nil ? addNull(member) : add(member, value)
        }

        mutating func add(orNull member: String, _ value: Bool?) {
            value == nil ? addNull(member) : add(member, value)
        }

        private mutating func addNull(_ member: String) {
            name(member)
            text += "null"
        }
    }
}
