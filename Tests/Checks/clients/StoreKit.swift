// The parts of StoreKit 2 that the client calls, by their published signatures, for a compiler without the library.

import Foundation

public enum VerificationResult<SignedType: Sendable>: Sendable {
    case unverified(SignedType, any Error)
    case verified(SignedType)
}

extension VerificationResult where SignedType == Transaction {
    public var jwsRepresentation: String { "" }
}

extension VerificationResult where SignedType == AppTransaction {
    public var jwsRepresentation: String { "" }
}

public struct Transaction: Sendable {
    public struct Transactions: AsyncSequence, AsyncIteratorProtocol, Sendable {
        public func makeAsyncIterator() -> Transactions { self }
        public mutating func next() async -> VerificationResult<Transaction>? { nil }
    }

    public static var currentEntitlements: Transactions { Transactions() }
    public var productID: String { "" }
    public var revocationDate: Date? { nil }
    public var expirationDate: Date? { nil }
    public func finish() async {}
}

public struct AppTransaction: Sendable {
    struct Missing: Error {}
    public static var shared: VerificationResult<AppTransaction> { get async throws { throw Missing() } }
}

public struct Product: Sendable {
    public struct PurchaseOption: Hashable, Sendable {
        public static func appAccountToken(_ token: UUID) -> PurchaseOption { PurchaseOption() }
    }

    public enum PurchaseResult: Sendable {
        case success(VerificationResult<Transaction>)
        case userCancelled
        case pending
    }

    public func purchase(options: Set<PurchaseOption> = []) async throws -> PurchaseResult { .pending }
}

public enum AppStore {
    public static func sync() async throws {}
}

public enum StoreKitError: Error {
    case unknown
    case userCancelled
}
