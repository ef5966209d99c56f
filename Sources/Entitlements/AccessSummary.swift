/// What speaks for and against a user's access, once the reading is laid over the ledger.
package struct AccessSummary: Hashable, Sendable {
    /// An item of the user's own gives access now.
    package var hasAccess = false
    /// It is paid for; what goes on although the payment has failed is at risk.
    package var hasPaidAccess = false
    /// An item that gives access followed RevenueCat from another owner.
    package var followedOwner = false
    /// An item would give access if its entitlement stood in the catalogue.
    package var hasUnmapped = false
    package var hasUnknownStatus = false
    package var hasContradiction = false
    /// Items with access that the environment shuts out.
    package var hasSandboxOnly = false
    package var hasAnonymous = false
    /// The words of the user's own items that are over.
    package var endedWords: Set<StoreStatus.Known> = []
    /// The same of purchases without an owner that the user submitted: they refine what the user hears, and decide nothing.
    package var unownedEndedWords: Set<StoreStatus.Known> = []
    /// Stores that do not list a purchase which has to exist.
    package var unlistedBy: Set<Store> = []
    /// Entitlements that purchases carried before, and that go on at the store without them.
    package var detached: Set<String> = []
    package var hasPending = false
    /// When silence about the user's open items stops protecting them: period ends with their margins.
    package var softWindowEnds: Instant?
    /// Items last seen with access, and unheard of or without a word now.
    package var openItems = 0
    /// What gives access, or is not refuted yet, where something does.
    var held = HeldItems()
    /// Items last seen with access of stores that are not asked any more.
    package var unaskedItems = 0
    /// The widest margin among the user's stores.
    package var margin: Duration
    /// Every end was announced while the period still ran, and has come.
    private var allEndsAnnounced = true
    /// One of them came a short while ago: what ended long before is not what the user loses now.
    private var hasRecentEnd = false
    /// The user loses what a store had said would end, and nothing else.
    package var wasAnnounced: Bool { allEndsAnnounced && hasRecentEnd && !endedWords.isEmpty }

    package init(_ input: DecisionInput) {
        margin = input.settings.absenceMargin
        var seen: Set<Int64> = []
        let overruled = Self.overruled(input)
        for (index, observation) in input.reading.observations.enumerated() {
            let attribution = index < input.attributions.count ? input.attributions[index] : .new
            switch attribution {
            case .disagree, .collision, .otherUser, .contradicted: hasContradiction = true
            case .anonymous: hasAnonymous = true
            case .unowned where observation.isSubmitted: hear(observation, input)
            case .new, .own, .followed, .overtaken, .foreign, .unowned, .sameAccount, .unattributed: break
            }
            guard attribution.mayGiveAccess else { continue }
            let row = index < input.rows.count ? input.rows[index] : nil
            if let row { seen.insert(row.id) }
            var line = row.map { [$0] } ?? []
            if case .own(_, let merged) = attribution {
                seen.formUnion(merged)
                line += input.ledger.filter { merged.contains($0.id) }
            }
            // The ledger holds something newer: this reading is history for that lineage, whose newest rows speak for it.
            if let newest = line.map(\.observedAt).max(), newest > input.reading.askedAt {
                for past in line where past.observedAt == newest { add(past, before: past, of: row?.id, input) }
                continue
            }
            guard !overruled.contains(index) else { continue }
            let hadAccess = hasAccess
            hasAccess = false
            // Said by an earlier reading: the word that ends a period cannot announce itself.
            add(observation, before: row, at: index, input)
            if case .followed = attribution, hasAccess { followedOwner = true }
            if observation.isPaymentPending, !hasAccess { hasPending = true }
            hasAccess = hasAccess || hadAccess
        }
        for row in input.ledger where !seen.contains(row.id) {
            // A ledger row stands for access only when this very reading could not see it: a partial one proves nothing new.
            if row.observedAt > input.reading.askedAt {
                add(row, before: row, input)
            } else if input.reading.coverage == .full {
                addAbsent(row, input)
            } else {
                addUnread(row, input)
            }
        }
    }

    /// RevenueCat's items that their own store's statement replaces (`PrevailingItem.overruled`): one of the same reading, or
    /// an earlier one where that store was not asked again.
    private static func overruled(_ input: DecisionInput) -> Set<Int> {
        let items = input.reading.observations
        let counts = items.indices.map { place in
            place < input.attributions.count && input.attributions[place].counts
        }
        return PrevailingItem.overruled(items, counts: counts).union(
            items.indices.filter { items[$0].source == .revenueCat && wasOverruled(items[$0], $0, input) }
        )
    }

    /// Whether the store itself has said before that what RevenueCat lists is over, and was not asked again this time.
    private static func wasOverruled(_ item: Observation, _ index: Int, _ input: DecisionInput) -> Bool {
        guard input.reading.coverage != .full, index < input.rows.count, let row = input.rows[index],
            row.source != .revenueCat, input.reading.covered.contains(row.source), row.accessState == .ended
        else { return false }
        // Nothing has failed: the store only needs to be asked, which the next read does.
        guard input.reading.failure != nil else { return true }
        // It can't be asked; a later period is news all the same.
        switch (item.periodEndsAt, row.periodEndsAt) {
        case (nil, nil): return true
        case (let listed?, let known?): return listed <= known
        default: return false
        }
    }

    /// Whether an observation of access says, before the period's end, that there will be no next one.
    ///
    /// A status that ends access is none: a second read would find that it announced itself.
    package static func announces(_ observation: Observation, at moment: Instant) -> Bool {
        observation.announcesEnd && observation.periodEndsAt != nil && observation.isRunning(at: moment)
    }

    /// How long after an announced end a loss is still the one that was announced.
    private static let announcementLasts = Duration.seconds(7 * 86400)

    /// Notes whether an end is the one that the ledger's row announces: by its row or its store it has come, and it was not
    /// a refund, nor the payment that failed.
    private mutating func noteEnd(
        _ row: Purchase?,
        _ status: StoreStatus?,
        _ periodEndsAt: Instant?,
        _ input: DecisionInput
    ) {
        let askedAt = input.reading.askedAt
        let ends = [row?.periodEndsAt, periodEndsAt].compactMap(\.self)
        let isNatural = status.map { $0.known == .expired || $0.known == .paused } ?? true
        guard row?.endAnnounced == true, isNatural, let first = ends.min(), let last = ends.max(), first <= askedAt
        else {
            allEndsAnnounced = false
            return
        }
        if askedAt < last + Self.announcementLasts { hasRecentEnd = true }
    }

    /// Whether the store has to list a row: no answer without it is an absence.
    private func hasToBeListed(_ row: Purchase, _ input: DecisionInput) -> Bool {
        // It may be the item that can't be read.
        !input.reading.unreadable.contains(row.source) && isUnrefuted(row, input)
            && row.isRunning(at: input.reading.askedAt)
    }

    /// Whether nothing was said of a row that a reading does not list for the user.
    private func isUnrefuted(_ row: Purchase, _ input: DecisionInput) -> Bool {
        // The store names another owner for it, which is a word about it.
        guard !input.listed.contains(row.id) else { return false }
        // Support moved whatever RevenueCat held for the user.
        guard row.source == .revenueCat, let moved = input.movedAwayAt else { return true }
        return row.observedAt > moved
    }

    /// Notes a row that gave access and that the reading is silent about, as it was left out or has to be there.
    private mutating func hold(unlisted row: Purchase, _ input: DecisionInput) {
        let keys = [row.entitlements, row.carried].first { input.catalog.mapping(of: $0) == .access }
        guard let keys, row.accessState == .access, isUnrefuted(row, input) else { return }
        held.add(row, giving: keys, purchase: row.id, place: nil, input)
    }

    /// Notes a row that an incomplete reading left out; soon after its end the store may be late to say that it goes on.
    private mutating func addUnread(_ row: Purchase, _ input: DecisionInput) {
        guard !row.isSandbox || input.sandbox == .allowed else { return }
        let last = row.periodEndsAt.map { $0 + input.settings.margin(of: row.store) }
        guard last.map({ input.reading.askedAt < $0 }) ?? true else { return }
        hold(unlisted: row, input)
    }

    private mutating func addAbsent(_ row: Purchase, _ input: DecisionInput) {
        let last = row.accessState
        guard !row.isSandbox || input.sandbox == .allowed else { return }
        guard input.reading.covers(row) else {
            let mayCount = input.catalog.mapping(of: row.entitlements) != .noAccess
            if last == .access || last == .unsettled, mayCount { unaskedItems += 1 }
            if row.isRunning(at: input.reading.askedAt) { hold(unlisted: row, input) }
            return
        }
        switch last {
        case .ended:
            end(row, before: row, input)
        case .pending, .unknown:
            break
        case .access, .unsettled:
            let means = [row.entitlements, row.carried].map { input.catalog.mapping(of: $0) }
            guard means.contains(where: { $0 != .noAccess }) else { return goesOnWithoutAccess() }
            if hasToBeListed(row, input) { unlistedBy.insert(row.source) }
            if row.isRunning(at: input.reading.askedAt) { hold(unlisted: row, input) }
            // A row that is not listed any more has no soft window: absence has a margin of its own.
            open(store: row.store, periodEndsAt: nil, input)
            noteEnd(row, nil, row.periodEndsAt, input)
        }
    }

    /// Notes what a purchase without an owner says to the user who submitted it: that it is over, or not paid yet.
    private mutating func hear(_ item: Observation, _ input: DecisionInput) {
        guard !item.isSandbox || input.sandbox == .allowed,
            input.catalog.mapping(of: item.entitlements) != .noAccess
        else { return }
        switch item.accessState {
        case .ended: unownedEndedWords.insert(item.status.known)
        case .pending: hasPending = true
        case .access, .unsettled, .unknown: break
        }
    }

    /// Notes the entitlements that gave access and were detached, where an item goes on at the store without them.
    ///
    /// - Returns: them.
    private mutating func noteDetached(
        _ entitlements: [String],
        from row: Purchase?,
        _ input: DecisionInput
    ) -> [String] {
        guard let row, input.catalog.mapping(of: row.carried) == .access,
            input.catalog.mapping(of: entitlements) == .noAccess
        else { return [] }
        let gone = row.carried.filter { !entitlements.contains($0) && input.catalog.mapping(of: [$0]) == .access }
        detached.formUnion(gone)
        return gone
    }

    /// Notes a store's word that an item is over, unless the item never could give access.
    private mutating func end(_ item: some AccessItem, before row: Purchase?, _ input: DecisionInput) {
        let couldGiveAccess =
            item.entitlements.isEmpty
            ? item.kind == .subscription : input.catalog.mapping(of: item.entitlements) != .noAccess
        guard couldGiveAccess else { return }
        endedWords.insert(item.status.known)
        noteEnd(row, item.status, item.periodEndsAt, input)
    }

    /// Notes that what goes on at the store gives no access by a catalogue alone, ours or RevenueCat's, which may be a mistake:
    /// whatever else has ended, the store has not announced that the user's access would.
    private mutating func goesOnWithoutAccess() { allEndsAnnounced = false }

    private mutating func open(store: String, periodEndsAt: Instant?, _ input: DecisionInput) {
        openItems += 1
        let own = input.settings.margin(of: store)
        margin = max(margin, own)
        guard let end = periodEndsAt else { return }
        softWindowEnds = max(softWindowEnds ?? end + own, end + own)
    }

    /// `place`: the observation's, where the item is one; `lineage`: the row that it brings up to date, where `row` is another of its line.
    private mutating func add(
        _ item: some ProductItem,
        before row: Purchase?,
        of lineage: Int64? = nil,
        at place: Int? = nil,
        _ input: DecisionInput
    ) {
        let accessState = item.accessState
        let purchase = lineage ?? row?.id
        if accessState == .access, !item.isSandbox || input.sandbox == .allowed {
            let gone = noteDetached(item.entitlements, from: row, input)
            if !gone.isEmpty { held.add(item, giving: gone, purchase: purchase, place: place, input) }
        }
        // An item without entitlements (gems, tips) is no access and no alarm. A subscription may have lost them to a slip.
        guard !item.entitlements.isEmpty || accessState == .ended || accessState == .pending else {
            if item.kind == .subscription, accessState == .access || accessState == .unsettled { goesOnWithoutAccess() }
            return
        }
        let mapping = input.catalog.mapping(of: item.entitlements)
        if item.isSandbox, input.sandbox != .allowed {
            if accessState == .access, mapping != .noAccess { hasSandboxOnly = true }
            return
        }
        switch accessState {
        case .access:
            switch mapping {
            case .access:
                hasAccess = true
                if !item.isAtRisk { hasPaidAccess = true }
                held.add(item, giving: item.entitlements, purchase: purchase, place: place, input)
            case .unmapped: hasUnmapped = true
            case .noAccess: goesOnWithoutAccess()
            }
        case .ended:
            end(item, before: row, input)
        case .pending:
            hasPending = true
        case .unknown:
            hasUnknownStatus = true
        case .unsettled:
            guard mapping != .noAccess else { return goesOnWithoutAccess() }
            if let row, let end = item.periodEndsAt, row.accessState == .access || row.accessState == .unsettled,
                mapping == .access, input.reading.askedAt < end + input.settings.margin(of: item.store)
            {
                held.add(item, giving: item.entitlements, purchase: purchase, place: place, input)
            }
            open(store: item.store, periodEndsAt: item.periodEndsAt, input)
            noteEnd(row, nil, item.periodEndsAt, input)
        }
    }
}
