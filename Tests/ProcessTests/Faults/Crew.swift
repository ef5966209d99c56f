import Glibc
import Testing

/// Workers that somebody looks after, as an init system does: whoever is killed is replaced, and nobody leaves before
/// the work is done.
actor Crew {
    private let site: Site
    private var members: [Program] = []
    private var random: Seeded
    private(set) var deaths = 0
    /// What all members said that have left.
    private var said = ""

    init(_ size: Int, of site: Site, seed: UInt64) async throws {
        self.site = site
        random = Seeded(seed)
        for _ in 0..<size { members.append(try await site.start("worker", "--until-idle")) }
    }

    /// What all members have said so far.
    var log: String { said + members.map(\.err).joined() }

    /// The processes of those who are here.
    var pids: [Int32] { members.map(\.pid) }

    /// Sends a member a signal.
    func signal(_ number: Int32, to place: Int) { members[place].signal(number) }

    /// Kills one of them and starts another in its place.
    ///
    /// - Returns: whether there was anybody left to kill.
    @discardableResult
    func killOne() async throws -> Bool {
        let place = Int.random(in: members.indices, using: &random)
        let victim = members[place]
        victim.signal(SIGKILL)
        let ending = try await victim.ending()
        said += ending.err
        if ending.signal == SIGKILL {
            deaths += 1
        } else {
            try await check(ending)
            if ending.code == 0 { return false }
        }
        members[place] = try await site.start("worker", "--until-idle")
        return true
    }

    /// Waits until all have left because nothing is left to do.
    func finish(within limit: Duration = .seconds(180)) async throws {
        let deadline = ContinuousClock.now + limit
        var place = 0
        while place < members.count {
            let ending = try await members[place].ending(within: max(.seconds(1), deadline - .now))
            said += ending.err
            try await check(ending)
            if ending.code == 0 {
                place += 1
            } else {
                try #require(ContinuousClock.now < deadline, "it never came up: \(ending)")
                members[place] = try await site.start("worker", "--until-idle")
            }
        }
        members = []
    }

    /// Whoever could not begin without the database is started again; whoever was at work leaves with 0 alone.
    private func check(_ ending: Program.Ending) async throws {
        if ending.code != 0 {
            let neverBegan = ending.code == 69 && !ending.err.contains("worker.epoch=")
            #expect(neverBegan, "a worker left its work: \(ending)")
            // An init system waits a little as well.
            try await Task.sleep(for: .milliseconds(200))
        }
    }
}
