import ArgumentParser
import Composition
import Logging
import UserRequests

struct Erase: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Forgets who a user is, in every record; what was decided stands with nobody's name to it."
    )

    @Argument(help: "The user's id.")
    var user: String

    @OptionGroup var options: OutputOptions

    func run() async throws {
        try await reporting {
            let runtime = try Runtime(level: .warning)
            return try await runtime.withPool { pool in
                guard let erased = try await Erasure(pool: pool).erase(user) else {
                    throw CommandFailure(.data, "the user is not known here: nothing is kept under this id")
                }
                let kept = "\(erased.purchases) purchases and \(erased.tickets) tickets stand without a name"
                let gone = "the words of \(erased.events) events and \(erased.messages) messages are deleted"
                let text = "erased: \(kept); \(gone)"
                try options.print(
                    erased.isHosts ? text + ". The host still has this user: erase it there as well" : text,
                    json: erased
                )
                return .done
            }
        }
    }
}
