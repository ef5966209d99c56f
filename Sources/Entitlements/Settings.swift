/// How much of what is decided may be written.
package enum Mode: String, Sendable, CaseIterable {
    case full
    case promoteOnly = "promote_only"
    case observe
}

/// Whose sandbox purchases count.
package enum SandboxRule: String, Sendable, CaseIterable {
    /// No user's, listed or not.
    case off
    /// Those of users on the list, until the end that stands there.
    case listed
}

/// What verdicts are measured by; read at each verdict, so that a change holds at once.
package struct DecisionSettings: Hashable, Sendable {
    package var mode: Mode
    /// `pause demotions` is in force.
    package var demotionsPaused = false
    /// How far apart two absences lie at least, and how long after a period's end no user is demoted for silence.
    package var absenceMargin = Duration.seconds(86_400)
    /// The same for Google Play, which may defer a charge by a day.
    package var absenceMarginGooglePlay = Duration.seconds(172_800)
    /// How long a known user may stay unread; `nil`: for as long as nothing is expected.
    package var backgroundCheck: Duration? = .seconds(30 * 86_400)
    /// Workers put it on record, where every reader of the list finds it.
    package var sandbox = SandboxRule.listed

    package func margin(of store: String) -> Duration {
        store == "play_store" || store == "google_play" ? absenceMarginGooglePlay : absenceMargin
    }
}

extension DecisionSettings {
    // Beside the memberwise one, which other targets do not see.
    package init() { self.init(mode: .full) }
}

/// How many unannounced demotions a rolling day allows: a share of the subscribers, at least a minimum.
package struct DemotionBrake: Hashable, Sendable {
    package var percent: Double
    package var minimum: Int

    package init(percent: Double, minimum: Int) {
        self.percent = percent
        self.minimum = minimum
    }

    /// How many unannounced demotions a rolling day allows for so many subscribers.
    package func limit(subscribers: Int64) -> Int {
        max(minimum, Int(Double(max(subscribers, 0)) * percent / 100))
    }
}
