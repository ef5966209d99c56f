import Configuring
import Postgres
import SupportConsole
import WebAPI

/// Makes the support desk's pages of the configuration.
struct ConsoleComposition {
    let console: SupportConsole
    /// Its own: what people look at takes no connection from those who restore.
    let pool: PostgresPool

    /// - Throws: where a template does not read.
    init(_ runtime: Runtime, proxies: TrustedProxies) throws {
        var configuration = runtime.postgres(connections: 4, url: runtime.config.database.consoleURL)
        // Whoever looks at a page has gone by then.
        configuration.statementTimeout = .seconds(5)
        pool = PostgresPool(configuration: configuration, logger: runtime.logger)
        console = try SupportConsole(
            pool: pool,
            listener: PostgresListener(
                configuration: runtime.postgres(connections: 1, direct: true),
                logger: runtime.logger
            ),
            proxies: proxies,
            logger: runtime.logger
        )
    }
}
