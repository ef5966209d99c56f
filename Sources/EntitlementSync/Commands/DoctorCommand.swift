import ArgumentParser
import Composition
import Configuring
import Diagnostics
import Logging
import Migrations
import Reports
import Telemetry

struct DoctorCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "doctor",
        abstract:
            "Checks connection, schema, database roles, invariants, leases and alarms, and says how to mend each.",
        json: "one object: ok, checks [{name, ok, detail, fix}]",
        examples: ["doctor", "doctor --quiet"]
    )

    @Flag(help: "Print only what is not well.") var quiet = false
    @OptionGroup var options: OutputOptions

    func run() async throws {
        try await reporting {
            let runtime = try Runtime(level: .error)
            var checks: [Check]
            do {
                checks = try await runtime.withPool(checkingSchema: false) { pool in
                    let release = try await SchemaCheck(pool: pool).verify()
                    var found =
                        [Check.passed("schema", "at release \(release); this program has the version \(Build.version)")]
                        + (await Doctor(pool: pool).checks())
                    found += await SetupChecks(runtime: runtime).checks(pool: pool)
                    do { found.append(try await BudgetCheck(runtime, pool: pool).check()) } catch {
                        // It must not hide what the others have found.
                        found.append(.failed("budget", "could not be read: \(CommandFailure(error).message)"))
                    }
                    return found
                }
            } catch {
                let failure = CommandFailure(error)
                return try print([.failed("database", failure.message)], failure.status)
            }
            let config = runtime.config
            let direct = [
                config.appStore.access != nil ? "the App Store" : nil, config.googlePlay != nil ? "Google Play" : nil,
                config.onside != nil ? "Onside" : nil,
            ].compactMap(\.self)
            let off = direct.isEmpty ? "is off" : "is off; asked directly: " + direct.joined(separator: ", ")
            checks.append(
                Check(
                    name: "revenuecat",
                    ok: config.revenueCat != nil || !direct.isEmpty,
                    detail: config.revenueCat != nil ? "is configured" : off + ", in this command's environment",
                    fix: "Run doctor with the worker's variables; where it lacks them too, set REVENUECAT_API_KEY and"
                        + " REVENUECAT_PROJECT_ID, or another store's."
                )
            )
            checks += await EndpointChecks.checks(runtime)
            return try print(checks)
        }
    }

    private func print(_ checks: [Check], _ status: ExitStatus = .done) throws -> ExitStatus {
        let ok = checks.allSatisfy(\.ok)
        let lines = checks.filter { !quiet || !$0.ok }.flatMap { check in
            ["\(Output.mark(check.ok))  \(check.name): \(check.detail)"] + (check.ok ? [] : ["      -> \(check.fix)"])
        }
        let document: JSONObject = ["ok": ok, "checks": checks.filter { !quiet || !$0.ok }]
        return try Answer(
            lines + [ok ? "All is well." : "Something needs attention."],
            document: document,
            status: status
        ).print(as: options.output)
    }
}
