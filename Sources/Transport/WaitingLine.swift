/// A first-in, first-out line whose members may leave from the middle.
///
/// Leaving marks an empty place; the places are swept once they outnumber the members, so every operation is O(1) or
/// O(log n) over time and memory stays proportional to the members.
struct WaitingLine<Element> {
    /// A member's place, stable while the line moves.
    typealias Ticket = Int

    private var places: [(ticket: Ticket, element: Element?)] = []
    private var head = 0
    private var nextTicket = 0
    private(set) var count = 0

    var isEmpty: Bool { count == 0 }

    mutating func append(_ element: Element) -> Ticket {
        defer { nextTicket += 1 }
        places.append((nextTicket, element))
        count += 1
        return nextTicket
    }

    mutating func popFirst() -> Element? {
        while head < places.count {
            let element = places[head].element
            places[head].element = nil
            head += 1
            if let element {
                count -= 1
                sweep()
                return element
            }
        }
        return nil
    }

    /// Takes a member out; `nil` where it has left already.
    mutating func remove(_ ticket: Ticket) -> Element? {
        var (low, high) = (head, places.count)
        while low < high {
            let middle = (low + high) / 2
            if places[middle].ticket < ticket { low = middle + 1 } else { high = middle }
        }
        guard low < places.count, places[low].ticket == ticket, let element = places[low].element else { return nil }
        places[low].element = nil
        count -= 1
        sweep()
        return element
    }

    private mutating func sweep() {
        guard places.count > 64, places.count > 2 * count else { return }
        places.removeAll { $0.element == nil }
        head = 0
    }
}
