import HTTPTypes
import Hummingbird
import SupportDesk
import Telemetry

/// What a browser keeps for the console.
///
/// `__Host-` and `__Secure-` have browsers take a cookie only over TLS (or from this machine), the first for this host alone.
enum Cookie: String {
    /// The session.
    case session = "__Host-desk"
    /// That its operators have signed in with this browser of late.
    case client = "__Host-known"
    /// A sign-in that goes on at the identity provider; it comes back from there, so that it can't be of this site alone.
    case begun = "__Host-signin"
    /// What the identity provider is shown at the end, sealed; it travels with the sign-out alone.
    case hint = "__Secure-hint"

    /// Each app has its own: a session is of one database.
    private var name: String { rawValue + (AppScope.name.map { "-\($0)" } ?? "") }

    func text(in request: Request) -> String? { Self.text(name, in: request) }

    /// The text of a cookie by its name.
    static func text(_ name: String, in request: Request) -> String? {
        for header in request.headers[values: .cookie] {
            for pair in header.split(separator: ";") {
                let sides = pair.split(separator: "=", maxSplits: 1)
                if sides.count == 2, sides[0].filter({ $0 != " " }) == name { return String(sides[1]) }
            }
        }
        return nil
    }

    func setting(_ text: String) -> String {
        switch self {
        case .session: "\(name)=\(text); Path=/; Secure; HttpOnly; SameSite=Strict"
        case .client: "\(name)=\(text); Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=2592000"
        case .begun: "\(name)=\(text); Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=600"
        case .hint: "\(name)=\(text); Path=/console/sign-out; Secure; HttpOnly; SameSite=Strict"
        }
    }

    var ending: String { setting("").split(separator: "; Max-Age")[0] + "; Max-Age=0" }

    static func session(in request: Request) -> SessionToken? {
        Cookie.session.text(in: request).flatMap { SessionToken($0) }
    }

    static func client(in request: Request) -> ClientToken? {
        Cookie.client.text(in: request).flatMap { ClientToken($0) }
    }
}

extension Response {
    /// Adds a cookie to those that the answer sets.
    mutating func set(_ cookie: String) {
        headers.append(HTTPField(name: .setCookie, value: cookie))
    }
}
