import FoundationEssentials
import Glibc

extension Browser {
    /// Where screenshots go: what `ENTITLEMENT_SYNC_SCREENSHOTS` names, else `.screenshots` in the package's folder.
    package static var screenshotFolder: String {
        if let wish = getenv("ENTITLEMENT_SYNC_SCREENSHOTS").map({ String(cString: $0) }), !wish.isEmpty { return wish }
        return Files.packageFolder + "/.screenshots"
    }

    /// Takes a picture of the whole page, however long it is.
    ///
    /// - Parameter name: the file's name without its ending; an older picture of that name is replaced.
    /// - Returns: the file's path.
    /// - Throws: `BrowserFailure`, or the system's reason why nothing can be written.
    @discardableResult
    package func screenshot(_ name: String) async throws -> String {
        let path = "\(Self.screenshotFolder)/\(name).png"
        try await screenshot(to: path)
        return path
    }

    /// The same, to a file of one's own; its folder is made where it is missing.
    package func screenshot(to path: String) async throws {
        let size = try await tell("Page.getLayoutMetrics")["cssContentSize"]
        let answer = try await tell(
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
        try FileManager.default.createDirectory(
            at: file.deletingLastPathComponent(),
            withIntermediateDirectories: true
        )
        try data.write(to: file, options: .atomic)
    }
}
