/// A worker's tokens for one share of a store's limit, taken from the shared bucket ahead of requests.
///
/// They are good for a second: what is kept longer could be spent together with what the bucket has refilled since, and
/// the limit with it. How many are taken at once follows what was spent of the last ones, so that few are lost.
struct LocalTokenCache {
    /// How long tokens in hand are good for; the bucket's filling leaves as much aside.
    static let validity = Duration.seconds(1)

    /// What to do for one request.
    enum Step: Equatable {
        /// A token is spent: go.
        case go
        /// Another request of this share asks the bucket, or the bucket has no token before that moment.
        case wait(Duration)
        /// Ask for so many tokens, and say with ``add(_:wait:at:)`` what came.
        case refill(Int)
    }

    private let largest: Int
    private let rest: Duration
    private var tokens = 0
    /// The last ones: how many, and when.
    private var taken: (count: Int, at: ContinuousClock.Instant)?
    private var chunk = 1
    private var refillingSince: ContinuousClock.Instant?
    private var emptyUntil: ContinuousClock.Instant?

    /// Asks for `largest` tokens at once at most, and for none within `rest` after the bucket was empty.
    init(largest: Int, rest: Duration = .zero) {
        self.largest = max(1, largest)
        self.rest = rest
    }

    /// Spends a token, or says what to do instead.
    mutating func spend(at now: ContinuousClock.Instant) -> Step {
        if let taken, now - taken.at > Self.validity {
            if tokens > 0 {
                chunk = max(1, taken.count - tokens)
                tokens = 0
                self.taken = nil
            } else if now - taken.at > Self.validity * 2 {
                // All were spent, but that is long ago.
                chunk = 1
                self.taken = nil
            }
        }
        if tokens > 0 {
            tokens -= 1
            return .go
        }
        // If the bucket takes long to answer, polling less often delays no request.
        if let refillingSince { return .wait(max(.milliseconds(5), min(now - refillingSince, .milliseconds(100)))) }
        if let emptyUntil, emptyUntil > now { return .wait(emptyUntil - now) }
        // Gone in half the time that they are good for, and more are wanted: twice as many are not lost either.
        if let taken, taken.count >= chunk, now - taken.at < Self.validity / 2 { chunk = min(largest, chunk * 2) }
        refillingSince = now
        return .refill(chunk)
    }

    /// Takes the tokens that the bucket gave; the first is the asking request's, however long the bucket took.
    ///
    /// `wait`: when it makes sense to ask again, where there were none. `now`: the moment before the bucket was asked.
    /// Returns whether there was one.
    mutating func add(_ count: Int, wait: Duration, at now: ContinuousClock.Instant) -> Bool {
        refillingSince = nil
        guard count > 0 else {
            emptyUntil = wait > .zero ? now + max(wait, rest) : nil
            return false
        }
        emptyUntil = nil
        tokens += count - 1
        taken = (count, now)
        return true
    }
}
