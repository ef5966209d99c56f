// A purchase as ios.md has it, for a compiler without the library.

import Foundation
import StoreKit

extension Entitlements {
    func buy(_ product: StoreKit.Product) async throws -> Shown? {
        let result = try await product.purchase(options: [.appAccountToken(UUID())])
        guard case .success(let transaction) = result else { return nil }
        return try await afterPurchase(transaction)
    }
}
