import Foundation
import TestSupport
import Testing

/// The clients that are shipped for apps, as an app that is started for each call.
enum AppClient: String, CaseIterable, Sendable {
    case swift
    case typescript
    case kotlin

    /// Those that are run through everything: a Java machine that starts for each call takes long.
    static let run: [AppClient] = Profile.isFull ? allCases : [.swift, .typescript]
    /// Those that are run where the clients differ in little.
    static let few: [AppClient] = Profile.cases([.typescript, .swift, .kotlin])

    /// A line that an app says of what it shows.
    struct Line: Decodable, Hashable, Sendable {
        var step: String?
        var ending: String?
        var outcome: String?
        var key: String?
        var message: String?
        var reference: String?
        var products: [String?]?
        var seconds: Double?
        var failure: String?
        /// Of an entitlement; or of a problem.
        var type: String?
        var isFromDisk: Bool?
        var state: String?
        var question: String?
        var field: String?

        enum CodingKeys: String, CodingKey {
            case step, ending, outcome, key, message, reference, products, seconds, failure, type, state, question,
                field
            case isFromDisk = "from_disk"
        }
    }

    // MARK: Building

    private static let builds: [AppClient: Task<String, any Error>] = Dictionary(
        uniqueKeysWithValues: run.map { client in (client, Task { try await client.build() }) }
    )

    /// What is started: a program, a module that node is given, or a class path.
    var product: String { get async throws { try await Self.builds[self]?.value ?? "" } }

    private var sources: [String] {
        switch self {
        case .swift: [Self.folder + "/swift/Sources/EntitlementClient.swift", Self.apps + "/main.swift"]
        case .typescript:
            [Self.folder + "/typescript/entitlement-client.ts", Self.folder + "/typescript/tsconfig.json"]
        case .kotlin: [Self.folder + "/kotlin/EntitlementClient.kt", Self.apps + "/main.kt"]
        }
    }

    private static let folder = Paths.folder + "/deploy/clients"
    private static let apps = Paths.fixtures + "/clients"

    /// Compiles the client once for what its sources say; beside what the package builds, where later runs find it.
    private func build() async throws -> String {
        var hash: UInt64 = 0xcbf2_9ce4_8422_2325
        for byte in try sources.map(Paths.text).joined().utf8 { hash = (hash ^ UInt64(byte)) &* 0x100_0000_01b3 }
        let place = Paths.folder + "/.build/clients/\(rawValue)-\(String(hash, radix: 16))"
        let kept = place + "/product"
        if let product = try? Paths.text(kept) { return product }
        // Moved to its place as a whole: other runs may build at the same time.
        let work = place + "-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: work, withIntermediateDirectories: true)
        let ending = try await Program(["/usr/bin/env"] + command(in: work), environment: Site.environment([:]))
            .ending(within: .seconds(300))
        try #require(ending.code == 0, "the \(rawValue) client does not compile: \(ending)")
        let product =
            switch self {
            case .swift: place + "/app"
            case .typescript: place + "/entitlement-client.js"
            case .kotlin: ending.out.trimmingCharacters(in: .newlines).replacing(work, with: place)
            }
        // By this node reads it as a module.
        try #"{"type": "module"}"#.write(toFile: work + "/package.json", atomically: true, encoding: .utf8)
        try product.write(toFile: work + "/product", atomically: true, encoding: .utf8)
        if rename(work, place) != 0 { try FileManager.default.removeItem(atPath: work) }
        return product
    }

    private func command(in work: String) -> [String] {
        switch self {
        case .swift:
            ["swiftc", "-swift-version", "6", "-warnings-as-errors", "-module-name", "App"]
                + ["-module-cache-path", work + "/modules", "-o", work + "/app"] + sources
        case .typescript: ["tsc", "-p", Self.folder + "/typescript", "--outDir", work]
        case .kotlin:
            ["python3", Paths.folder + "/Tests/Checks/check_clients.py", "--kotlin", work, Self.apps + "/main.kt"]
        }
    }

    // MARK: Calling

    /// A device with the app, signed in as a user.
    struct Device: Sendable {
        let client: AppClient
        var api: String
        var user: String
        var token: String
        var freshToken = ""
        /// Where the app keeps the last answer.
        var file: String
        /// Seconds that its clock is ahead.
        var clock = 0.0
        /// The share of each pause that is waited.
        var pause = 0.5
        /// The share by which each pause is longer; the client's own by default.
        var jitter: Double?

        /// Starts a call.
        func start(_ arguments: String...) async throws -> Program { try await start(arguments) }

        func start(_ arguments: [String]) async throws -> Program {
            let product = try await client.product
            let command =
                switch client {
                case .swift: [product]
                case .typescript: ["/usr/bin/env", "node", AppClient.apps + "/main.mjs"]
                case .kotlin:
                    ["/usr/bin/env", "java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", product, "MainKt"]
                }
            var environment = [
                "API": api, "USER_ID": user, "TOKEN": token, "FRESH_TOKEN": freshToken, "FILE": file,
                "CLOCK": "\(clock)", "PAUSE": "\(pause)", "CLIENT": product,
            ]
            environment["JITTER"] = jitter.map { "\($0)" }
            return try await Program(command + arguments, environment: Site.environment(environment))
        }

        /// Calls to the end.
        ///
        /// - Returns: what was said, in order.
        func call(_ arguments: [String]) async throws -> [Line] {
            try await Self.end(of: try await start(arguments))
        }

        /// Calls to the end.
        ///
        /// - Returns: what was said last.
        func last(_ arguments: String...) async throws -> Line {
            try #require(try await Self.end(of: try await start(arguments)).last)
        }

        static func end(of program: Program) async throws -> [Line] {
            let ending = try await program.ending()
            try #require(ending.code == 0, "\(ending)")
            return try lines(ending.out)
        }

        /// What an app has said so far.
        static func lines(_ out: String) throws -> [Line] {
            // The last line may be half written.
            try out.split(separator: "\n").dropLast(out.hasSuffix("\n") ? 0 : 1)
                .map { try JSONDecoder().decode(Line.self, from: Data($0.utf8)) }
        }

        /// The same device with a clock that is ahead, or behind.
        func ahead(_ seconds: Double) -> Device {
            var other = self
            other.clock = seconds
            return other
        }
    }

    /// A user's device before an endpoint.
    func device(_ user: String, at endpoint: Endpoint, of endpoints: EndpointSite) async throws -> Device {
        Device(
            client: self,
            api: "http://127.0.0.1:\(endpoint.port)/v1",
            user: user,
            token: try await endpoints.token(#"{"sub": "\#(user)"}"#),
            file: "\(endpoints.files)/\(rawValue)-\(user).json"
        )
    }
}

extension EndpointSite {
    /// The proofs of a device that shows a signed transaction of the App Store, as JSON.
    func proofs(of transaction: String) throws -> String {
        let body = try showing(transaction: transaction)
        let start = try #require(body.firstIndex(of: "["))
        return String(body[start...].dropLast())
    }

    /// The signed transaction alone.
    func proof(of transaction: String) throws -> String {
        struct Proof: Decodable { var value: String }
        let proofs = try JSONDecoder().decode([Proof].self, from: Data(try proofs(of: transaction).utf8))
        return try #require(proofs.first).value
    }
}
