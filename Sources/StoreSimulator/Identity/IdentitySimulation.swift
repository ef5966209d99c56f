/// The state of the identity providers: Firebase for users, Google for the accounts in whose name Pub/Sub pushes.
struct IdentitySimulation: SimulatedStore {
    static let endpoints = ["identity.firebase_keys", "identity.oauth_keys", "identity.lookup", "identity.update"]

    static let guide = """
        IDENTITY PROVIDERS (firebase: and pubsub: in a scenario)

        Google's keys: use http://HOST:PORT/google-keys/firebase as FIREBASE_KEYS_URL, which verifies ID tokens, and
        http://HOST:PORT/google-keys/oauth as GOOGLE_KEYS_URL, which verifies the tokens of pushes. The keys are new
        in each process.

          firebase: {project: demo-project}
          pubsub:
            audience: https://app.example.com/webhooks/google-play
            service_account: pubsub-push@demo-project.iam.gserviceaccount.com

        Custom claims: set FIREBASE_BASE_URL to http://HOST:PORT/identity-toolkit, and FIREBASE_SERVICE_ACCOUNT_FILE to
        the key file of Google Play's service account. Every id is an account's.

        Endpoints: identity.firebase_keys identity.oauth_keys identity.lookup identity.update

          POST   /control/identity/firebase-token   {"sub": "user-1"}: the user's ID token, as {"token": "..."}; further
                                                    members: project aud iss iat exp auth_time provider tenant
          POST   /control/identity/push-token       {}: the token of a push; members: audience email email_verified iss
                                                    iat exp
          POST   /control/identity/rotate           {"published": "both"}: the next keys sign from now on; new, old: the
                                                    sets show them alone, or those before them alone
          PUT    /control/identity/claims/ID        {"admin": true}: custom claims as another program would set them;
                                                    GET shows them, DELETE takes the account away
          PUT    /control/identity/max-age          {"seconds": 300}: how long the sets may be kept; {}: they don't say

        Members of both tokens that make them wrong: kid (a name that no key has; "": none; that of an earlier or later
          key, such as firebase-key-1 or oauth-key-2, makes it sign), alg (RS256; none; HS256: with the public key as
          the secret), tampered (true: a byte of the signature is altered).
        iat, exp and auth_time are Unix seconds; left out, the token is of the simulated time and lives for an hour.
        """

    let firebase: FirebaseScenario
    private let pubSub: PubSubScenario
    /// The keys of Google's two sets, which rotate together: for Firebase's ID tokens, and for Google's own accounts.
    private var firebaseKeys = RotatingKeys("firebase")
    private var oauthKeys = RotatingKeys("oauth")
    /// For how many seconds the sets may be kept; `nil`: they don't say.
    var maxAgeSeconds: Int? = 21_600
    var accounts = FirebaseAccountBook()
    /// Whether the request's access token is good for accounts.
    var isLetIn = false

    init(_ firebase: FirebaseScenario, _ pubSub: PubSubScenario) {
        self.firebase = firebase
        self.pubSub = pubSub
    }

    func firebaseToken(_ request: FirebaseTokenRequest, nowMs: Int64) throws -> String {
        try firebaseKeys.sign(request.claims(usualProject: firebase.project, nowMs: nowMs), request.signing)
    }

    func pushToken(_ request: PushTokenRequest, nowMs: Int64) throws -> String {
        try oauthKeys.sign(request.claims(usual: pubSub, nowMs: nowMs), request.signing)
    }

    mutating func rotate(publishing keys: PublishedKeys) {
        firebaseKeys.rotate(publishing: keys)
        oauthKeys.rotate(publishing: keys)
    }

    func route(_ request: StoreRequest) -> StoreRoute? {
        let endpoint: String
        switch request.path {
        case "/google-keys/firebase": endpoint = "identity.firebase_keys"
        case "/google-keys/oauth": endpoint = "identity.oauth_keys"
        default: return accountRoute(request)
        }
        return StoreRoute(endpoint: endpoint, template: "\(request.method) \(request.path)")
    }

    mutating func answer(_ request: StoreRequest, route: StoreRoute, nowMs: Int64) -> Reply {
        if !route.endpoint.hasSuffix("_keys") { return answerAccounts(request, route.endpoint) }
        guard request.method == "GET" else { return Self.failure(405, "method not allowed") }
        guard let set = try? (route.endpoint == "identity.firebase_keys" ? firebaseKeys : oauthKeys).set() else {
            return Self.failure(500, "no keys")
        }
        var reply = Reply(status: 200, body: set)
        if let maxAgeSeconds {
            reply.headers.append(("Cache-Control", "public, max-age=\(maxAgeSeconds), must-revalidate"))
        }
        return reply
    }

    func failure(status: Int, effect: FaultRule, nowMs: Int64) -> Reply {
        Self.failure(status, "injected").waiting(effect.backoffMs)
    }

    static func failure(_ status: Int, _ message: String) -> Reply {
        .object(status) { json in
            json.object("error") { json in
                json.member("code", status)
                json.member("message", message)
            }
        }
    }
}

/// What a scenario says of the Firebase project whose users the app knows.
struct FirebaseScenario: ScenarioObject, Hashable {
    /// The project's id, not its number.
    var project = "demo-project"

    static let fields: [ScenarioField<Self>] = [.value("project", \.project)]
}

/// What a scenario says of the subscription by which Pub/Sub pushes.
struct PubSubScenario: ScenarioObject, Hashable {
    /// The audience of the pushes' tokens.
    var audience = "https://app.example.com/webhooks/google-play"
    /// In whose name it pushes.
    var serviceAccount = "pubsub-push@demo-project.iam.gserviceaccount.com"

    static let fields: [ScenarioField<Self>] = [
        .value("audience", \.audience), .value("service_account", \.serviceAccount),
    ]
}
