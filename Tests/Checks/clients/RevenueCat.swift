// The parts of RevenueCat's SDK that the client calls, by their published signatures, for a compiler without the library.

import Foundation

public final class Purchases: Sendable {
    public static var shared: Purchases { Purchases() }
    public func restorePurchases() async throws -> CustomerInfo { CustomerInfo() }
}

public final class CustomerInfo: Sendable {}
public struct Transaction: Sendable {}

public enum ErrorCode: Int, CustomNSError {
    case receiptAlreadyInUseError = 7
    public static var errorDomain: String { "RevenueCat.ErrorCode" }
    public var errorCode: Int { rawValue }
}
