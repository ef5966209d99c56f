import Entitlements
import Testing

/// A history that once went wrong, in its shortest form.
struct KnownHistory: Sendable, CustomTestStringConvertible {
    var name: String
    var setup: HistorySetup
    var steps: [Step]

    var testDescription: String { name }

    init(_ name: String, users: Int = 1, items: [Int?] = [], attempts: Int = 3, backsOff: Bool = false, _ steps: [Step])
    {
        self.name = name
        setup = HistorySetup(
            maxAttempts: attempts,
            backsOff: backsOff,
            users: (0..<users).map { _ in (.free, .active) },
            items: items.enumerated().map { index, owner in
                StoreItem(customer: owner, names: ["rc-\(index)", "st-\(index)"])
            }
        )
        self.steps = steps
    }

    private static func work(_ manner: Manner = .full) -> [Step] {
        [.claim(.a, 9), .read(.a, pick: nil, manner), .apply(.a, upTo: 9)]
    }

    static let all: [KnownHistory] = [
        KnownHistory(
            "A cancellation outlives its worker, whatever else of the user is canceled meanwhile",
            [
                .tap(user: 0), .claim(.a, 9), .cancel(0), .expire(.a), .rescue(.b), .reconcile(user: 0), .cancel(0),
                .claim(.b, 9), .read(.b, pick: nil, .full), .apply(.b, upTo: 9),
            ]
        ),
        KnownHistory(
            "A successor takes over neither the attempts nor the error of the job that was canceled before it",
            items: [0],
            attempts: 2,
            [.tap(user: 0), .claim(.a, 9), .tap(user: 0), .read(.a, pick: nil, .failed(.unavailable, wished: false))]
                + [.apply(.a, upTo: 9), .cancel(1)] + work(.failed(.unavailable, wished: false)) + work()
        ),
        KnownHistory(
            "A successor does not wait out the wait of the job that was canceled before it",
            items: [0],
            backsOff: true,
            [.tap(user: 0), .claim(.a, 9), .tap(user: 0), .read(.a, pick: nil, .failed(.unavailable, wished: false))]
                + [.apply(.a, upTo: 9), .cancel(1)] + work()
        ),
        KnownHistory(
            "A purchase that two customers list at once comes to rest",
            users: 2,
            items: [0, 1],
            [.store(item: 1, .overlap(with: 0))]
        ),
        KnownHistory(
            "Items of one reading that lead from row to row end in one row, with all their names",
            items: [0, 0, 0],
            [.reconcile(user: 0)] + work() + [.store(item: 2, .overlap(with: 1)), .store(item: 1, .overlap(with: 0))]
        ),
        KnownHistory(
            "A restore that waits for its product is woken by the mapping, also where a reconcile is due",
            items: [0],
            backsOff: true,
            [.store(item: 0, .becomeGold), .tap(user: 0)] + work() + [.reconcile(user: 0), .map(true)] + work()
        ),
        KnownHistory(
            "A job that was taken before an erasure changes nobody who has the id afterwards",
            items: [0],
            [
                .host(user: 0, .addLapsedAssets(1)), .tap(user: 0), .claim(.a, 9), .read(.a, pick: nil, .full),
                .erase(user: 0), .apply(.a, upTo: 9),
            ]
        ),
    ]
}

extension HistoryTests {
    @Test(arguments: KnownHistory.all)
    func `A history that once went wrong goes well`(known: KnownHistory) async throws {
        try await Lane.with { lane in
            let (_, failure) = await Histories.attempt(known.setup, known.steps, lane)
            #expect(failure == nil, "\(failure?.text ?? "")")
        }
    }
}
