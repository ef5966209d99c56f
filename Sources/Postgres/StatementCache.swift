/// The statements a session has prepared, by text and parameter types; the least recently used give way.
struct StatementCache {
    /// What makes two statements the same to the server.
    struct Key: Hashable {
        var sql: String
        var types: [UInt32]

        init(_ query: PostgresQuery) {
            sql = query.sql
            types = query.binds.map(\.type.rawValue)
        }
    }

    private struct Entry {
        var name: String
        var lastUse: UInt64
    }

    /// Names that the server still holds and no query needs; to be deallocated when convenient.
    private(set) var discarded: [String] = []
    private let capacity: Int
    private var entries: [Key: Entry] = [:]
    private var clock: UInt64 = 0
    private var lastName = 0

    init(capacity: Int) { self.capacity = max(1, capacity) }

    var count: Int { entries.count }

    /// The name of a prepared statement; counts as its use.
    mutating func name(for key: Key) -> String? {
        clock += 1
        entries[key]?.lastUse = clock
        return entries[key]?.name
    }

    /// A name that the session has not used yet.
    mutating func freshName() -> String {
        lastName += 1
        return "s\(lastName)"
    }

    /// Remembers a statement that the server has prepared, in the place of the one unused for longest.
    mutating func insert(_ key: Key, name: String) {
        // A walk over all, but only when a new statement comes to a full cache, beside a round trip for it.
        if entries.count >= capacity, let oldest = entries.min(by: { $0.value.lastUse < $1.value.lastUse }) {
            forget(oldest.key)
        }
        clock += 1
        entries[key] = Entry(name: name, lastUse: clock)
    }

    /// Drops a statement, so that its next use prepares it again.
    mutating func forget(_ key: Key) {
        guard let entry = entries.removeValue(forKey: key) else { return }
        discarded.append(entry.name)
    }

    mutating func takeDiscarded() -> [String] {
        defer { discarded = [] }
        return discarded
    }
}
