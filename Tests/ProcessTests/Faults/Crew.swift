import Glibc
import Postgres
import TestSupport
import Testing

/// Workers that somebody looks after, as an init system does: whoever is killed is replaced, and nobody leaves before
/// the work is done.
actor Crew {
    private let site: Site
    private var members: [Program] = []
    private var random: SeededGenerator
    private(set) var deaths = 0
    private var vacant: Set<Int> = []
    /// What all members said that were replaced.
    private var said = ""

    init(_ size: Int, of site: Site, seed: UInt64) async throws {
        self.site = site
        random = SeededGenerator(seed: seed)
        for _ in 0..<size { members.append(try await site.start("worker", "--until-idle")) }
    }

    /// What all members have said so far.
    var log: String { said + members.map(\.err).joined() }

    /// The processes of those who are here.
    var pids: [Int32] { members.map(\.pid) }

    /// Sends a member a signal.
    func signal(_ number: Int32, to place: Int) { members[place].signal(number) }

    /// Whether one of them is past its start.
    var isAtWork: Bool { members.contains { $0.isRunning && Self.hasBegun($0.err) } }

    private static func hasBegun(_ log: String) -> Bool { log.contains("worker.epoch=") }

    /// Kills one of them and starts another in its place.
    ///
    /// - Returns: whether anybody is left to kill.
    @discardableResult
    func killOne() async throws -> Bool {
        let running = members.indices.filter { !vacant.contains($0) && members[$0].isRunning }
        guard let place = running.randomElement(using: &random) else {
            // Whoever is being replaced is somebody to kill the next time.
            guard vacant.isEmpty else { return true }
            try await tend()
            return members.contains(where: \.isRunning)
        }
        members[place].signal(SIGKILL)
        return try await replace(place)
    }

    /// Starts those again that could not begin.
    func tend() async throws {
        for place in members.indices where !members[place].isRunning { try await replace(place) }
    }

    /// Puts another in the place of one who is leaving, unless nothing is left to do.
    @discardableResult
    private func replace(_ place: Int) async throws -> Bool {
        // Somebody is at it already.
        guard vacant.insert(place).inserted else { return true }
        defer { vacant.remove(place) }
        let ending = try await members[place].ending()
        if ending.signal == SIGKILL {
            deaths += 1
        } else {
            try await check(ending)
            if ending.code == 0 { return false }
        }
        said += ending.err
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

    /// Whoever could not begin without the database is started again; whoever was at work leaves with 0 alone, and not
    /// before the work is done.
    private func check(_ ending: Program.Ending) async throws {
        if ending.code == 0 {
            let left = try? await site.number("SELECT count(*) FROM entitlement_sync.queue")
            #expect((left ?? 0) == 0, "a worker left \(left ?? 0) jobs behind: \(ending)")
        } else {
            let neverBegan = ending.code == 69 && !Self.hasBegun(ending.err)
            #expect(neverBegan, "a worker left its work: \(ending)")
            // An init system waits a little as well.
            try await Task.sleep(for: .milliseconds(200))
        }
    }
}
