/// Actions with the moments they are due: a binary heap, where cancelled entries are dropped lazily.
struct TimerQueue<Action> {
    typealias ID = UInt64

    private var actions: [ID: Action] = [:]
    private var heap: [(due: ContinuousClock.Instant, id: ID)] = []
    private var lastID: ID = 0

    var count: Int { actions.count }

    /// How many entries the heap holds, dead ones included.
    var entries: Int { heap.count }

    mutating func add(at due: ContinuousClock.Instant, _ action: Action) -> ID {
        lastID += 1
        actions[lastID] = action
        heap.append((due, lastID))
        siftUp(from: heap.count - 1)
        return lastID
    }

    mutating func remove(_ id: ID) {
        guard actions.removeValue(forKey: id) != nil else { return }
        // Most timers are cancelled long before they are due, so dead entries are swept once they outnumber the living.
        if heap.count > 64, heap.count > actions.count * 2 {
            heap = heap.filter { actions[$0.id] != nil }.sorted { $0.due < $1.due }
        }
    }

    /// When the next action comes due; may be early by a cancelled one.
    var nextDue: ContinuousClock.Instant? { heap.first?.due }

    /// Takes out all actions that are due, earliest first.
    mutating func takeDue(at now: ContinuousClock.Instant) -> [Action] {
        var due: [Action] = []
        while let first = heap.first, first.due <= now {
            popFirst()
            if let action = actions.removeValue(forKey: first.id) { due.append(action) }
        }
        return due
    }

    private mutating func siftUp(from start: Int) {
        var child = start
        while child > 0 {
            let parent = (child - 1) / 2
            guard heap[child].due < heap[parent].due else { return }
            heap.swapAt(child, parent)
            child = parent
        }
    }

    private mutating func popFirst() {
        heap.swapAt(0, heap.count - 1)
        heap.removeLast()
        var parent = 0
        while true {
            var smallest = parent
            for child in [2 * parent + 1, 2 * parent + 2]
            where child < heap.count && heap[child].due < heap[smallest].due {
                smallest = child
            }
            guard smallest != parent else { return }
            heap.swapAt(parent, smallest)
            parent = smallest
        }
    }
}
