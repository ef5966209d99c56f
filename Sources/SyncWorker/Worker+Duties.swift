import Diagnostics
import Logging
import Metrics
import Postgres
import Queue
import Reconciliation
import StoreEvents

extension Worker {
    /// Keeps the lease, and takes a new one when it was lost.
    func heartbeatDuty() async {
        let interval = max(settings.lease / 5, .milliseconds(200))
        while !Task.isCancelled {
            do {
                if let epoch = shared.epoch {
                    if try await !leases.heartbeat(epoch) {
                        logger.warning("the lease has ended; registering again", metadata: ["worker.epoch": "\(epoch)"])
                        WorkerMetrics.shared.leasesLost.increment()
                        shared.epoch = nil
                        continue
                    }
                } else {
                    let epoch = try await leases.register(
                        host: settings.host,
                        pid: settings.pid,
                        version: settings.version,
                        lists: lister?.lists.map(\.name) ?? [],
                        mode: settings.mode
                    )
                    shared.epoch = epoch
                    shared.wake.raise()
                    logger.info("working", metadata: ["worker.epoch": "\(epoch)"])
                }
                try? await Task.sleep(for: interval)
            } catch {
                logger.warning("the lease could not be prolonged; trying again", metadata: describe(error))
                try? await Task.sleep(for: min(interval, .milliseconds(500)))
            }
        }
    }

    /// Frees what dead processes held.
    func rescueDuty() async {
        while !Task.isCancelled {
            do {
                let freed = try await leases.rescue()
                if freed > 0 {
                    WorkerMetrics.shared.rescued.increment(by: freed)
                    logger.warning("jobs of a dead worker were freed", metadata: ["jobs": "\(freed)"])
                    shared.wake.raise()
                }
            } catch {
                logger.info("dead workers could not be looked for", metadata: describe(error))
            }
            try? await Task.sleep(for: min(settings.lease / 4, .seconds(2)))
        }
    }

    /// Partitions and forgotten keys about once an hour, the brake's count every few minutes, the queue's size all the time.
    func housekeepingDuty() async {
        let clock = ContinuousClock()
        var nextHour = clock.now
        var nextMinute = clock.now
        // A worker that starts has better things to do than to look back, or a month ahead.
        var nextPartitions = clock.now + .seconds(60)
        var nextCheck = clock.now + .seconds(60)
        while !Task.isCancelled {
            // Each by itself: one that fails must not keep the others from being done.
            await housekeep { try await apply.keepAbsences() }
            if clock.now >= nextMinute {
                await housekeep { try await housekeeping.countSubscribers() }
                nextMinute = clock.now + .seconds(60)
            }
            if clock.now >= nextPartitions {
                var isDone = false
                await housekeep { isDone = try await partitions.maintain() }
                nextPartitions = clock.now + .seconds(isDone ? 3600 : 300)
            }
            if clock.now >= nextHour {
                let isDone = await housekeep { try await housekeeping.run() }
                nextHour = clock.now + .seconds(isDone ? 3600 : 300)
            }
            if clock.now >= nextCheck {
                await housekeep {
                    // One at a turn, which leaves the machine to others between them.
                    if try await !laws.step() { nextCheck = clock.now + .seconds(60) }
                }
            }
            await housekeep { _ = try await housekeeping.planChecks(background: settings.backgroundCheck) }
            await housekeep {
                if try await housekeeping.queueDueChecks() > 0 { shared.wake.raise() }
            }
            await housekeep {
                guard try await housekeeping.compactQueue() else { return }
                logger.info("the queue was full of dead rows and has been moved")
            }
            try? await Task.sleep(for: .seconds(5))
        }
    }

    @discardableResult
    private func housekeep(_ chore: () async throws -> Void) async -> Bool {
        do {
            try await chore()
            return true
        } catch {
            guard !Task.isCancelled else { return false }
            logger.warning("housekeeping failed; trying again in a while", metadata: describe(error))
            return false
        }
    }

    /// Carries big asset sets on.
    func assetDuty() async {
        while !Task.isCancelled, !shared.isStopping {
            do {
                if try await assets.step() { continue }
            } catch {
                guard !Task.isCancelled, !shared.isStopping else { return }
                logger.warning("an asset batch failed; trying again", metadata: describe(error))
                try? await Task.sleep(for: .milliseconds(500))
            }
            await shared.assetsWaiting.wait(upTo: .milliseconds(250))
        }
    }

    /// Tells whoever waits how jobs ended.
    func announceDuty() async {
        while !Task.isCancelled {
            await announce()
            await shared.answers.arrived.wait()
            // A notification costs a transaction: what is in no hurry is announced together.
            if shared.answers.areTold { try? await Task.sleep(for: .milliseconds(25)) }
        }
    }

    /// Announces what has ended since the last time; a lost hint is found by polling.
    func announce() async {
        let ended = shared.answers.takeAll()
        guard !ended.isEmpty else { return }
        do {
            try await notices.send(ended)
        } catch {
            // Whoever stopped this goes on with it on the way out.
            guard !Task.isCancelled else { return shared.answers.add(ended) }
            logger.info("outcomes could not be announced", metadata: describe(error))
        }
    }

    /// Trades the stores' limits and health with other workers.
    func exchangeDuty() async {
        while !Task.isCancelled {
            await exchange()
            try? await Task.sleep(for: .seconds(1))
        }
    }

    /// Asks whether the credentials in use know our customers, until that is settled.
    func credentialsDuty() async {
        guard let credentials else { return }
        while !Task.isCancelled {
            do {
                if try await credentials.run() { return }
            } catch {
                guard !Task.isCancelled else { return }
                logger.warning("the stores' credentials could not be compared; trying again", metadata: describe(error))
            }
            try? await Task.sleep(for: .seconds(30))
        }
    }

    /// Hears of new restores.
    ///
    /// A notification is a hint; polling finds what it misses.
    func listenDuty() async {
        guard let listener else { return }
        do {
            try await listener.run(
                channels: ["entitlement_sync_wake"],
                onNotification: { shared.hear($0.payload) },
                onConnected: { shared.wake.raise() }
            )
        } catch is CancellationError {
            return
        } catch {
            guard !Task.isCancelled else { return }
            logger.warning("notifications are not heard; restores are found by polling", metadata: describe(error))
        }
    }
}
