import Configuring
import HTTPServing
import Hummingbird
import Telemetry
import WebAPI

/// What a process listens with, whichever apps it serves.
struct ProcessServers {
    typealias ConsoleRoutes = @Sendable (Router<AdminContext>) -> Void

    let roles: Set<RoleProcess.Role>
    let runtime: Runtime
    let registry: Registry
    let proxies: TrustedProxies
    /// `nil`: this process has no console.
    let console: ConsoleRoutes?

    /// Metrics and health: where an address is set for them, and wherever the API is served.
    func admin(
        refreshing refresh: @escaping @Sendable () async -> Void,
        readiness: @escaping @Sendable () async -> Readiness
    ) -> AdminServer? {
        let config = runtime.config
        guard config.admin.isSet || roles.contains(.serve) else { return nil }
        let content = AdminContent(
            metrics: { [registry] in
                await refresh()
                return registry.render()
            },
            metricsType: Registry.contentType,
            readiness: readiness,
            more: config.console.address == nil ? console : nil
        )
        return AdminServer(
            host: config.admin.address.host,
            port: config.admin.address.port,
            names: names,
            proxies: proxies,
            requestTime: runtime.requestTime,
            // A usual port that is taken by another process of ours stops no process.
            isVital: config.admin.isSet && roles.contains(.serve),
            content: content,
            logger: runtime.logger
        )
    }

    /// The console, where it has an address of its own.
    func consoleServer() -> AdminServer? {
        guard let console, let address = runtime.config.console.address else { return nil }
        return AdminServer(
            what: "the console",
            host: address.host,
            port: address.port,
            names: names,
            proxies: proxies,
            requestTime: runtime.requestTime,
            isVital: true,
            content: AdminContent(routes: console),
            logger: runtime.logger
        )
    }

    /// The names under which operators reach the pages, those of the console's own address among them.
    private var names: [String] {
        let host = runtime.config.console.url?.split(separator: "/").last?.split(separator: ":")[0]
        return runtime.config.admin.names + (host.map { [String($0)] } ?? [])
    }
}
