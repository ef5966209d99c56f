import Foundation
import Postgres
import TestSupport
import Testing

/// A cluster of servers under Patroni whose primary dies, is replaced or is cut off while everything is at work.
@Suite(
    .serialized,
    .enabled(if: PatroniCluster.isAvailable, "only root may run servers as postgres, with patroni and etcd"),
    .timeLimit(.minutes(Profile.isFull ? 60 : 30))
)
struct FailoverTests {
    /// What happens in a round.
    enum Round: Sendable {
        /// The primary and its Patroni are killed, after standbys had taken nothing for two seconds.
        case killedWhileStalled
        case killed
        /// A member of etcd is lost besides.
        case killedWithEtcd
        /// The primary reaches neither etcd nor clients nor standbys, and nobody reaches it.
        case cutOff
        /// Another one takes over, as planned.
        case switchover

        /// Of the failures half come after a stall.
        private static let cycle: [Round] = [
            .killedWhileStalled, .killed, .killedWhileStalled, .switchover, .killedWhileStalled, .cutOff,
            .killedWhileStalled, .switchover, .killed, .killedWithEtcd,
        ]
        static let all = Profile.isFull ? cycle + cycle : [.killedWhileStalled]
    }

    /// What is sent, and how fast: for as long as all rounds take.
    private static let (count, rate) = Profile.isFull ? (10_800, 12.0) : (900, 20.0)

    @Test(
        "No acknowledged job, event or ticket is lost where commits wait for a standby, whatever happens to the primary"
    )
    func synchronous() async throws {
        let undisturbed = try await FailoverScene.undisturbed(Self.count)
        try await Self.withCluster(synchronous: true) { cluster in
            try await FailoverScene.with(cluster, FailoverTraffic(Self.count, rate: Self.rate)) { scene in
                async let sent: Void = scene.traffic.send(to: scene.endpoint, of: scene.endpoints)
                for (number, round) in Round.all.enumerated() {
                    try await Self.pass(round, number, cluster, scene)
                }
                try await sent
                try await scene.untilAtRest()
                #expect(try await scene.missing() == [])
                let ending = try await FailoverScene.Ending(of: scene.site)
                #expect(ending == undisturbed, "\(ending.differences(from: undisturbed))")
                try await Record.expectSettled(scene.site)
                #expect(try await scene.findings() == [])
            }
        }
    }

    @Test(
        "A hundred events and twenty restores a second wait for the database while its primary is replaced",
        .full
    )
    func bridged() async throws {
        try await Self.withCluster(synchronous: true) { cluster in
            try await FailoverScene.with(cluster, FailoverTraffic(12_000, rate: 120)) { scene in
                async let sent: Void = scene.traffic.send(to: scene.endpoint, of: scene.endpoints)
                try await eventually("nothing is accepted") { scene.traffic.acceptedCount > 4000 }
                let began = ContinuousClock.now
                try await Self.pass(.killed, 0, cluster, scene)
                try await sent
                let (all, refused) = scene.traffic.refused(around: began)
                report("\(refused) of \(all) requests of the minute refused; \(try scene.servingBytes >> 20) MiB")
                try await scene.untilAtRest()
                #expect(try await scene.missing() == [])
            }
        }
    }

    @Test(
        "Where commits wait for no standby, what is lost is named, and read again by the command that is named",
        .full
    )
    func asynchronous() async throws {
        let count = 600
        let undisturbed = try await FailoverScene.undisturbed(count, of: .changes)
        try await Self.withCluster(synchronous: false) { cluster in
            try await FailoverScene.with(cluster, FailoverTraffic(count, of: .changes, rate: 20)) { scene in
                let site = scene.site
                async let sent: Void = scene.traffic.send(to: scene.endpoint, of: scene.endpoints)
                // What is acknowledged meanwhile is on no other server.
                try await Self.pass(.killedWhileStalled, 0, cluster, scene) {
                    let before = scene.traffic.acceptedCount
                    try await eventually("nothing is acknowledged") { scene.traffic.acceptedCount > before + 30 }
                }
                try await sent
                try await scene.untilAtRest()
                let lost = try await scene.missing(upTo: count).count
                report("\(lost) of \(count) acknowledged events are lost")
                #expect(lost > 0, "nothing was lost that could be found")
                #expect(try await FailoverScene.Ending(of: site) != undisturbed)
                let detail = try #require(
                    try await site.texts(
                        "SELECT a.detail FROM entitlement_sync.alarm AS a WHERE a.name = 'commits_lost'"
                    ).first
                )
                let since = try #require(detail.firstMatch(of: /reconcile --since (\S+);/)?.1)
                #expect(try await site.number("SELECT count(*) FROM entitlement_sync.control AS c WHERE c.paused") == 1)
                let run = try await site.run("reconcile", "--since", String(since), within: .seconds(300))
                #expect(run.code == 0, "\(run)")
                let resumed = try await site.run("resume", "demotions")
                #expect(resumed.code == 0, "\(resumed)")
                try await scene.untilAtRest()
                let ending = try await FailoverScene.Ending(of: site)
                #expect(ending == undisturbed, "\(ending.differences(from: undisturbed))")
                try await Record.expectSettled(site)
                // What is left to say of it, and that it may happen again.
                let findings = try await scene.findings()
                #expect(findings.allSatisfy { $0.contains("commits_") || $0.contains("durability") }, "\(findings)")
                #expect(findings.contains { $0.contains("alarm.commits_lost") }, "\(findings)")
            }
        }
    }

    private static func withCluster(
        synchronous isSynchronous: Bool,
        _ body: @Sendable (PatroniCluster) async throws -> Void
    ) async throws {
        // Most of the time everybody waits: others may work meanwhile.
        try await Turnstile.shared.pass {
            let cluster = try await PatroniCluster.start(synchronous: isSynchronous)
            try await run {
                do { try await body(cluster) } catch {
                    report(cluster.said)
                    throw error
                }
            } finally: {
                await cluster.end()
            }
        }
    }

    /// Has something happen to the primary, and waits until the cluster is whole again.
    ///
    /// - Parameters:
    ///   - round: what happens.
    ///   - number: which round it is.
    ///   - cluster: what it happens to.
    ///   - scene: who is at work meanwhile.
    ///   - stall: what happens while a primary hands nothing on, before it is killed.
    /// - Throws: where the cluster does not come to it.
    private static func pass(
        _ round: Round,
        _ number: Int,
        _ cluster: PatroniCluster,
        _ scene: FailoverScene,
        stall: @escaping () async throws -> Void = { try await Task.sleep(for: .seconds(2)) }
    ) async throws {
        let traffic = scene.traffic
        // Both workers and everything that is sent are under way.
        try await eventually("nothing is accepted") { traffic.acceptedCount > 40 }
        let primary = try await cluster.primary()
        let began = ContinuousClock.now
        switch round {
        case .killedWhileStalled, .killed, .killedWithEtcd:
            if round == .killedWithEtcd { try await cluster.killEtcd(number % 3) }
            try await cluster.kill(primary, after: round == .killedWhileStalled ? stall : nil)
        case .cutOff: try await cluster.cutOff(primary)
        case .switchover: try await cluster.switchOver()
        }
        try await eventually("no other server takes over", within: .seconds(90)) {
            guard let now = try? await cluster.primary() else { return false }
            return now != primary
        }
        // Accepted again, before what was killed comes back.
        let before = traffic.acceptedCount
        try await eventually("nothing is accepted any more") {
            traffic.acceptedCount > min(before + 20, traffic.items.count - 1)
        }
        let means = round != .cutOff ? "" : cluster.losesPackets ? " by lost packets" : " by silent relays"
        report("\(round)\(means): pause \(seconds(traffic.pause(since: began))) s")
        switch round {
        case .killedWhileStalled, .killed: try await cluster.revive(primary)
        case .killedWithEtcd:
            try await cluster.revive(primary)
            try await cluster.reviveEtcd(number % 3)
        case .cutOff: try await cluster.letMeet(primary)
        case .switchover: break
        }
        try await cluster.untilWhole()
    }
}
