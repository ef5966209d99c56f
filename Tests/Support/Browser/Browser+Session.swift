import FoundationEssentials
import Glibc
import HTTPTypes

/// A cookie as the browser keeps it, those that scripts cannot see included.
package struct BrowserCookie: Sendable, Hashable, Codable {
    package var name: String
    package var value: String
    /// The host; nil where the page's own is meant.
    package var domain: String?
    package var path: String?
    /// Whether it is sent over connections alone that cannot be listened to; to the browser, loopback is one.
    package var secure: Bool?
    package var httpOnly: Bool?
    /// `Strict`, `Lax` or `None`.
    package var sameSite: String?
    /// When it ends, in seconds since 1970; nil with the browser's own end.
    package var expiry: Int?

    /// Describes a cookie of the page that is open.
    package init(_ name: String, _ value: String) {
        self.name = name
        self.value = value
    }
}

extension Browser {
    /// A cookie that the page's address is sent; nil where there is none of that name.
    package func cookie(_ name: String) async throws -> BrowserCookie? {
        let all: [BrowserCookie] = try await explained("cookies") { try await command(.get, "cookie").decode() }
        return all.first { $0.name == name }
    }

    /// Keeps a cookie; a page of its host has to be open.
    package func setCookie(_ cookie: BrowserCookie) async throws {
        let fields = try PageValue(encoding: cookie)
        try await explained("set cookie \(cookie.name)") {
            _ = try await command(.post, "cookie", ["cookie": fields])
        }
    }

    /// Forgets the cookies of the page's address, as after a long absence.
    package func forgetCookies() async throws {
        try await explained("forget cookies") { _ = try await command(.delete, "cookie") }
    }
}

private struct ConsoleLine: Decodable {
    /// `SEVERE`, `WARNING`, `INFO` or `DEBUG`.
    var level: String
    /// Where it comes from, such as `javascript`, `security` (a violated policy), `network` (a load that failed) or
    /// `console-api`.
    var source: String
    /// The address it is about, and what is wrong.
    var message: String
}

extension Browser {
    /// What went wrong in pages since the console was last asked, a line each: exceptions, violations of the content
    /// security policy, loads that failed.
    ///
    /// The browser counts a page that comes with a status from 400 as a load that failed, although it shows it:
    /// `statuses` are those that the test expects.
    package func consoleErrors(expecting statuses: Int...) async throws -> [String] {
        let lines: [ConsoleLine] = try await explained("console") {
            try await command(.post, "se/log", ["type": "browser"]).decode()
        }
        return lines.filter { line in
            (line.level == "SEVERE" || line.source == "security")
                && !(line.source == "network" && statuses.contains { line.message.contains("status of \($0) ") })
        }.map { "\($0.source): \($0.message)" }
    }
}

extension Browser {
    /// Where screenshots go: what `ENTITLEMENT_SYNC_SCREENSHOTS` names, else `.screenshots` in the package's folder in the full
    /// profile, and nowhere in the bounded one.
    package static var screenshotFolder: String? {
        if let wish = getenv("ENTITLEMENT_SYNC_SCREENSHOTS").map({ String(cString: $0) }), !wish.isEmpty { return wish }
        return Profile.isFull ? Files.packageFolder + "/.screenshots" : nil
    }

    /// Takes a picture of the whole page, however long it is, and replaces an older one of that name.
    package func screenshot(_ name: String) async throws {
        guard let folder = Self.screenshotFolder else { return }
        try await screenshot(to: "\(folder)/\(name).png")
    }

    /// The same, to a file of one's own; its folder is made where it is missing.
    package func screenshot(to path: String) async throws {
        let size = try await devTools("Page.getLayoutMetrics")["cssContentSize"]
        let answer = try await devTools(
            "Page.captureScreenshot",
            [
                "format": "png", "captureBeyondViewport": true,
                "clip": ["x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1],
            ]
        )
        guard let data = Data(base64Encoded: answer["data"].text ?? ""), !data.isEmpty else {
            throw await failure("no screenshot")
        }
        let file = URL(filePath: path)
        try FileManager.default.createDirectory(at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
        try data.write(to: file, options: .atomic)
    }
}
