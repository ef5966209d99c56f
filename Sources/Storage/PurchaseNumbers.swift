import Postgres
import Synchronization

/// Hands out purchase ids from blocks of the database's sequence, so that a batch of new rows needs no round trip.
final class PurchaseNumbers: Sendable {
    private static let blockSize: Int64 = 1000
    private let block = Mutex<ClosedRange<Int64>?>(nil)

    /// Takes `count` ids; asks the sequence where the block at hand does not suffice.
    func take(_ count: Int, on connection: PostgresConnection) async throws -> [Int64] {
        var ids: [Int64] = []
        ids.reserveCapacity(count)
        while ids.count < count {
            let wanted = count - ids.count
            let part = block.withLock { block -> [Int64] in
                guard let range = block else { return [] }
                let last = min(range.upperBound, range.lowerBound + Int64(wanted) - 1)
                block = last < range.upperBound ? (last + 1)...range.upperBound : nil
                return Array(range.lowerBound...last)
            }
            if !part.isEmpty {
                ids += part
                continue
            }
            let rows = try await connection.query("SELECT nextval('entitlement_sync.purchase_id_block')")
            guard let end = try rows.first?.decode(Int64.self, at: 0) else {
                throw PostgresError(.protocolViolation, message: "the purchase sequence gave no number")
            }
            block.withLock { block in
                // Another batch may have fetched a block meanwhile: then ours is used first and the gap is harmless.
                block = (end - Self.blockSize + 1)...end
            }
        }
        return ids
    }
}
