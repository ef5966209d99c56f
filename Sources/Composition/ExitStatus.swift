import ArgumentParser
import Configuring
import Foundation
import HTTPServing
import Ledger
import Migrations
import Postgres
import SupportDesk

/// Why a command ends without doing its work: a message for people and a code of `sysexits.h`.
package struct CommandFailure: Error {
    package var status: ExitStatus
    package var message: String

    package init(_ status: ExitStatus, _ message: String) {
        self.status = status
        self.message = message
    }

    /// Sorts any error into a failure.
    package init(_ error: any Error) {
        switch error {
        case let failure as CommandFailure:
            self = failure
        case let faults as ConfigurationFaults:
            self.init(.configuration, "\(faults)")
        case let error as MigrationError:
            self.init(
                error.code == .locked ? .elapsed : error.code == .refused ? .notAllowed : .configuration,
                "\(error)"
            )
        case let failure as ListenFailure:
            self.init(
                .configuration,
                "\(failure.service) can't be served on \(failure.host):\(failure.port): \(failure.reason); set another"
                    + " \(failure.service == "metrics" ? "ADMIN_PORT" : "HTTP_PORT"), or 0 for any"
            )
        case let fault as PasswordKey.Fault:
            self.init(.data, "\(fault.rawValue); choose another one")
        case let refused as RevealRefused:
            self.init(.notAllowed, DeskRefusal(refused.word).sentence(state: nil))
        case let fault as AdapterFault:
            self.init(.configuration, "\(fault); translate it in the adapter, and run migrate --adapter FILE")
        case let error as PostgresError:
            self.init(Self.status(of: error), Self.text(of: error))
        default:
            self.init(.software, "\(error)")
        }
    }

    private static func status(of error: PostgresError) -> ExitStatus {
        if error.code == .configuration { return .configuration }
        guard let state = error.sqlState else {
            return error.isConnectionFailure || error.isRetryable ? .unavailable : .software
        }
        // The database is there; it is the wait for a lock that ran out.
        if state == SQLState.lockNotAvailable { return .elapsed }
        if state == "ES009" || state == "ES007" { return .notAllowed }
        if state.hasPrefix("ES") || state == "22023" { return .data }
        if state == "42501" { return .notAllowed }
        if state == "42P01" || state == "3F000" || state == "42883" { return .configuration }
        if state.hasPrefix("28") { return .configuration }
        if state.hasPrefix("22") { return .data }
        return error.isConnectionFailure || error.isRetryable || state == "3D000" ? .unavailable : .software
    }

    private static func text(of error: PostgresError) -> String {
        if error.code == .configuration {
            return
                "DATABASE_URL (or DATABASE_DIRECT_URL): \(error.message); set postgres://user@host/database or libpq's"
                + " \"host=... dbname=...\""
        }
        switch error.sqlState {
        case "42P01", "3F000", "42883":
            return "\(error.message); run entitlement-sync migrate first"
        case SQLState.insufficientPrivilege:
            return "\(error.message); connect as a user with the right role, such as entitlement_sync_worker"
        case SQLState.lockNotAvailable:
            return "a table has been locked by another session for too long (pg_stat_activity shows which); try again"
                + " when it is free"
        case SQLState.invalidCatalogName:
            return "\(error.message); check the database's name in DATABASE_URL, or PGDATABASE"
        case let state? where state.hasPrefix("28"):
            return "\(error.message); check user and password in DATABASE_URL, or PGUSER and PGPASSWORD"
        default:
            if let hint = error.hint { return "\(error.message). \(hint)" }
            guard error.isConnectionFailure || error.code == .timeout || error.code == .poolExhausted else {
                return "\(error)"
            }
            return
                "the database can't be reached: \(error.message); check DATABASE_URL, or PGHOST and its kin, and that"
                + " the server takes connections"
        }
    }
}

/// The exit codes of the command line.
package enum ExitStatus: Int32 {
    case done = 0
    case usage = 64
    case data = 65
    case unavailable = 69
    case software = 70
    case elapsed = 75
    case notAllowed = 77
    case configuration = 78
}

/// Runs a command's body; errors become one line on stderr and the right exit code.
package func reporting(_ body: () async throws -> ExitStatus) async throws {
    let status: ExitStatus
    do {
        status = try await body()
    } catch let exit as ExitCode {
        throw exit
    } catch is CancellationError {
        throw ExitCode(ExitStatus.elapsed.rawValue)
    } catch {
        let failure = CommandFailure(error)
        Output.write("entitlement-sync: \(failure.message)\n", to: .standardError)
        throw ExitCode(failure.status.rawValue)
    }
    guard status == .done else { throw ExitCode(status.rawValue) }
}
