package import Postgres
import Synchronization

/// Hands out purchase ids from blocks of the database's sequence, so that a batch of new rows needs no round trip.
package final class PurchaseNumbers: Sendable {
    private static let blockSize: Int64 = 1000
    private let block = Mutex<ClosedRange<Int64>?>(nil)

    package init() {}

    /// Takes `count` ids; asks the sequence where the block at hand does not suffice.
    package func take(_ count: Int, on connection: PostgresConnection) async throws -> [Int64] {
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
            let end = try await draw(on: connection)
            block.withLock { block in
                // Another batch may have fetched a block meanwhile: then ours is used first and the gap is harmless.
                block = (end - Self.blockSize + 1)...end
            }
        }
        return ids
    }

    /// Gives up the block at hand: a number of it was taken by another process.
    ///
    /// After a failover that lost the end of the sequence, a block is given again.
    package func drop() { block.withLock { $0 = nil } }

    /// How many blocks are passed over at most: ten million numbers.
    private static let mostPassed = 10_000

    /// Draws the last number of a block of which no number is in use.
    private func draw(on connection: PostgresConnection) async throws -> Int64 {
        for _ in 0..<Self.mostPassed {
            let rows = try await connection.query(
                """
                SELECT b.last, EXISTS (SELECT 1 FROM entitlement_sync.purchase AS p
                                        WHERE p.id > b.last - \(Self.blockSize) AND p.id <= b.last)
                  FROM (SELECT nextval('entitlement_sync.purchase_id_block') AS last OFFSET 0) AS b
                """
            )
            guard let (last, isUsed) = try rows.first?.decode(Int64.self, Bool.self) else { break }
            if !isUsed { return last }
        }
        throw PostgresError(.protocolViolation, message: "the purchase sequence gave no number that is free")
    }
}
