import ArgumentParser
import Composition
import UserRequests

struct Erase: DatabaseCommand {
    static let configuration = CommandConfiguration(
        abstract: "Forgets who a user is, in every record; what was decided stays without a name."
    )

    @Argument(help: "The user's id.")
    var user: String

    @OptionGroup var options: OutputOptions

    func answer(_ database: Database) async throws -> Answer {
        guard let erased = try await Erasure(pool: database.pool).erase(user) else {
            throw CommandFailure(.data, "the user is not known here: nothing is kept under this id")
        }
        let kept = "\(erased.purchases) purchases and \(erased.tickets) tickets stand without a name"
        let gone = "the words of \(erased.events) events and \(erased.messages) messages are deleted"
        let host = erased.isHosts ? ". The host still has this user: erase it there as well" : ""
        return Answer(["erased: \(kept); \(gone)\(host)"], document: erased)
    }
}
