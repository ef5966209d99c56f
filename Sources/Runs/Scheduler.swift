import FoundationEssentials
package import Logging
import Metrics
package import Queue
import RateLimits
package import Schedules
import ServiceLifecycle

/// Starts the runs that schedules ask for.
///
/// Any number of processes may have one; the one that leads does it.
package struct Scheduler: Service {
    private let lead: Leadership
    private let store: ScheduleStore
    private let logger: Logger
    /// A schedule that can't be read stays so until an operator mends it.
    private let complaints = Throttle(every: .seconds(600))

    /// The logger gets what is started, and schedules that can't be read.
    package init(lead: Leadership, store: ScheduleStore, logger: Logger) {
        self.lead = lead
        self.store = store
        self.logger = logger
    }

    package func run() async { await cancelWhenGracefulShutdown { await start() } }

    private func start() async {
        let leads = Gauge(label: "entitlement_sync_scheduler_leads")
        leads.record(0)
        await lead.whileLeading("schedules can't be followed; trying again", logger: logger) { fence in
            try await step(fence)
        } onChange: {
            leads.record($0 ? 1 : 0)
        }
        leads.record(0)
    }

    /// Starts what is due, and returns how long to wait before the next step.
    ///
    /// Of the slots that were missed the newest is caught up, once.
    package func step(_ fence: Int64) async throws -> Duration {
        let (schedules, now) = try await store.all()
        let unreadable = schedules.filter { Self.schedule(of: $0) == nil }.map(\.name)
        if !unreadable.isEmpty, complaints.isDue() {
            logger.error(
                "schedules can't be read; set them again with entitlement-sync schedule set",
                metadata: ["schedules": "\(unreadable.joined(separator: ", "))"]
            )
        }
        for record in schedules {
            guard let slot = Self.schedule(of: record)?.missed(since: record.slotAt, upTo: now),
                let run = try await store.start(record.name, slot: slot, fence: fence)
            else { continue }
            logger.notice(
                "a schedule has started a run",
                metadata: ["schedule": "\(record.name)", "run.id": "\(run)", "run.scope": "\(record.scopeName)"]
            )
        }
        return .seconds(1)
    }

    /// What a record says, where it can be read.
    package static func schedule(of record: ScheduleRecord) -> Schedule? {
        guard let cron = try? CronExpression(record.cron), let zone = try? TimeZoneName(record.zone) else { return nil }
        return Schedule(cron, in: zone)
    }
}
