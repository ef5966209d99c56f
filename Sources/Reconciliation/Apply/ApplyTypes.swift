package import Entitlements
package import FoundationEssentials
import Queue
import UserRequests

/// What applying goes by.
package struct ApplySettings: Sendable {
    package var decision: DecisionSettings
    package var brake: DemotionBrake
    package var retry: RetryPolicy
    /// Assets of one user that are changed beside the type; the rest goes on in runs.
    package var assetBatch: Int
    /// How long a batch that may demote waits for a count of the host's subscribers; after that housekeeping's has to do.
    package var countLimit = Duration.milliseconds(250)
    /// Whether sales that were granted are acknowledged to Google Play.
    package var acknowledges: Bool
    /// Whether changes are published in the outbox.
    package var publishes: Bool
    /// Whether users' custom claims are kept at Firebase.
    package var keepsClaims = false
    /// Whether a restore's answer is wanted in this process, beside the notification of its end.
    package var wantsAnswer: @Sendable (UUID) -> Bool = { _ in false }

    package init(
        decision: DecisionSettings,
        brake: DemotionBrake,
        retry: RetryPolicy,
        assetBatch: Int = 1000,
        acknowledges: Bool = true,
        publishes: Bool = false
    ) {
        self.publishes = publishes
        self.acknowledges = acknowledges
        self.decision = decision
        self.brake = brake
        self.retry = retry
        self.assetBatch = assetBatch
    }
}

/// What became of a batch.
package struct ApplyReport: Sendable {
    /// Jobs that ended, in no order.
    package var ended: [JobEnd] = []
    /// What callers of the restores among them are answered, where the settings want that.
    var answers: [RestoreAnswer] = []
    package var retried = 0
    /// Jobs that are still ours: another transaction has locked a row, or another job of the batch touched the same purchase.
    package var postponed: [ReadJob] = []
    /// Jobs that are not ours any more.
    package var lost = 0
    /// Everything is paused, or the lease has ended: nothing was written.
    package var halted: Halt?
    /// Assets that were frozen or unfrozen.
    package var assetsChanged = 0
    /// Assets went on into runs.
    package var startedRuns = false
    /// Sales wait to be acknowledged.
    package var acknowledges = false
    /// Other users' purchases under submitted store accounts are to be searched for.
    package var searchesAccounts = false
    /// Names of the alarms that were raised.
    package var alarms: [String] = []
    /// Jobs became due: reconciles were queued, or what waited behind a job has its turn.
    package var enqueued = false

    package enum Halt: String, Sendable { case paused, leaseLost = "lease_lost" }
}
