extension IdentitySimulation {
    mutating func control(_ request: StoreRequest, _ path: Substring, nowMs: Int64) throws -> Reply? {
        switch (request.method, path) {
        case ("POST", "firebase-token"): return Self.show(try firebaseToken(request.decoded(), nowMs: nowMs))
        case ("POST", "push-token"): return Self.show(try pushToken(request.decoded(), nowMs: nowMs))
        case ("POST", "rotate"):
            let rotation: KeyRotation = try request.decoded()
            rotate(publishing: rotation.published)
        case ("PUT", "max-age"):
            let change: MaxAgeChange = try request.decoded()
            maxAgeSeconds = change.seconds
        default: return controlAccounts(request, path)
        }
        return .done
    }

    private static func show(_ token: String) -> Reply {
        .object { $0.member("token", token) }
    }
}

/// The body of `POST /control/identity/rotate`.
private struct KeyRotation: ScenarioObject {
    var published = PublishedKeys.both

    static let fields: [ScenarioField<Self>] = [.value("published", \.published)]
}

/// The body of `PUT /control/identity/max-age`.
private struct MaxAgeChange: ScenarioObject {
    var seconds: Int?

    static let fields: [ScenarioField<Self>] = [.optional("seconds", \.seconds, in: 0...31_536_000)]
}

extension StoreSimulator {
    /// An ID token that says what is asked for, without HTTP.
    package func firebaseToken(_ request: FirebaseTokenRequest) throws -> String {
        try simulation.withState { try $0.identity.firebaseToken(request, nowMs: $0.clock.nowMs) }
    }
}
