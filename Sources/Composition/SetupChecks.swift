import Configuring
package import Diagnostics
import Entitlements
import Foundation
import Logging
import Metrics
import Migrations
package import Postgres
import Telemetry

/// What the program is set up with: said once at the start, and checked by `doctor`.
package struct SetupChecks {
    package let runtime: Runtime

    private var stores: [Store] { runtime.config.askedStores }
    private var strays: [StrayVariables.Finding] { StrayVariables.find(in: runtime.environment) }

    package init(runtime: Runtime) {
        self.runtime = runtime
    }

    // MARK: At the start

    /// Says in one line what runs, and warns of what reads like a slip.
    ///
    /// `decides`: it has a worker, whose MODE counts.
    package func announce(_ roles: [String], decides: Bool, pool: PostgresPool) async {
        let (config, logger) = (runtime.config, runtime.logger)
        let products = try? await SetupRecords(pool: pool).products()
        let mode = decides ? config.decision.mode.rawValue : nil
        var metadata: Logger.Metadata = [
            "version": "\(Build.version)", "roles": "\(roles.joined(separator: ","))",
            "stores": "\(stores.isEmpty ? "none" : stores.map(\.rawValue).joined(separator: ","))",
            "products": "\(products.map { "\($0.values.reduce(0, +))" } ?? "unknown")",
            "outbox": "\(config.outbox == nil ? "off" : "on")",
        ]
        metadata["mode"] = mode.map { "\($0)" }
        let apps = config.storeApps
        if !apps.isEmpty { metadata["store.apps"] = "\(apps.joined(separator: ", "))" }
        logger.notice("starting", metadata: metadata)
        Gauge(
            label: "entitlement_sync_build_info",
            dimensions: [("version", Build.version)] + (mode.map { [("mode", $0)] } ?? [])
        ).record(1)
        for stray in strays {
            logger.warning(
                "unknown environment variable: its name is similar to one of ours",
                metadata: ["variable": "\(stray.name)", "variable.like": "\(stray.like ?? "")"]
            )
        }
        guard let products else { return }
        for store in unmapped(products) {
            logger.warning(
                "no product of the store is mapped: nothing that it shows gives access",
                metadata: ["store": "\(store.rawValue)"]
            )
        }
    }

    private func unmapped(_ products: [String: Int64]) -> [Store] {
        stores.filter { products[$0.rawValue, default: 0] == 0 }
    }

    // MARK: For doctor

    /// Checks what can be slipped at; each by itself.
    package func checks(pool: PostgresPool) async -> [Check] {
        let records = SetupRecords(pool: pool)
        return [
            await check("adapter_words") { try await adapter(pool) },
            await check("products") { self.products(try await records.products()) },
            await check("worker_modes") { Self.workers(try await records.workers()) },
            storeApps,
            variables,
        ]
    }

    private func check(_ name: String, _ make: () async throws -> Check) async -> Check {
        do { return try await make() } catch {
            return .failed(name, "could not be checked: \(CommandFailure(error).message)")
        }
    }

    private func adapter(_ pool: PostgresPool) async throws -> Check {
        let faults = try await AdapterCheck(pool: pool).faults()
        return Check(
            name: "adapter_words",
            ok: faults.isEmpty,
            detail: faults.isEmpty
                ? "what the adapter gives of the first 1,000 users can be read" : faults.joined(separator: "; "),
            fix: "Let the adapter translate the host's words, and run entitlement-sync migrate --adapter FILE."
        )
    }

    private func products(_ products: [String: Int64]) -> Check {
        let known = Set(Store.allCases.map(\.rawValue))
        let unknown = products.keys.filter { !known.contains($0) }.sorted()
        let missing = unmapped(products).map(\.name)
        let all = products.values.reduce(0, +)
        let detail =
            all == 0
            ? "the table product is empty: nothing gives access"
            : !unknown.isEmpty
                ? "the table product names unknown stores: \(unknown.prefix(5).joined(separator: ", "))"
                : missing.isEmpty
                    ? "\(all) products are mapped, at least one for each configured store"
                    : "no product is mapped for \(missing.joined(separator: ", ")): nothing bought there gives access"
        return Check(
            name: "products",
            ok: all > 0 && unknown.isEmpty && missing.isEmpty,
            detail: detail,
            fix:
                "Add rows to entitlement_sync.product; its column store knows revenuecat, app_store, google_play and onside."
        )
    }

    private static func workers(_ workers: [SetupRecords.Workers]) -> Check {
        let words = workers.map {
            "\($0.count) of version \($0.version) in mode \($0.mode ?? "unknown")"
                + ", with the stores \($0.stores ?? "unknown")\($0.sandbox == "off" ? " and SANDBOX=off" : "")"
        }
        return Check(
            name: "worker_modes",
            ok: workers.count < 2,
            detail: workers.isEmpty
                ? "no worker is alive" : "workers that are alive: \(words.joined(separator: "; "))",
            fix:
                "Start all workers with the same MODE, SANDBOX, stores and build; else chance says which of them decides."
        )
    }

    private var storeApps: Check {
        let apps = runtime.config.storeApps
        return .passed("store_apps", apps.isEmpty ? "none is configured" : apps.joined(separator: ", "))
    }

    private var variables: Check {
        let strays = strays
        let words = strays.map { stray in stray.like.map { "\(stray.name) (\($0)?)" } ?? stray.name }
        return Check(
            name: "variables",
            ok: strays.isEmpty,
            detail: strays.isEmpty
                ? "no unknown variable has a name similar to one of ours"
                : "unknown variables with names similar to ours, which have no effect: \(words.joined(separator: ", "))",
            fix: "Correct their names, or take them out; deploy/entitlement-sync.env.example has all."
        )
    }
}

extension Config {
    /// The stores that are asked, in the order of their names.
    var askedStores: [Store] {
        let asked: [(Store, Bool)] = [
            (.appStore, appStore.isAsked), (.googlePlay, !googlePlay.isEmpty),
            (.onside, onside != nil), (.revenueCat, !revenueCat.isEmpty),
        ]
        return asked.filter(\.1).map(\.0)
    }

    /// The apps of the stores by name, such as `app_store com.example.app`; RevenueCat's are its projects.
    var storeApps: [String] {
        appStore.apps.map { "app_store \($0.bundleID)" }
            + Set(googlePlay.map(\.packageName) + api.webhooks.push.map(\.packageName)).sorted().map {
                "google_play \($0)"
            }
            + (onside.map { ["onside \($0.bundleID)"] } ?? [])
            + revenueCat.map { "revenuecat \($0.projectID)" }
    }

    /// The requests a minute of the project that is the slowest to be read; `nil`: none has a limit.
    var revenueCatRequestsPerMinute: Int? { revenueCat.map(\.requestsPerMinute).filter { $0 > 0 }.min() }
}

extension Check {
    /// A check that found nothing wrong.
    package static func passed(_ name: String, _ detail: String) -> Check {
        Check(name: name, ok: true, detail: detail, fix: "")
    }

    /// A check that could not be made.
    package static func failed(_ name: String, _ detail: String) -> Check {
        Check(name: name, ok: false, detail: detail, fix: "Mend what the detail says.")
    }
}
