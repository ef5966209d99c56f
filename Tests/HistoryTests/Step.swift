import Entitlements
import Runs

/// One of the two worker processes of a history.
enum Side: String, Sendable, CaseIterable { case a = "A", b = "B" }

/// One step of a history.
///
/// Numbers are taken modulo what there is when the step is made, so that a history stays one when steps are left out.
enum Step: Sendable, CustomStringConvertible {
    /// A person taps Restore, with a typed id of an item, an error of the client, and an idempotency key.
    case tap(user: Int, proof: Int? = nil, error: String? = nil, key: Int? = nil)
    case reconcile(user: Int)
    case store(item: Int, StoreChange)
    case host(user: Int, HostChange)
    case grant(user: Int)
    case endGrant(user: Int, revoking: Bool)
    /// The host's backend says that the user paid elsewhere, or that this is over.
    case pay(user: Int)
    case endPay(user: Int)
    case pause(String, Bool)
    /// The entitlement `gold` gets its row in the catalogue, or loses it.
    case map(Bool)
    case sandbox(user: Int, allowed: Bool)
    case claim(Side, Int)
    /// Reads the stores for one held job, or for all of them.
    case read(Side, pick: Int?, Manner)
    /// Applies held readings in one batch, in an order of its own, while a host's transaction holds something.
    case apply(Side, upTo: Int, turn: Int = 0, held: HeldRow? = nil)
    /// The same batch again, as after a commit whose answer was lost.
    case again(Side)
    case expire(Side)
    case rescue(Side)
    /// A heartbeat; whoever finds the lease gone registers anew and keeps what it holds in hand.
    case beat(Side)
    case restart(Side)
    case assets(Side, user: Int)
    case cancel(Int)
    case retryDead(Int)
    /// The waits of all delayed jobs pass.
    case wait
    /// Somebody asks for a run over many users; at most so many may be demoted.
    case sweep(RunRecord.Scope, isDry: Bool = false, most: Int32? = nil)
    /// Every run that goes on plans a stretch of so many users.
    case feed(Int)
    /// Ends the parts of runs that were read, and takes runs on to what follows.
    case plan
    /// A worker reads a part of a dry run.
    case part(Side)
    /// A person confirms what a run would change, by the hash or by another one.
    case release(Int, wrong: Bool = false)
    case cancelRun(Int)
    /// A store's event is about an item: its owner, or the user of its account, is read with it.
    case notify(item: Int)
    /// RevenueCat is asked with another project's key, or with the right one again.
    case othersKey(Bool)
    /// The database's clock was ahead when the user and the user's purchases were read last.
    case clockJump(user: Int)
    /// The user's next look is due.
    case fallDue(user: Int)
    case erase(user: Int)
    /// Support moves all that an item's owner has to a user; the store may go on naming the former one.
    case transfer(item: Int, to: Int, echoes: Bool = false)

    var description: String {
        switch self {
        case .tap(let user, let proof, let error, let key):
            "tap u\(user)" + (proof.map { " proof=i\($0)" } ?? "") + (error.map { " error=\($0)" } ?? "")
                + (key.map { " key=\($0)" } ?? "")
        case .reconcile(let user): "reconcile u\(user)"
        case .store(let item, let change): "store i\(item) \(change)"
        case .host(let user, let change): "host u\(user) \(change)"
        case .grant(let user): "grant u\(user)"
        case .endGrant(let user, let revoking): "\(revoking ? "revoke" : "expire") grant of u\(user)"
        case .pay(let user): "u\(user) pays elsewhere"
        case .endPay(let user): "u\(user) pays elsewhere no longer"
        case .pause(let name, let on): "\(on ? "pause" : "resume") \(name)"
        case .map(let on): on ? "map gold" : "unmap gold"
        case .sandbox(let user, let on): "sandbox u\(user) \(on ? "allowed" : "ended")"
        case .claim(let side, let limit): "\(side.rawValue) claims \(limit)"
        case .read(let side, let pick, let manner):
            "\(side.rawValue) reads \(pick.map { "#\($0)" } ?? "all") \(manner)"
        case .apply(let side, let limit, let turn, let held):
            "\(side.rawValue) applies \(limit) turn \(turn)" + (held.map { " while a host holds \($0)" } ?? "")
        case .again(let side): "\(side.rawValue) applies the last batch again"
        case .expire(let side): "the lease of \(side.rawValue) runs out"
        case .rescue(let side): "\(side.rawValue) rescues"
        case .beat(let side): "heartbeat of \(side.rawValue)"
        case .restart(let side): "\(side.rawValue) restarts"
        case .assets(let side, let user): "\(side.rawValue) does an asset batch of u\(user)"
        case .cancel(let job): "cancel job \(job)"
        case .retryDead(let job): "retry dead job \(job)"
        case .wait: "waits pass"
        case .sweep(let scope, let isDry, let most):
            "\(isDry ? "dry " : "")run \(scope.rawValue)" + (most.map { " of at most \($0) demotions" } ?? "")
        case .feed(let batch): "runs plan \(batch) users"
        case .plan: "runs go on"
        case .part(let side): "\(side.rawValue) reads a part of a dry run"
        case .release(let run, let wrong): "release run \(run)" + (wrong ? " by another hash" : "")
        case .cancelRun(let run): "cancel run \(run)"
        case .notify(let item): "the store notifies of i\(item)"
        case .othersKey(let on): on ? "another project's key" : "the right key again"
        case .clockJump(let user): "the clock was ahead when u\(user) was read"
        case .fallDue(let user): "a look at u\(user) falls due"
        case .erase(let user): "erase u\(user)"
        case .transfer(let item, let user, let echoes):
            "transfer of i\(item) to u\(user)" + (echoes ? ", and the store echoes" : "")
        }
    }
}

/// What happens to an item at its store.
enum StoreChange: Sendable, Hashable {
    case renew, announceEnd, expire, refund, pause, grace, billingRetry, pend, unknownWord, unknownWithAccess
    /// Still active by its status, but without access: no word that it is over.
    case fallSilent
    case vanish, reappear
    case move(to: Int)
    case becomeAnonymous
    /// Another user sees the item on a shared customer record.
    case share(with: Int)
    /// The item takes on another item's names, and the other one is listed no more.
    case join(with: Int)
    /// The item shows another item's names beside its own, and both stay listed.
    case overlap(with: Int)
    /// The item follows another one, which is over, under one of its names; both stay listed.
    case follow(Int)
    /// RevenueCat hears of it.
    case register
    /// Lists have no documented order.
    case turnLists
    case becomeFamilyShared
    /// Carries an entitlement without a row in the catalogue.
    case becomeGold
    case becomeGems
}

/// What the host's application does to a user or to the user's assets.
enum HostChange: Sendable, Hashable {
    case ban, banForGood, askDeletion, onboard, activate
    case remove, signUpAgain
    case makeSubscriber, makeFree
    case addAssets(Int)
    case addLapsedAssets(Int)
    /// Frozen without a recorded reason.
    case addMysteriousAsset
    case moderate, clearModeration
    case giveAsset(to: Int)
    case dropAsset
}

/// How a reading goes.
enum Manner: Sendable, Hashable {
    case full
    /// Only every other item, by parity.
    case partial(Int)
    case failed(ReadFailure.Code, wished: Bool)
    /// What an earlier reading of the user saw, with its time.
    case stale(Int)
}

/// What a host's open transaction holds while a batch is applied.
enum HeldRow: Sendable, Hashable {
    case user(Int)
    case asset(of: Int)
    /// The user's row of the queue: the host enqueues in its own transaction and takes its time.
    case queue(of: Int)
}
