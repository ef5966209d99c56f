import Entitlements
import Testing

/// The ways that a ticket can go.
@Suite struct TicketTransitionTests {
    private static func reached(from start: TicketState, avoiding: Set<TicketState> = []) -> Set<TicketState> {
        var seen: Set<TicketState> = [start]
        var open = [start]
        while let state = open.popLast() {
            for row in ticketTransitions where row.from == state && !avoiding.contains(row.to) {
                if seen.insert(row.to).inserted { open.append(row.to) }
            }
        }
        return seen
    }

    @Test func `A state and an event lead to one state at most, the one that is looked up`() {
        for state in TicketState.allCases {
            for event in TicketEvent.allCases {
                let rows = ticketTransitions.filter { $0.from == state && $0.event == event }
                #expect(rows.count <= 1, "\(state) \(event)")
                #expect(rows.first?.to == state.next(on: event))
            }
        }
    }

    @Test func `Every event happens somewhere, and every state can be reached`() {
        #expect(Set(ticketTransitions.map(\.event)) == Set(TicketEvent.allCases))
        #expect(Self.reached(from: .new) == Set(TicketState.allCases))
    }

    @Test(arguments: TicketState.allCases.filter(\.isOpen))
    func `No open ticket is stuck: it can come to an end`(state: TicketState) {
        #expect(Self.reached(from: state).contains { !$0.isOpen })
    }

    @Test(arguments: TicketState.allCases.filter { !$0.isOpen })
    func `What has ended begins anew or stays as it is`(state: TicketState) {
        for row in ticketTransitions where row.from == state {
            #expect(row.event == .reopen && row.to == .new)
        }
        // What was moved is moved back by a case of its own.
        #expect(state != .transferred || state.next(on: .reopen) == nil)
    }

    @Test func `Nothing is transferred that was not approved, and executed`() {
        #expect(!Self.reached(from: .new, avoiding: [.approved]).contains(.executing))
        #expect(!Self.reached(from: .new, avoiding: [.executing]).contains(.transferred))
        let approving: Set<TicketEvent> = [.approveAll, .windowEnded]
        for row in ticketTransitions where row.to == .approved { #expect(approving.contains(row.event)) }
    }

    @Test func `What has begun is ended by its own steps alone`() {
        let events = ticketTransitions.filter { $0.from == .executing }.map(\.event)
        #expect(Set(events) == [.executed, .executionStopped])
    }

    @Test(arguments: [TicketState.needsSecond, .waitingOwner, .approved])
    func `An objection, and evidence that changed, take approvals back wherever there are some`(state: TicketState) {
        #expect(state.next(on: .ownerObjected) == .new)
        #expect(state.next(on: .approvalsVoided) == .new)
    }

    @Test(arguments: TicketState.allCases.filter(\.isOpen))
    func `The owner is heard until the transfer has begun`(state: TicketState) {
        #expect((state.next(on: .ownerObjected) != nil) == (state != .executing))
    }

    @Test func `The clocks stand still while others have to act`() {
        #expect(TicketState.allCases.filter(\.pausesClocks) == [.waitingClaimant, .waitingOwner])
    }

    @Test func `States are written as the contract names them`() {
        let names = [
            "new", "claimed", "waiting_claimant", "waiting_owner", "needs_second", "approved", "executing",
            "transferred", "refused", "expired", "auto_resolved", "duplicate",
        ]
        #expect(Set(TicketState.allCases.map(\.rawValue)) == Set(names))
        let closed: Set<String> = ["transferred", "refused", "expired", "auto_resolved", "duplicate"]
        #expect(Set(TicketState.allCases.filter { !$0.isOpen }.map(\.rawValue)) == closed)
    }
}
