/// What a scenario says of Google Play.
struct GooglePlayScenario: ScenarioObject, Hashable {
    /// The app's package name; requests for another are refused with 404.
    var package = "com.example.app"
    /// How long access tokens live, by the machine's clock.
    var tokenLifetime = Span(milliseconds: 3_599_000)
    /// How `expires_in` is written.
    var expiresIn = NumberForm.number
    /// How long a purchase waits for its acknowledgement before it is taken back.
    var acknowledgeWithin = Span(milliseconds: 3 * TimeText.day)
    var purchases: [GooglePlayPurchaseScenario] = []

    /// How a number is written.
    enum NumberForm: String, ScenarioWord {
        case number, text
    }

    static let fields: [ScenarioField<Self>] = [
        .value("package", \.package), .value("token_lifetime", \.tokenLifetime), .value("expires_in", \.expiresIn),
        .value("acknowledge_within", \.acknowledgeWithin), .value("purchases", \.purchases),
    ]

    func check() throws {
        guard purchases.allSatisfy({ !$0.token.isEmpty }) else {
            throw FieldFault(message: "has a purchase without a token; add it", at: "purchases")
        }
    }
}
