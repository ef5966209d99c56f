import ArgumentParser
import Configuring
import Foundation
import Migrations
import Postgres

/// Why a command ends without doing its work: a message for people and a code of `sysexits.h`.
struct CommandFailure: Error {
    var status: ExitStatus
    var message: String

    init(_ status: ExitStatus, _ message: String) {
        self.status = status
        self.message = message
    }

    /// Sorts any error into a failure.
    init(_ error: any Error) {
        switch error {
        case let failure as CommandFailure:
            self = failure
        case let faults as ConfigurationFaults:
            self.init(.configuration, "\(faults)")
        case let error as MigrationError:
            self.init(
                error.code == .locked ? .unavailable : error.code == .refused ? .notAllowed : .configuration,
                "\(error)"
            )
        case let error as PostgresError:
            self.init(Self.status(of: error), Self.text(of: error))
        default:
            self.init(.software, "\(error)")
        }
    }

    private static func status(of error: PostgresError) -> ExitStatus {
        if error.code == .configuration { return .configuration }
        guard let state = error.sqlState else { return error.isConnectionFailure ? .unavailable : .software }
        if state.hasPrefix("ES") || state == "22023" { return .data }
        if state == "42501" { return .notAllowed }
        if state == "42P01" || state == "3F000" || state == "42883" { return .configuration }
        if state.hasPrefix("28") { return .configuration }
        if state.hasPrefix("22") { return .data }
        return error.isConnectionFailure || error.isRetryable || state == "3D000" ? .unavailable : .software
    }

    private static func text(of error: PostgresError) -> String {
        switch error.sqlState {
        case "42P01", "3F000", "42883":
            "\(error.message); run entitlement-sync migrate first"
        case "42501":
            "\(error.message); connect as a user with the right role, such as entitlement_sync_worker"
        default:
            error.hint.map { "\(error.message). \($0)" } ?? "\(error)"
        }
    }
}

/// The exit codes of the command line.
enum ExitStatus: Int32 {
    case done = 0
    case data = 65
    case unavailable = 69
    case software = 70
    case elapsed = 75
    case notAllowed = 77
    case configuration = 78
}

/// Runs a command's body; errors become one line on stderr and the right exit code.
func reporting(_ body: () async throws -> ExitStatus) async throws {
    let status: ExitStatus
    do {
        status = try await body()
    } catch let exit as ExitCode {
        throw exit
    } catch is CancellationError {
        throw ExitCode(ExitStatus.elapsed.rawValue)
    } catch {
        let failure = CommandFailure(error)
        FileHandle.standardError.write(Data("entitlement-sync: \(failure.message)\n".utf8))
        throw ExitCode(failure.status.rawValue)
    }
    guard status == .done else { throw ExitCode(status.rawValue) }
}
