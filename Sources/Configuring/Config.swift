package import Entitlements
package import Logging
package import Telemetry

/// Every setting of the program: read once at start-up, checked as a whole, never changed.
///
/// Descriptions are safe to log: whatever is secret is a ``Secret``.
package struct Config: Sendable {
    package var database: Database
    /// How much of what is decided may be written, and the margins before an absence counts.
    package var decision: DecisionSettings
    package var brake: DemotionBrake
    package var retry: RetryPolicy
    package var worker: Worker
    package var reserves: Reserves
    /// One for each project; empty: RevenueCat is off.
    package var revenueCat: [RevenueCatSettings]
    package var appStore: AppStoreSettings
    /// The stores whose apps STORE_APPS lists.
    package var listedStores: Set<Store>
    /// One for each package; empty: Google Play is off.
    package var googlePlay: [GooglePlaySettings]
    /// `nil`: Onside is off.
    package var onside: OnsideSettings?
    package var accounts: AccountSettings
    /// How transfers by support are decided.
    package var desk: DeskSettings
    /// Where the API listens.
    package var http: ListenAddress
    package var api: APIConfig
    package var admin: Admin
    package var console: ConsoleConfig
    /// Where webhooks go; `nil`: none are sent.
    package var outbox: Outbox?
    /// Whose custom claims at Firebase say what access they have; `nil`: no one's.
    package var firebaseClaims: FirebaseClaimsSettings?
    package var retention: Retention
    /// Where people find support: an https or `mailto:` address.
    package var supportContactURL: String?
    package var log: Log
    /// The directory that holds the schema's SQL and the host adapter; `nil`: beside the executable.
    package var sqlDirectory: String?

    /// How PostgreSQL is reached.
    package struct Database: Sendable {
        /// A libpq connection string or URI; `nil`: libpq's own `PG*` variables and defaults.
        package var url: Secret?
        /// A way past the transaction pooler that `url` leads through; `nil`: there is no pooler.
        package var directURL: Secret?
        /// The way in for the support desk's pages; `nil`: they take `url`.
        package var consoleURL: Secret?
        /// Where reports are read, such as a standby; `nil`: they take `url`, the console's `consoleURL`.
        package var reportURL: Secret?

        /// For LISTEN and migrations, which need a session of their own.
        package var sessionURL: Secret? { directURL ?? url }
        /// Whether `url` leads through a transaction pooler, so that no state may be kept in a session.
        package var isPooled: Bool { directURL != nil }
    }

    /// How much one worker takes on at a time.
    package struct Worker: Hashable, Sendable {
        /// Jobs in progress at once; 1 to 4096.
        package var concurrency: Int
        /// Jobs claimed or written by one statement; 1 to 2000.
        package var batch: Int
        /// How long a claimed job is held without a sign of life; 2 seconds to an hour.
        package var lease: Duration
    }

    /// The shares of a store's request budget that are kept for people who wait, in percent; 95 together at most.
    package struct Reserves: Hashable, Sendable {
        package var restorePercent: Int
        package var supportPercent: Int
    }

    /// A host and a port to listen on.
    package struct ListenAddress: Hashable, Sendable {
        /// A name or an address; an IPv6 address without brackets.
        package var host: String
        /// 0 lets the system choose.
        package var port: Int
    }

    /// Where metrics and health are served.
    package struct Admin: Hashable, Sendable {
        package var address: ListenAddress
        /// Names beside the host's under which it is reached.
        package var names: [String]
        /// Whether a host or port was given, not only defaults; roles without an API listen only then.
        package var isSet: Bool
    }

    /// Where webhooks go.
    package struct Outbox: Sendable {
        package var url: String
        package var secret: Secret
    }

    /// How long what was only needed for a while is kept, in days.
    package struct Retention: Hashable, Sendable {
        /// The words of stores' events.
        package var eventDays: Int
        /// Ended jobs.
        package var historyDays: Int

        package init(eventDays: Int = 30, historyDays: Int = 90) {
            self.eventDays = eventDays
            self.historyDays = historyDays
        }
    }

    /// What is logged, and how.
    package struct Log: Hashable, Sendable {
        package var level: Logger.Level
        package var format: LogFormat
    }
}

/// How RevenueCat's API is reached and how fast.
package struct RevenueCatSettings: Sendable {
    package var apiKey: Secret
    /// Letters, digits, `-` and `_` only, so that it fits into a path as it is.
    package var projectID: String
    /// https, or http to a loopback host; no slash at its end.
    package var baseURL: String
    /// Requests a minute over all workers; 0: unlimited.
    package var requestsPerMinute: Int
    /// May move purchases; `nil`: nothing is moved.
    package var transferKey: Secret?
}

/// A text that must never be printed: a key, a password, a connection string.
///
/// Descriptions, reflection and `dump` show `<redacted>`; only ``reveal()`` gives the text, at the one place that needs it.
package struct Secret: Sendable {
    // A closure, not a stored string: no mirror, however it is made, can walk into it.
    private let text: @Sendable () -> String

    /// Wraps a text.
    package init(_ text: String) {
        self.text = { text }
    }

    /// The text itself, for the request or connection that it opens.
    package func reveal() -> String { text() }
}

extension Secret: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    package var description: String { "<redacted>" }
    package var debugDescription: String { "<redacted>" }
    package var customMirror: Mirror { Mirror(self, children: []) }
}
