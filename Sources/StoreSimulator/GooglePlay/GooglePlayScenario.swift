/// What a scenario says of Google Play.
package struct GooglePlayScenario: Sendable, Codable, Hashable {
    /// The app's package name; requests for another are refused with 404.
    package var package = "com.example.app"
    /// How long access tokens live, by the machine's clock.
    package var tokenLifetime = Span(milliseconds: 3_599_000)
    /// How `expires_in` is written.
    package var expiresIn = NumberForm.number
    /// How long a purchase waits for its acknowledgement before it is taken back.
    package var acknowledgeWithin = Span(milliseconds: 3 * TimeText.day)
    package var purchases: [GooglePlayPurchaseScenario] = []

    /// How a number is written.
    package enum NumberForm: String, Sendable, CaseIterable, ScenarioWord {
        case number, text
    }

    /// Makes an empty store.
    package init() {}

    package enum CodingKeys: String, CodingKey, CaseIterable {
        case package, purchases
        case tokenLifetime = "token_lifetime"
        case expiresIn = "expires_in"
        case acknowledgeWithin = "acknowledge_within"
    }

    package init(from decoder: any Decoder) throws {
        let fields = try StrictFields<CodingKeys>(decoder)
        package = try fields.optional(.package) ?? package
        tokenLifetime = try fields.optional(.tokenLifetime) ?? tokenLifetime
        expiresIn = try fields.optional(.expiresIn) ?? .number
        acknowledgeWithin = try fields.optional(.acknowledgeWithin) ?? acknowledgeWithin
        purchases = try fields.optional(.purchases) ?? []
        for purchase in purchases where purchase.token.isEmpty {
            throw fields.fault(.purchases, "has a purchase without a token; add it")
        }
    }
}
