import Crypto
import Foundation
import HTTPServing
import HTTPTypes
import Hummingbird
import TextFormats

/// What pages load beside themselves: under a name that changes with what it holds, so that browsers may keep it.
struct Assets: Sendable {
    static let style = Asset("console.css", "text/css; charset=utf-8")
    static let script = Asset("console.js", "text/javascript; charset=utf-8")

    struct Asset: Sendable {
        let name: String
        let type: String
        let bytes: [UInt8]
        /// The first digits of its hash.
        let version: String

        fileprivate init(_ name: String, _ type: String) {
            self.name = name
            self.type = type
            bytes = EmbeddedFiles.content("SupportConsole/Assets/\(name)")
            version = Hex.encode(SHA256.hash(data: bytes).prefix(6))
        }

        var path: String { "/console/assets/\(version)/\(name)" }
    }
}

/// Serves them to everybody: they hold nothing.
struct AssetRoutes {
    func add(to routes: RouterGroup<AdminContext>) {
        for asset in [Assets.style, Assets.script] {
            routes.get("assets/:version/\(asset.name)") { _, _ in
                Response(
                    status: .ok,
                    headers: [.contentType: asset.type, .cacheControl: "public, max-age=31536000, immutable"],
                    body: .init(byteBuffer: .init(bytes: asset.bytes))
                )
            }
        }
    }
}
