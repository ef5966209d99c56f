package import Configuring
import Entitlements
import Ledger
package import Logging
package import Postgres
package import Queue
import RateLimits
import Reconciliation
import ServiceLifecycle
import StoreClients
import StoreEvents
import SupportDesk
package import Transport

/// The stores that the configuration names, as a worker uses them.
package struct StoreComposition {
    private let clients: ClientComposition
    private let accounts: AccountIDs
    private let stores: StoresReader

    package init(
        _ settings: StoreSettings,
        config: Config,
        pool: PostgresPool,
        transport: HTTPTransport,
        salesSignal: Signal,
        logger: Logger
    ) {
        var clients = ClientComposition(
            settings: settings,
            config: config,
            pool: pool,
            transport: transport,
            salesSignal: salesSignal,
            logger: logger,
            limiters: StoreRateLimiters(logger: logger)
        )
        let lookups = UserLookups(pool: pool)
        accounts = AccountIDs(keys: config.accounts.keys.map { $0.reveal() }, namespace: config.accounts.namespace)
        stores = StoresReader(
            sources: clients.sources(lookups),
            accounts: accounts,
            lookups: lookups,
            pool: pool,
            logger: logger
        )
        self.clients = clients
    }

    /// What a worker takes of it.
    ///
    /// - Parameter publishes: whether what becomes of tickets is published in the outbox.
    /// - Returns: readers, limits and services.
    package func workerStores(publishes: Bool) -> Worker.Stores {
        var parts = Worker.Stores(reader: stores.reader, limiters: clients.limiters)
        parts.dryRunReader = stores.dryRunReader
        parts.lists = clients.lists
        parts.acknowledger = clients.acknowledger
        if let walk = stores.accountWalk { parts.beside.append(walk) }
        parts.beside.append(
            CredentialCheck(
                records: StoreCredentials(pool: clients.pool),
                stores: stores,
                credentials: clients.settings.credentials,
                logger: clients.logger
            )
        )
        parts.desk = deskServices(publishes: publishes)
        return parts
    }

    /// Nothing in observe mode, which writes no tickets.
    private func deskServices(publishes: Bool) -> [any Service] {
        guard clients.config.decision.mode != .observe else { return [] }
        let logger = clients.logger
        let transfers = clients.settings.revenueCatTransfers.map { configuration in
            RevenueCatTransfers(
                configuration: configuration,
                http: clients.http(.revenueCat),
                gate: clients.revenueCatGate ?? .open,
                logger: logger
            )
        }
        let collector = EvidenceCollector(
            records: CaseRecords(pool: clients.pool),
            stores: stores,
            settings: clients.config.desk,
            hasTransferKey: transfers != nil,
            publishes: publishes,
            logger: logger
        )
        return [
            collector,
            TransferRunner(
                transfers: Transfers(pool: clients.pool),
                collector: collector,
                revenueCat: transfers,
                logger: logger
            ),
            TokenWriter(
                tokens: TransferTokens(pool: clients.pool),
                appStore: clients.appStoreClient,
                accounts: accounts,
                logger: logger
            ),
        ]
    }
}
