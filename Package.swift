// swift-tools-version: 6.2
import PackageDescription

/// The settings every target shares: Swift 6, the upcoming features the code is written for, no tolerated warning.
let settings: [SwiftSetting] = [
    .swiftLanguageMode(.v6),
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
    .treatAllWarnings(as: .error),
    // Instants at which tests make the program fail; builds for use have none.
    .define("FAULT_POINTS", .when(configuration: .debug)),
]

let logging = Target.Dependency.product(name: "Logging", package: "swift-log")
let metrics = Target.Dependency.product(name: "Metrics", package: "swift-metrics")
let lifecycle = Target.Dependency.product(name: "ServiceLifecycle", package: "swift-service-lifecycle")
let unixSignals = Target.Dependency.product(name: "UnixSignals", package: "swift-service-lifecycle")
let httpTypes = Target.Dependency.product(name: "HTTPTypes", package: "swift-http-types")
let deque = Target.Dependency.product(name: "DequeModule", package: "swift-collections")
let crypto = Target.Dependency.product(name: "Crypto", package: "swift-crypto")
let cryptoExtras = Target.Dependency.product(name: "CryptoExtras", package: "swift-crypto")
let x509 = Target.Dependency.product(name: "X509", package: "swift-certificates")
let asn1 = Target.Dependency.product(name: "SwiftASN1", package: "swift-asn1")
let yams = Target.Dependency.product(name: "Yams", package: "Yams")
let arguments = Target.Dependency.product(name: "ArgumentParser", package: "swift-argument-parser")
let hummingbird = Target.Dependency.product(name: "Hummingbird", package: "hummingbird")
let hummingbirdCore = Target.Dependency.product(name: "HummingbirdCore", package: "hummingbird")
let nioHTTP1 = Target.Dependency.product(name: "NIOHTTP1", package: "swift-nio")
let nioEmbedded = Target.Dependency.product(name: "NIOEmbedded", package: "swift-nio")
let nioPosix = Target.Dependency.product(name: "NIOPosix", package: "swift-nio")
let nioHTTPTypes = Target.Dependency.product(name: "NIOHTTPTypes", package: "swift-nio-extras")
let metricsTestKit = Target.Dependency.product(name: "MetricsTestKit", package: "swift-metrics")
let mustache = Target.Dependency.product(name: "Mustache", package: "swift-mustache")
let nioCore = Target.Dependency.product(name: "NIOCore", package: "swift-nio")

/// `embedded`: files that `CEmbeddedFiles` puts into the program.
func target(
    _ name: String,
    _ dependencies: [Target.Dependency] = [],
    path: String? = nil,
    embedded: [String] = []
) -> Target {
    .target(name: name, dependencies: dependencies, path: path, exclude: embedded, swiftSettings: settings)
}

func tests(
    _ name: String,
    _ dependencies: [Target.Dependency],
    exclude: [String] = [],
    resources: [Resource] = []
) -> Target {
    .testTarget(
        name: name,
        dependencies: dependencies,
        exclude: exclude,
        resources: resources,
        swiftSettings: settings
    )
}

extension Target.Dependency {
    /// A product of a package that is in the manifest for its version alone: never built, as nothing here is for Windows.
    static func pinned(_ name: String, package: String) -> Target.Dependency {
        .product(name: name, package: package, condition: .when(platforms: [.windows]))
    }
}

let package = Package(
    name: "entitlement-sync",
    platforms: [.macOS(.v15)],
    products: [.executable(name: "entitlement-sync", targets: ["EntitlementSync"])],
    traits: [
        .trait(name: "DevTools", description: "The commands simulate and bench, for development and tests."),
        .default(enabledTraits: ["DevTools"]),
    ],
    dependencies: [
        .package(url: "https://github.com/apple/swift-argument-parser", exact: "1.8.2"),
        .package(url: "https://github.com/apple/swift-asn1", exact: "1.7.4"),
        .package(url: "https://github.com/apple/swift-certificates", exact: "1.21.1"),
        .package(url: "https://github.com/apple/swift-collections", exact: "1.6.0"),
        .package(url: "https://github.com/apple/swift-crypto", exact: "4.5.2"),
        .package(url: "https://github.com/apple/swift-http-types", exact: "1.8.0"),
        .package(url: "https://github.com/apple/swift-log", exact: "1.16.2"),
        .package(url: "https://github.com/apple/swift-metrics", exact: "2.13.0"),
        .package(url: "https://github.com/apple/swift-nio", exact: "2.101.2"),
        .package(url: "https://github.com/apple/swift-nio-extras", exact: "1.35.2"),
        .package(
            url: "https://github.com/hummingbird-project/hummingbird",
            exact: "2.28.1",
            traits: ["FullFoundation"]
        ),
        .package(url: "https://github.com/hummingbird-project/swift-mustache", exact: "2.1.1"),
        .package(url: "https://github.com/jpsim/Yams", exact: "6.2.2"),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle", exact: "2.13.0"),
        // What these need, and no target here: named so that their versions do not float.
        .package(url: "https://github.com/apple/swift-algorithms.git", exact: "1.2.1"),
        .package(url: "https://github.com/apple/swift-async-algorithms.git", exact: "1.1.4"),
        .package(url: "https://github.com/apple/swift-atomics.git", exact: "1.3.0"),
        .package(url: "https://github.com/apple/swift-configuration.git", exact: "1.4.0", traits: []),
        .package(url: "https://github.com/apple/swift-distributed-tracing.git", exact: "1.7.3"),
        .package(url: "https://github.com/apple/swift-http-structured-headers.git", exact: "1.7.0"),
        .package(url: "https://github.com/apple/swift-nio-http2.git", exact: "1.46.0"),
        .package(url: "https://github.com/apple/swift-nio-ssl.git", exact: "2.37.6"),
        .package(url: "https://github.com/apple/swift-nio-transport-services.git", exact: "1.28.0"),
        .package(url: "https://github.com/apple/swift-numerics.git", exact: "1.1.1"),
        .package(url: "https://github.com/apple/swift-service-context.git", exact: "1.5.1"),
        .package(url: "https://github.com/apple/swift-system.git", exact: "1.8.1"),
        .package(url: "https://github.com/swift-server/async-http-client.git", exact: "1.37.0"),
    ],
    targets: [
        .systemLibrary(name: "CLibPQ", pkgConfig: "libpq", providers: [.apt(["libpq-dev"])]),
        .systemLibrary(name: "CLibCurl", pkgConfig: "libcurl", providers: [.apt(["libcurl4-openssl-dev"])]),
        .systemLibrary(name: "CLinux"),
        .target(name: "CEmbeddedFiles"),
        target("Entitlements"),
        target("Reports"),
        target("Schedules"),
        target("FaultPoints"),
        target("Postgres", ["CLibPQ", "CLinux", logging, metrics]),
        target("Transport", ["CLibCurl", "CLinux", "Telemetry", httpTypes, logging, metrics]),
        target("TextFormats", ["CEmbeddedFiles", "Entitlements"]),
        target(
            "SignedTokens",
            [
                "Entitlements", "Telemetry", "TextFormats", "Transport", httpTypes, logging, crypto, cryptoExtras, x509,
                asn1,
            ]
        ),
        target(
            "StoreClients",
            [
                "Entitlements", "SignedTokens", "Telemetry", "TextFormats", "Transport", httpTypes, logging, metrics,
                crypto, cryptoExtras, x509, asn1,
            ]
        ),
        target("Queue", ["Entitlements", "Postgres", lifecycle, logging, metrics]),
        target("Ledger", ["Entitlements", "Postgres", "Queue", logging]),
        target("RateLimits", ["Entitlements", "Postgres", "Queue", "StoreClients", lifecycle, logging]),
        target(
            "Outbox",
            [
                "Entitlements", "Postgres", "Queue", "StoreClients", "TextFormats", "Transport", crypto, httpTypes,
                lifecycle, logging, metrics,
            ]
        ),
        target(
            "StoreEvents",
            [
                "Entitlements", "Postgres", "Queue", "SignedTokens", "StoreClients", "TextFormats", "Transport", crypto,
                httpTypes, lifecycle, logging, metrics,
            ]
        ),
        target("UserRequests", ["Entitlements", "Postgres", "Queue"]),
        target(
            "Reconciliation",
            [
                "Entitlements", "Ledger", "Outbox", "Postgres", "Queue", "RateLimits", "SignedTokens", "StoreClients",
                "StoreEvents", "Telemetry", "TextFormats", "UserRequests", crypto, lifecycle, logging, metrics,
            ]
        ),
        target(
            "Runs",
            [
                "Entitlements", "Ledger", "Postgres", "Queue", "RateLimits", "Reconciliation", "Schedules", crypto,
                lifecycle, logging, metrics,
            ]
        ),
        target(
            "Diagnostics",
            ["Entitlements", "Ledger", "Postgres", "Queue", "RateLimits", "Reconciliation", "Runs", logging, metrics]
        ),
        target(
            "SupportDesk",
            [
                "Entitlements", "FaultPoints", "Ledger", "Postgres", "Queue", "Reconciliation", "Runs", "StoreClients",
                "TextFormats", crypto, cryptoExtras, lifecycle, logging,
            ],
            embedded: ["Replies/replies.json", "SignIn/common-passwords.txt"]
        ),
        target("Configuring", ["Entitlements", "Telemetry", logging, yams]),
        target("Telemetry", [logging, metrics]),
        target(
            "HTTPServing",
            ["Telemetry", hummingbird, hummingbirdCore, httpTypes, lifecycle, logging, metrics, nioCore, nioHTTPTypes]
        ),
        target(
            "SupportConsole",
            [
                "Entitlements", "HTTPServing", "Postgres", "Runs", "SignedTokens", "SupportDesk", "Telemetry",
                "TextFormats", hummingbird,
                httpTypes, lifecycle, logging, mustache, nioCore, crypto,
            ],
            embedded: ["Assets", "Templates"]
        ),
        target("Migrations", ["Postgres", "TextFormats", crypto]),
        target(
            "StoreSimulator",
            [
                hummingbird, hummingbirdCore, logging, nioCore, nioHTTP1, nioPosix, yams, crypto, cryptoExtras, x509,
                asn1,
            ]
        ),
        target(
            "WebAPI",
            [
                "Entitlements", "HTTPServing", "Postgres", "SignedTokens", "StoreEvents", "Telemetry", "TextFormats",
                "UserRequests", hummingbird, httpTypes, lifecycle, logging, metrics, deque, nioCore, nioHTTP1, crypto,
            ],
            embedded: ["Messages/messages.json", "OpenAPI/openapi.json"]
        ),
        target(
            "Composition",
            [
                "Configuring", "Diagnostics", "Entitlements", "FaultPoints", "HTTPServing", "Ledger", "Migrations",
                "Outbox", "Postgres", "Queue", "RateLimits", "Reconciliation", "Reports", "Runs", "SignedTokens",
                "StoreClients", "StoreEvents", "SupportConsole", "SupportDesk", "Telemetry", "Transport",
                "UserRequests", "WebAPI", arguments, hummingbird, lifecycle, logging, metrics, unixSignals, x509,
            ]
        ),
        target(
            "DevTools",
            [
                "Composition", "Configuring", "Diagnostics", "Entitlements", "HTTPServing", "Ledger", "Migrations",
                "Postgres", "Queue", "RateLimits", "Reconciliation", "Runs", "StoreClients",
                "StoreSimulator", "SupportDesk", "Telemetry", "TextFormats", "Transport", "UserRequests",
                arguments, crypto, httpTypes, lifecycle, logging, nioCore, nioPosix, unixSignals, x509,
            ]
        ),
        .executableTarget(
            name: "EntitlementSync",
            dependencies: [
                .target(name: "DevTools", condition: .when(traits: ["DevTools"])),
                "Composition", "Configuring", "Diagnostics", "Entitlements", "Migrations", "Outbox", "Postgres",
                "Queue", "Reconciliation", "Reports", "Runs", "Schedules", "SignedTokens", "StoreClients",
                "SupportDesk", "Telemetry", "TextFormats", "UserRequests", "WebAPI", arguments, logging,
            ],
            swiftSettings: settings
        ),
        target(
            "TestSupport",
            ["Entitlements", "Migrations", "Postgres", "Transport", httpTypes, logging],
            path: "Tests/Support"
        ),
        target(
            "PinnedPackages",
            [
                .pinned("Algorithms", package: "swift-algorithms"),
                .pinned("Atomics", package: "swift-atomics"),
                .pinned("Configuration", package: "swift-configuration"),
                .pinned("Instrumentation", package: "swift-distributed-tracing"),
                .pinned("StructuredFieldValues", package: "swift-http-structured-headers"),
                .pinned("NIOHTTP2", package: "swift-nio-http2"),
                .pinned("NIOTransportServices", package: "swift-nio-transport-services"),
                .pinned("RealModule", package: "swift-numerics"),
                .pinned("ServiceContextModule", package: "swift-service-context"),
                .pinned("SystemPackage", package: "swift-system"),
            ]
        ),
        tests("EntitlementsTests", ["Entitlements", "TestSupport"]),
        tests("TextFormatsTests", ["Entitlements", "TextFormats"]),
        tests("QueueTests", ["Queue", "TestSupport", lifecycle, logging]),
        tests("RateLimitsTests", ["RateLimits"]),
        tests("OutboxTests", ["Outbox", "Transport", httpTypes]),
        tests("ReconciliationTests", ["Entitlements", "Queue", "RateLimits", "Reconciliation", "TestSupport"]),
        tests("RunsTests", ["Runs"]),
        tests("MigrationsTests", ["Migrations", "TestSupport"]),
        tests("HTTPServingTests", ["HTTPServing", nioCore]),
        tests("CompositionTests", ["Composition", "Diagnostics", "Entitlements", "Runs"]),
        tests("ReportsTests", ["Reports", "TestSupport"]),
        tests("SchedulesTests", ["Schedules"]),
        tests("PostgresTests", ["Postgres", "TestSupport", logging]),
        tests("TransportTests", ["CLibCurl", "TestSupport", "Transport", httpTypes, logging, metrics, metricsTestKit]),
        tests(
            "SignedTokensTests",
            [
                "Entitlements", "SignedTokens", "StoreEvents", "TestSupport", "TextFormats", "Transport", httpTypes,
                logging, crypto, cryptoExtras,
            ]
        ),
        tests(
            "StoreClientsTests",
            [
                "Entitlements", "SignedTokens", "StoreClients", "StoreSimulator", "Telemetry", "TestSupport",
                "TextFormats", "Transport", httpTypes, logging, metrics, metricsTestKit, crypto, cryptoExtras, x509,
                asn1,
            ]
        ),
        tests(
            "StoreEventsTests",
            [
                "Entitlements", "SignedTokens", "StoreClients", "StoreEvents", "StoreSimulator", "TestSupport",
                httpTypes, logging, crypto,
            ]
        ),
        tests(
            "StoreSimulatorTests",
            [
                "StoreSimulator", httpTypes, logging, nioCore, nioPosix, crypto,
                cryptoExtras, x509, asn1,
            ]
        ),
        tests(
            "SystemTests",
            [
                "Composition", "Configuring", "DevTools", "Diagnostics", "Entitlements", "Migrations", "Outbox",
                "Postgres", "Queue", "RateLimits", "Reconciliation", "Runs", "StoreClients", "StoreEvents",
                "StoreSimulator", "SupportDesk", "TestSupport", "Transport", "UserRequests", crypto,
                httpTypes, lifecycle, logging, x509, asn1,
            ]
        ),
        tests(
            "HistoryTests",
            [
                "Diagnostics", "Entitlements", "Migrations", "Postgres", "Queue", "Reconciliation", "Runs",
                "SupportDesk", "TestSupport", "UserRequests", logging,
            ]
        ),
        tests(
            "WebAPITests",
            [
                "Entitlements", "HTTPServing", "Postgres", "SignedTokens", "StoreClients", "TestSupport", "TextFormats",
                "Transport", "UserRequests", "WebAPI", hummingbird, httpTypes, logging, nioCore, nioEmbedded, nioPosix,
            ]
        ),
        tests(
            "ProcessTests",
            [
                "DevTools", "Diagnostics", "Entitlements", "Postgres", "StoreSimulator", "SupportDesk", "Telemetry",
                "TestSupport", "Transport", x509,
                httpTypes, logging, crypto,
            ],
            exclude: ["Fixtures"]
        ),
        tests("SupportDeskTests", ["Entitlements", "SupportDesk"]),
        tests("TelemetryTests", ["Telemetry", logging, metrics]),
        tests("ConfiguringTests", ["Configuring", "Entitlements", "Telemetry", logging]),
    ],
    cLanguageStandard: .c2x
)
