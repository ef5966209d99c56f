/// What a scenario says of the Firebase project whose users the app knows.
package struct FirebaseScenario: Sendable, Codable, Hashable {
    /// The project's id, not its number.
    package var project = "demo-project"

    /// Makes the usual project.
    package init() {}

    package enum CodingKeys: String, CodingKey, CaseIterable { case project }

    package init(from decoder: any Decoder) throws {
        let fields = try StrictFields<CodingKeys>(decoder)
        project = try fields.optional(.project) ?? project
    }
}

/// What a scenario says of the subscription by which Pub/Sub pushes.
package struct PubSubScenario: Sendable, Codable, Hashable {
    /// The audience of the pushes' tokens.
    package var audience = "https://app.example.com/webhooks/google-play"
    /// In whose name it pushes.
    package var serviceAccount = "pubsub-push@demo-project.iam.gserviceaccount.com"

    /// Makes the usual subscription.
    package init() {}

    package enum CodingKeys: String, CodingKey, CaseIterable {
        case audience
        case serviceAccount = "service_account"
    }

    package init(from decoder: any Decoder) throws {
        let fields = try StrictFields<CodingKeys>(decoder)
        audience = try fields.optional(.audience) ?? audience
        serviceAccount = try fields.optional(.serviceAccount) ?? serviceAccount
    }
}
