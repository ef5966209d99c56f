// The parts of Google Play Billing 8 that the client calls, by their published signatures, for a compiler without the library.

package com.android.billingclient.api

abstract class BillingClient {
    annotation class BillingResponseCode { companion object { const val OK = 0 } }
    annotation class ProductType { companion object { const val SUBS = "subs"; const val INAPP = "inapp" } }
}

class BillingResult { val responseCode: Int = 0 }

class Purchase(val purchaseToken: String)

data class PurchasesResult(val billingResult: BillingResult, val purchasesList: List<Purchase>)

class QueryPurchasesParams private constructor() {
    class Builder {
        fun setProductType(type: String): Builder = this
        fun build(): QueryPurchasesParams = QueryPurchasesParams()
    }
    companion object { @JvmStatic fun newBuilder(): Builder = Builder() }
}

suspend fun BillingClient.queryPurchasesAsync(params: QueryPurchasesParams): PurchasesResult =
    PurchasesResult(BillingResult(), emptyList())
