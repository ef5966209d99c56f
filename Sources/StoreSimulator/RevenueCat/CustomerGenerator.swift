/// A block of customers that exist only as a pattern until one is requested.
struct CustomerGenerator: Sendable {
    private let block: Int
    private let pattern: IDPattern
    private let aliasPatterns: [IDPattern]
    private let numbers: Range<Int>
    private let spreadMs: Int64
    /// One finished customer a state of the mix, with the numbers below which it serves.
    private let templates: [(below: Int, record: CustomerRecord)]
    private let shares: Int

    /// Prepares a block; its number, 0 to 98, is part of every identifier of the block.
    init?(_ scenario: GeneratedCustomers, block: Int, builder: inout RecordBuilder) {
        guard let pattern = IDPattern(scenario.id) else { return nil }
        self.block = block
        self.pattern = pattern
        aliasPatterns = scenario.aliases.compactMap { IDPattern($0) }
        numbers = scenario.from..<(scenario.from + scenario.count)
        spreadMs = scenario.spread.milliseconds
        var below = 0
        var templates: [(below: Int, record: CustomerRecord)] = []
        // Sorted, so that the same scenario gives a customer the same state in every run.
        for (name, share) in scenario.shares.sorted(by: { $0.key < $1.key }) where share > 0 {
            below += share
            let template = CustomerScenario(
                state: LifeState(rawValue: name),
                subscriptions: scenario.subscriptions,
                purchases: scenario.purchases
            )
            templates.append((below, builder.customer(template)))
        }
        self.templates = templates
        shares = max(below, 1)
    }

    /// The number of the customer with an id or alias of this block.
    func number(of id: String) -> Int? {
        for pattern in [pattern] + aliasPatterns {
            if let number = pattern.number(in: id), numbers.contains(number) { return number }
        }
        return nil
    }

    /// The customer of a number.
    func customer(_ number: Int) -> CustomerRecord {
        let share = number % shares
        var record = templates.first { share < $0.below }?.record ?? templates[0].record
        record.id = pattern.text(number)
        if !aliasPatterns.isEmpty { record.aliases = aliasPatterns.map { $0.text(number) } }
        let shift = spreadMs / 1000 * Int64(number % 1000)
        for index in record.subscriptions.indices {
            let digits = code(item: index, number: number)
            record.subscriptions[index].identify(digits, digits: digits)
            if shift != 0 {
                record.subscriptions[index].periodEndsAtMs? += shift
                record.subscriptions[index].endsAtMs? += shift
            }
        }
        for index in record.purchases.indices {
            let digits = code(item: 500 + index, number: number)
            record.purchases[index].identify(digits, digits: digits)
        }
        return record
    }

    /// The number in one of this block's identifiers; the caller still compares the whole identifier.
    func number(inIdentifier identifier: String) -> Int? {
        // Amazon appends `:3:11`; every other form ends in the fifteen digits.
        let digits = identifier.prefix { $0 != ":" }.filter(\.isNumber).suffix(15)
        guard digits.count == 15, let code = Int(digits), code / 10_000_000_000_000 == block + 1 else { return nil }
        let number = code % 10_000_000_000
        return numbers.contains(number) ? number : nil
    }

    /// Fifteen digits: two for the block, three for the item (subscriptions, from 500 on purchases), ten for the number.
    private func code(item: Int, number: Int) -> String {
        Identifiers.padded(
            Int64(block + 1) * 10_000_000_000_000 + Int64(item % 1000) * 10_000_000_000 + Int64(number),
            to: 15
        )
    }
}
