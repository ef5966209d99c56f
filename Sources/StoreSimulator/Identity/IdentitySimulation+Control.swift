extension IdentitySimulation {
    mutating func control(
        _ request: StoreRequest,
        _ path: Substring,
        _ query: Substring,
        nowMs: Int64
    ) throws -> Reply? {
        switch (request.method, path.dropFirst("/control/identity/".count)) {
        case ("POST", "firebase-token"): return Self.show(try firebaseToken(request.decoded(), nowMs: nowMs))
        case ("POST", "push-token"): return Self.show(try pushToken(request.decoded(), nowMs: nowMs))
        case ("POST", "rotate"):
            let rotation: KeyRotation = try request.decoded()
            keys.rotate(publishing: rotation.published)
        case ("PUT", "max-age"):
            let change: MaxAgeChange = try request.decoded()
            maxAgeSeconds = change.seconds
        default: return nil
        }
        return Reply(status: 200, body: Array("{}".utf8))
    }

    private static func show(_ token: String) -> Reply {
        var json = JSONBytes()
        json.beginObject()
        json.key("token")
        json.value(token)
        json.endObject()
        return Reply(status: 200, body: json.bytes)
    }
}

/// The body of `POST /control/identity/rotate`.
private struct KeyRotation: Decodable {
    var published: PublishedKeys

    enum CodingKeys: String, CodingKey, CaseIterable { case published }

    init(from decoder: any Decoder) throws {
        published = try StrictFields<CodingKeys>(decoder).optional(.published) ?? .both
    }
}

/// The body of `PUT /control/identity/max-age`.
private struct MaxAgeChange: Decodable {
    var seconds: Int?

    enum CodingKeys: String, CodingKey, CaseIterable { case seconds }

    init(from decoder: any Decoder) throws {
        seconds = try StrictFields<CodingKeys>(decoder).integer(.seconds, in: 0...31_536_000)
    }
}

// The control endpoint without HTTP, for tests in the same process.
extension StoreSimulator {
    /// The usual ID token of a user.
    ///
    /// - Parameters:
    ///   - user: the user's id.
    ///   - project: the Firebase project; the scenario's by default.
    /// - Returns: a compact JWS of the simulated time.
    /// - Throws: what the cryptography library does.
    package func firebaseToken(of user: String, project: String? = nil) throws -> String {
        var request = FirebaseTokenRequest(subject: user)
        request.project = project
        return try firebaseToken(request)
    }

    /// An ID token that says what is asked for.
    ///
    /// - Throws: what the cryptography library does.
    package func firebaseToken(_ request: FirebaseTokenRequest) throws -> String {
        try simulation.withState { try $0.identity.firebaseToken(request, nowMs: $0.clock.nowMs) }
    }

    /// The usual token of a push.
    ///
    /// - Parameters:
    ///   - audience: the token's; the scenario's by default.
    ///   - email: in whose name; the scenario's service account by default.
    /// - Returns: a compact JWS of the simulated time.
    /// - Throws: what the cryptography library does.
    package func pushToken(audience: String? = nil, email: String? = nil) throws -> String {
        try pushToken(PushTokenRequest(audience: audience, email: email))
    }

    /// A push's token that says what is asked for.
    ///
    /// - Throws: what the cryptography library does.
    package func pushToken(_ request: PushTokenRequest) throws -> String {
        try simulation.withState { try $0.identity.pushToken(request, nowMs: $0.clock.nowMs) }
    }

    /// Lets the next of Google's keys sign, and changes which keys the sets show.
    package func rotateGoogleKeys(publishing keys: PublishedKeys = .both) {
        simulation.withState { $0.identity.keys.rotate(publishing: keys) }
    }

    /// Changes for how many seconds Google's key sets may be kept; `nil`: they don't say.
    package func setGoogleKeysMaxAge(seconds: Int?) {
        simulation.withState { $0.identity.maxAgeSeconds = seconds }
    }
}
