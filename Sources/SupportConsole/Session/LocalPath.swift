import Foundation
import HTTPTypes
import Hummingbird

/// A page of the console to go to afterwards; no other address is gone to.
struct LocalPath: Hashable, Sendable {
    private static let longest = 300
    private static let home = "/console"

    /// A path with its query.
    let text: String

    /// Takes a path of the console; anything else becomes the first page.
    init(_ given: String?) {
        guard let given, given.utf8.count <= Self.longest,
            given == Self.home || given.hasPrefix("/console/") || given.hasPrefix("/console?"),
            given.utf8.allSatisfy(Self.isPlain), !given.contains("//"), !given.contains(".."),
            !["/console/sign-in", "/console/confirm", "/console/sign-out"].contains(where: { given.hasPrefix($0) })
        else {
            text = Self.home
            return
        }
        text = given
    }

    /// The page that a form was sent from: a ticket's or a user's, for their forms go below them.
    init(referring request: Request) {
        let path = ConsoleFrame.target(request)
        guard request.method != .get else {
            self.init(path)
            return
        }
        let parts = path.split(separator: "/")
        self.init(
            parts.count >= 3 && ["tickets", "users"].contains(parts[1]) ? "/console/\(parts[1])/\(parts[2])" : nil
        )
    }

    /// With a word in its query.
    func adding(_ word: String) -> String { text + (text.contains("?") ? "&" : "?") + word }

    /// As a value in a query.
    var escaped: String {
        text.addingPercentEncoding(withAllowedCharacters: .alphanumerics.union(CharacterSet(charactersIn: "/-_"))) ?? ""
    }

    private static func isPlain(_ byte: UInt8) -> Bool {
        switch byte {
        case 0x30...0x39, 0x41...0x5A, 0x61...0x7A: true
        default: "/?&=%-_.:,~".utf8.contains(byte)
        }
    }
}
