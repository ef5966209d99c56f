import Configuring
package import Diagnostics
import Entitlements
import SignedTokens
import StoreClients
import StoreEvents
import SupportConsole
import Transport

/// What `doctor` finds of the endpoints: which are open, and whether the keys of callers' tokens can be had.
package enum EndpointChecks {
    /// How far a clock may be off before tokens are refused for it, in seconds.
    private static let tolerance: Int64 = 30

    /// Asks what has to be asked.
    package static func checks(_ runtime: Runtime) async -> [Check] {
        let config = runtime.config
        let api = config.api
        var checks: [Check] = []
        var open: [String] = []
        if api.takesAppTokens { open.append("users' apps") }
        if api.webhooks.takesRevenueCat { open.append("RevenueCat's webhooks") }
        if !config.appStore.apps.isEmpty { open.append("the App Store's notifications") }
        if !api.webhooks.push.isEmpty { open.append("Google Play's notifications") }
        checks.append(.passed("endpoints", open.isEmpty ? "none is open" : "open to " + open.joined(separator: ", ")))
        guard
            api.takesAppTokens || !api.webhooks.push.isEmpty || config.console.provider != nil
                || config.firebaseClaims != nil
        else { return checks }
        let transport = HTTPTransport(configuration: HTTPTransportConfiguration(), logger: runtime.logger)
        if let firebase = api.firebase, let tokens = try? FirebaseTokens(firebase, runtime, transport) {
            checks += await probe("firebase", .firebaseKeysURL, tokens.probeKeys)
        }
        if let issuer = api.issuer, let tokens = try? IssuerTokens(issuer, runtime, transport) {
            checks += await probe(
                "app_tokens",
                .appTokenKeysURL,
                of: "the issuer of APP_TOKEN_ISSUER",
                tokens.probeKeys
            )
        }
        if let push = api.webhooks.push.first, let tokens = try? PushTokens(push, runtime, transport) {
            checks += await probe("pubsub", .googleKeysURL, tokens.probeKeys)
        }
        if let provider = try? ProviderSignIn(runtime, transport)?.provider {
            checks += await probe("identity_provider", .oidcIssuer, of: "the identity provider", provider.probe)
        }
        checks += await claims(config, transport)
        await transport.shutdown()
        return checks
    }

    /// Whether Firebase lets us read custom claims; asks for an account that may be there or not.
    private static func claims(_ config: Config, _ transport: HTTPTransport) async -> [Check] {
        let accounts: FirebaseAccounts
        do {
            guard let made = try FirebaseAccounts(config, transport) else { return [] }
            accounts = made
        } catch { return [.failed("firebase_access", "can't be asked: \(CommandFailure(error).message)")] }
        do throws(ReadFailure) {
            _ = try await accounts.claims(of: "entitlement-sync-doctor")
            return [.passed("firebase_access", "the custom claims of \(accounts.projectID) can be read")]
        } catch {
            return [
                Check(
                    name: "firebase_access",
                    ok: false,
                    detail: "the custom claims of \(accounts.projectID) can't be read: \(error.code.rawValue)",
                    fix: error.code == .unauthorized
                        ? "Give the service account of FIREBASE_SERVICE_ACCOUNT the role Firebase Authentication Admin in this project."
                        : "Let this machine reach the address in FIREBASE_BASE_URL, or where it is not set Google's own."
                )
            ]
        }
    }

    private static func probe(
        _ name: String,
        _ variable: Variable,
        of signer: String = "Google",
        _ ask: () async throws(ReadFailure) -> Int64?
    ) async -> [Check] {
        do throws(ReadFailure) {
            let ahead = try await ask()
            let keys = Check.passed("keys.\(name)", "the keys of \(signer) can be had")
            guard let ahead else { return [keys] }
            return [
                keys,
                Check(
                    name: "clock.\(name)",
                    ok: abs(ahead) <= tolerance,
                    detail: "this machine's clock differs from that of \(signer) by \(-ahead) s",
                    fix:
                        "Let a time service (chrony, systemd-timesyncd) set this machine's clock: tokens are refused by it."
                ),
            ]
        } catch {
            return [
                Check(
                    name: "keys.\(name)",
                    ok: false,
                    detail: "the keys of \(signer) can't be had: \(error.code.rawValue)",
                    fix:
                        "Let this machine reach the address in \(variable.rawValue), or where it is not set the signer's own."
                )
            ]
        }
    }
}
