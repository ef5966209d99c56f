// swift-tools-version: 6.0
import PackageDescription

let package = Package(
    name: "entitlement-client",
    platforms: [.iOS(.v16), .macOS(.v13), .tvOS(.v16), .watchOS(.v9), .visionOS(.v1)],
    products: [.library(name: "EntitlementClient", targets: ["EntitlementClient"])],
    targets: [.target(name: "EntitlementClient", path: "Sources")]
)
