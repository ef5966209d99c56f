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
        examples: ["doctor", "doctor --quiet", "doctor --test-events"]
    )

    @Flag(help: "Print only what is not well.") var quiet = false
    @Flag(help: "Have the App Store send a test notification, and wait for it; say how other stores' are sent.")
    var testEvents = false
    @Option(help: "Seconds to wait for each test notification.") var wait = 60
    @OptionGroup var options: OutputOptions

    func validate() throws {
        guard (1...600).contains(wait) else { throw ValidationError("--wait: give seconds from 1 to 600") }
    }

    func run() async throws {
        try await reporting {
            let (runtimes, broken) = try Runtime.ofApps(level: .error)
            if let runtime = runtimes.first, runtime.app == nil {
                let (checks, status) = await checks(runtime)
                return try print(checks, status)
            }
            var found = broken.map { name, faults in
                Check(
                    name: "\(name).configuration",
                    ok: false,
                    detail: "the app is not served: "
                        + faults.faults.map { "\($0.variable): \($0.problem)" }.joined(separator: "; "),
                    fix: faults.faults.map(\.fix).joined(separator: ". ") + "."
                )
            }
            for runtime in runtimes {
                found += await checks(runtime).found.map { check in
                    var check = check
                    check.name = "\(runtime.app ?? "").\(check.name)"
                    return check
                }
            }
            return try print(found)
        }
    }

    /// What is found of one app; the status says whether its database could be asked.
    private func checks(_ runtime: Runtime) async -> (found: [Check], ExitStatus) {
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
                if testEvents { found += await TestEvents(runtime, pool: pool).checks(within: .seconds(wait)) }
                return found
            }
        } catch {
            let failure = CommandFailure(error)
            return ([.failed("database", failure.message)], failure.status)
        }
        let config = runtime.config
        let direct = [
            config.appStore.isAsked ? "the App Store" : nil, !config.googlePlay.isEmpty ? "Google Play" : nil,
            config.onside != nil ? "Onside" : nil,
        ].compactMap(\.self)
        let off = direct.isEmpty ? "is off" : "is off; asked directly: " + direct.joined(separator: ", ")
        checks.append(
            Check(
                name: "revenuecat",
                ok: !config.revenueCat.isEmpty || !direct.isEmpty,
                detail: !config.revenueCat.isEmpty ? "is configured" : off + ", in this command's environment",
                fix: "Run doctor with the worker's variables; where it lacks them too, set REVENUECAT_API_KEY and"
                    + " REVENUECAT_PROJECT_ID, or another store's."
            )
        )
        return (checks + (await EndpointChecks.checks(runtime)), .done)
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
