import Crypto
import Foundation
import HTTPTypes
import Hummingbird
import Postgres
import SupportDesk
import TextFormats

/// A request of an operator who is signed in.
struct Visit: Sendable {
    let desk: Desk
    let token: SessionToken
    let me: DeskConsole.Me
    /// The path and query that were asked for.
    let path: String
    let request: Request

    var digest: [UInt8] { token.digest }
    var console: DeskConsole { DeskConsole(pool: desk.pool, session: digest) }
    var tickets: DeskTickets { DeskTickets(pool: desk.pool, session: digest) }
    var users: DeskUsers { DeskUsers(pool: desk.pool, session: digest) }
    /// What forms of this session carry.
    var formKey: String { FormKey(token).text }

    /// Reads a report with the operator's session, from the standby for reports where that can be.
    ///
    /// The permission is the primary's word: the standby may not know yet that it was taken away.
    ///
    /// - Returns: what was read, and how far the standby is behind; `nil`: it is the primary's.
    func report<Value>(
        _ permission: String = "view",
        _ read: (PostgresPool) async throws -> Value
    ) async throws -> (value: Value, lag: String?) {
        if may(permission), let found = try await desk.reports?.read(read) { return found }
        return (try await read(desk.pool), nil)
    }

    func may(_ permission: String) -> Bool { me.permissions.contains(permission) }

    /// Finds out who asks.
    ///
    /// - Throws: `ConsoleFault.signedOut`; `PostgresError`.
    init(_ request: Request, desk: Desk) async throws {
        self.desk = desk
        self.request = request
        path = ConsoleFrame.target(request)
        guard let token = Cookie.session(in: request) else { throw ConsoleFault.signedOut }
        self.token = token
        do { me = try await DeskConsole(pool: desk.pool, session: token.digest).me() } catch let error as PostgresError
            where error.sqlState == "ES009"
        { throw ConsoleFault.signedOut }
    }
}

/// What shows that a form is one of ours, made for this session.
///
/// It can't be made without the session: it is an HMAC with the session as its key.
struct FormKey {
    /// 64 hexadecimal digits.
    let text: String

    init(_ token: SessionToken) {
        let code = HMAC<SHA256>.authenticationCode(
            for: Data("form".utf8),
            using: SymmetricKey(data: Data(token.text.utf8))
        )
        text = Hex.encode(code)
    }

    /// Compares in a time that tells nothing.
    func matches(_ given: String) -> Bool {
        let (left, right) = (Array(text.utf8), Array(given.utf8))
        guard left.count == right.count else { return false }
        return zip(left, right).reduce(UInt8(0)) { $0 | ($1.0 ^ $1.1) } == 0
    }
}
