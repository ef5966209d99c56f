package import Configuring
package import HTTPServing
package import Postgres
import SignedTokens
package import SupportConsole
package import Transport

/// Makes the support desk's pages of the configuration.
package struct ConsoleComposition {
    package let console: SupportConsole
    /// Its own: the console's pages take no connection from restores.
    package let pool: PostgresPool
    /// Where reports are read; `nil`: in `pool`.
    package let reports: PostgresPool?

    /// - Throws: `ConfigurationFaults`; where a template does not read.
    package init(_ runtime: Runtime, proxies: TrustedProxies, transport: HTTPTransport) throws {
        var configuration = runtime.postgres(connections: 4, url: runtime.config.database.consoleURL)
        // The browser has given up by then.
        configuration.statementTimeout = .seconds(5)
        pool = PostgresPool(configuration: configuration, logger: runtime.logger)
        reports = runtime.reports().map { reading in
            var reading = reading
            (reading.statementTimeout, reading.acquireTimeout) = (.seconds(5), .seconds(2))
            return PostgresPool(configuration: reading, logger: runtime.logger)
        }
        console = try SupportConsole(
            pool: pool,
            reports: reports.map { ReportSource($0) },
            proxies: proxies,
            provider: try ProviderSignIn(runtime, transport),
            logger: runtime.logger
        )
    }
}

extension ProviderSignIn {
    /// - Returns: `nil` where no provider is configured.
    /// - Throws: `ConfigurationFaults`.
    package init?(_ runtime: Runtime, _ transport: HTTPTransport) throws {
        let console = runtime.config.console
        guard let settings = console.provider, let url = console.url else { return nil }
        self.init(
            provider: try SignInProvider(settings, at: url, runtime, transport),
            roles: settings.roles,
            lifetime: settings.session,
            consoleURL: url,
            secret: settings.clientSecret.reveal()
        )
    }
}

extension SignInProvider {
    /// - Throws: `ConfigurationFaults`.
    package init(
        _ settings: ConsoleConfig.Provider,
        at url: String,
        _ runtime: Runtime,
        _ transport: HTTPTransport
    ) throws {
        do throws(SettingFaults<IssuerTokens.Fault>) {
            try self.init(
                issuer: settings.issuer,
                clientID: settings.clientID,
                clientSecret: settings.clientSecret.reveal(),
                returnURL: url + ProviderSignIn.returnPath,
                scopes: settings.scopes,
                groupsClaim: settings.groupsClaim,
                http: HTTPClient(transport: transport, target: "identity_provider"),
                logger: runtime.logger
            )
        } catch {
            let fix = "Set the issuer as its tokens have it, an https:// address"
            throw ConfigurationFaults(
                faults: error.faults.map {
                    .init(variable: Variable.oidcIssuer.rawValue, problem: $0.rawValue, fix: fix)
                }
            )
        }
    }
}
