/// What a scenario says of the Firebase project whose users the app knows.
struct FirebaseScenario: ScenarioObject, Hashable {
    /// The project's id, not its number.
    var project = "demo-project"

    static let fields: [Field<Self>] = [.value("project", \.project)]
}

/// What a scenario says of the subscription by which Pub/Sub pushes.
struct PubSubScenario: ScenarioObject, Hashable {
    /// The audience of the pushes' tokens.
    var audience = "https://app.example.com/webhooks/google-play"
    /// In whose name it pushes.
    var serviceAccount = "pubsub-push@demo-project.iam.gserviceaccount.com"

    static let fields: [Field<Self>] = [
        .value("audience", \.audience), .value("service_account", \.serviceAccount),
    ]
}
