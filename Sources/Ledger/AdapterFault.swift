import Entitlements
package import Logging
import Queue

/// The host adapter gave a value that its contract does not allow: the host's words have to be translated in its functions.
package struct AdapterFault: LoggedError, Hashable, Sendable, CustomStringConvertible {
    /// Which of the adapter's functions.
    package var function: String
    /// Which of its columns.
    package var field: String
    /// What it gave, bounded; `nil`: NULL.
    package var value: String?
    /// What may stand there; empty: anything but NULL.
    package var allowed: [String]

    package init(_ function: String, _ field: String, _ value: String? = nil, allowed: [String] = []) {
        self.function = function
        self.field = field
        self.value = value.map { text in String(text.prefix(40).map { $0.isNewline || $0 == "\t" ? " " : $0 }) }
        self.allowed = allowed
    }

    package var description: String {
        let given = value.map { "'\($0)'" } ?? "NULL"
        let allowed = allowed.isEmpty ? "no NULL" : allowed.joined(separator: ", ")
        return "the host adapter's function \(function) gave \(field) \(given) (allowed: \(allowed))"
    }

    package var logMetadata: Logger.Metadata { ["error.code": "\(Self.alarm)", "error.message": "\(self)"] }

    /// The alarm's name.
    package static let alarm = "adapter_refused"
    /// What an operator has to do.
    package static let fix =
        "Translate it in the adapter and run entitlement-sync migrate --adapter FILE, then"
        + " entitlement-sync queue retry --error adapter_refused."
}

extension User {
    /// Reads a user as a function of the adapter gives one.
    package init(_ id: String?, _ type: String?, _ status: String?, by function: String) throws(AdapterFault) {
        guard let id else { throw AdapterFault(function, "id") }
        guard let known = type.flatMap(UserType.init) else {
            throw AdapterFault(function, "type", type, allowed: UserType.allCases.map(\.rawValue))
        }
        guard let state = status.flatMap(UserStatus.init) else {
            throw AdapterFault(function, "status", status, allowed: UserStatus.allCases.map(\.rawValue))
        }
        self.init(id: id, type: known, status: state)
    }
}
