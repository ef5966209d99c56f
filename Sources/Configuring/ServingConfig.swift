/// How the API listens, and whose tokens and webhooks it takes.
package struct APIConfig: Sendable {
    /// Requests a minute from one address; 0: no limit.
    package var perAddress: Int
    /// Requests a minute of one user; 0: no limit.
    package var perUser: Int
    /// Addresses and networks of proxies, separated by commas; `nil`: none.
    package var trustedProxies: String?
    /// Origins whose pages may call what is for apps, as browsers write them.
    package var allowedOrigins: [String] = []
    /// Connections at once.
    package var maxConnections: Int
    /// Connections, and requests under way, of one address at once.
    package var maxConnectionsPerAddress: Int
    /// How long webhooks and restores wait for a database that is unavailable.
    package var databaseWait: Duration
    /// `nil`: no tokens of Firebase are taken.
    package var firebase: Firebase?
    /// `nil`: no other issuer's tokens are taken.
    package var issuer: Issuer?
    /// A team's own texts: JSON of languages, each with texts by message key.
    package var messages: String?
    package var webhooks: Webhooks

    /// The project whose users call.
    package struct Firebase: Sendable {
        package var projectID: String
        /// `nil`: Google's own.
        package var keysURL: String?
    }

    /// Who else issues the tokens of the app's users.
    package struct Issuer: Sendable {
        package var issuer: String
        package var audience: String
        /// `nil`: as the issuer's discovery document has it.
        package var keysURL: String?
        package var userClaim: String
    }

    /// Whether users' apps are answered.
    package var takesAppTokens: Bool { firebase != nil || issuer != nil }

    /// How stores show that they are who they say.
    package struct Webhooks: Sendable {
        /// One for each project whose webhooks are taken.
        package var revenueCat: [RevenueCatSender] = []
        /// One for each package whose pushes are taken.
        package var push: [Push] = []

        package var takesRevenueCat: Bool { !revenueCat.isEmpty }
    }

    /// What shows that a webhook is one of a project's; at least one of the two is there.
    package struct RevenueCatSender: Sendable {
        package var authorization: Secret?
        package var secret: Secret?
    }

    /// What tokens of Pub/Sub's pushes have to say.
    package struct Push: Hashable, Sendable {
        /// Who sends, by what a token shows.
        package struct Sender: Hashable, Sendable {
            package var audience: String
            package var serviceAccount: String
            package var keysURL: String?
        }

        package var sender: Sender { Sender(audience: audience, serviceAccount: serviceAccount, keysURL: keysURL) }

        package var audience: String
        package var serviceAccount: String
        /// The app whose notifications they are.
        package var packageName: String
        /// `nil`: Google's own.
        package var keysURL: String?
    }
}

/// The support desk's pages: where they listen, and how operators sign in.
package struct ConsoleConfig: Sendable {
    /// `nil`: the admin address serves the console.
    package var address: Config.ListenAddress?
    /// How browsers reach it, without a slash at the end: `https://desk.example.com`.
    package var url: String?
    /// `nil`: operators have passwords and devices of their own here.
    package var provider: Provider?

    /// The team's identity provider.
    package struct Provider: Sendable {
        package var issuer: String
        package var clientID: String
        package var clientSecret: Secret
        package var scopes: String
        package var groupsClaim: String
        /// The first whose group a person is in is theirs.
        package var roles: [(role: String, group: String)]
        /// How long a sign-in is good for: in this time the provider's word is asked for again.
        package var session: Duration
    }
}
