package import HTTPServing
import HTTPTypes
package import Hummingbird
package import Logging
import NIOCore
package import Postgres
import ServiceLifecycle
import SignedTokens
import SupportDesk

/// The support desk's pages: rendered here, decided in the database.
///
/// Every page asks the database with the operator's own session; nothing is cached, and no page writes but by a form that
/// carries what only a page of ours can know.
package struct SupportConsole: Sendable {
    let desk: Desk
    let hub: ChangeHub
    private let logger: Logger

    /// Makes a console on a database, as the role `entitlement_sync_support` or a stronger one.
    ///
    /// `reports`: where causes, figures, runs and the log are read, such as a standby; `nil`: where all else is. `proxies`: whose word for a visitor's address is taken. `provider`: what
    /// operators sign in through; `nil`: they have passwords here. The logger hears of no names and no secrets.
    /// Throws where a template does not read, which tests rule out.
    package init(
        pool: PostgresPool,
        reports: ReportSource? = nil,
        proxies: TrustedProxies = TrustedProxies(),
        provider: ProviderSignIn? = nil,
        logger: Logger
    ) throws {
        hub = ChangeHub()
        desk = Desk(
            pool: pool,
            reports: reports,
            pages: try Pages(),
            proxies: proxies,
            provider: provider,
            hub: hub,
            logger: logger
        )
        self.logger = logger
    }

    /// Answers requests for these pages, for an address that serves those of several apps.
    package var responder: any HTTPResponder<AdminContext> {
        let router = Router(context: AdminContext.self, options: .autoGenerateHeadEndpoints)
        add(to: router)
        return router.buildResponder()
    }

    /// Adds the pages below `/console` to what an address serves.
    package var routes: @Sendable (Router<AdminContext>) -> Void { { add(to: $0) } }

    private func add(to router: Router<AdminContext>) {
        let routes = router.group("/console").add(middleware: ConsoleFrame(desk: desk))
        AssetRoutes().add(to: routes)
        SignInPages(desk: desk).add(to: routes)
        ProviderPages(desk: desk)?.add(to: routes)
        TerminalPage(desk: desk).add(to: routes)
        QueuePage(desk: desk).add(to: routes)
        TicketPage(desk: desk).add(to: routes)
        TicketActs(desk: desk).add(to: routes)
        UserPage(desk: desk).add(to: routes)
        SearchPage(desk: desk).add(to: routes)
        ListPages(desk: desk).add(to: routes)
        FigurePages(desk: desk).add(to: routes)
        LiveStream(desk: desk).add(to: routes)
        desk.get("**", on: routes) { _, _, _ in throw ConsoleFault.notFound }
    }
}

extension SupportConsole: Service {
    /// Says that a ticket has changed, or may have.
    package func changed() { hub.changed() }

    /// Has open pages show what changes, until a graceful shutdown; then ends their streams.
    package func run() async throws {
        await withTaskGroup(of: Void.self) { group in
            group.addTask { await hub.tick() }
            group.addTask { await useProvider() }
            try? await gracefulShutdown()
            group.cancelAll()
        }
        hub.close()
    }

    /// Has the database take the provider for the one in use, however long it takes.
    private func useProvider() async {
        guard let provider = desk.provider else { return }
        while !Task.isCancelled {
            do {
                try await desk.operators.use(provider: provider.provider.issuer)
                return
            } catch let error as PostgresError where error.sqlState == "42501" {
                logger.error(
                    "no sign-in through the identity provider: the console's database user lacks entitlement_sync_console"
                )
            } catch {
                logger.warning("the identity provider can't be put in use yet", metadata: ["error.code": "\(error)"])
            }
            try? await Task.sleep(for: .seconds(10))
        }
    }
}

/// What every page needs.
struct Desk: Sendable {
    let pool: PostgresPool
    let reports: ReportSource?
    let pages: Pages
    let proxies: TrustedProxies
    let provider: ProviderSignIn?
    let hub: ChangeHub
    let security = SecurityLog()
    let logger: Logger

    var operators: Operators { Operators(pool: pool) }

    /// Where a request comes from.
    func address(of request: Request, _ context: AdminContext) -> String {
        proxies.client(context.peer, forwarded: HTTPField.Name("X-Forwarded-For").flatMap { request.headers[$0] })
    }
}
