extension StoreSimulator {
    /// How to write a scenario and how to steer a running simulator; also the answer to `GET /`.
    package static let guide =
        [
            revenueCatGuide, AppStoreSimulation.guide, GooglePlaySimulation.guide, OnsideSimulation.guide,
            IdentitySimulation.guide, webhookGuide,
        ]
        .joined(separator: "\n\n")

    private static let revenueCatGuide = """
        STORE SIMULATOR

        RevenueCat's REST API v2 answers below /v2: use http://HOST:PORT/v2 as the base URL, any key that starts with
        sk_ (or one of api_keys), and the project of the scenario.

        SCENARIO (YAML, or JSON in a file named *.json); every key may be left out
          project: proj0a1b2c3d            requests for another project: 403
          api_keys: [sk_one, {key: sk_two, write: false}]
          rate_limit_per_minute: 480       0 = no limit; project_rate_limit_per_minute: 60 for the catalogue
          retry_after_unit: seconds        or milliseconds
          paging: {link: absolute, end: null, default_limit: 20, nested_limit: 20, base: "https://..."}
                                           link: absolute | relative; end: "null" | absent
          empty_transfer: ok               or unprocessable
          entitlements: [{lookup_key: premium, id: entl9f8e7d6c5b, display_name: Premium}]
          customers:
            - {id: user-1, state: active}
            - id: user-2
              aliases: ["$RCAnonymousID:0f1e2d3c4b5a69788796a5b4c3d2e1f0"]
              subscriptions: [expired, {state: cancelled, ends: +12d, store: play_store}]
              purchases: [lifetime]
          generate:
            - {id: "user-{n}", from: 1, count: 1000000, mix: {active: 70, expired: 30}, spread: 30d}
          default_customer: {state: active}   what an unlisted id answers; without it: 404
          stores_know_purchases: false     true: the App Store and Google Play know what customers bought there, with the
                                           same dates; what app_store and google_play list stands before it
          faults: [{endpoint: subscriptions, latency: 50ms}]

        States: active trial cancelled grace billing_retry pause_scheduled paused expired refunded lifetime
          lifetime_refunded consumable promotional family_shared sandbox incomplete unknown unmapped price_increase
          product_change none
        Times: +12d, -3h, +1d12h30m, now, or Unix milliseconds. Units: ms s m h d w y.
        Fields of a subscription: state id app product_id starts ends current_period_starts_at ends_at status
          gives_access auto_renewal_status pending_payment environment store store_subscription_identifier
          past_identifiers ownership original_customer_id entitlements presented_offering_id pending_product country
          management_url gross at_end (stay | expire | renew) known_to_store (true | false, whatever is said of all)
        Fields of a purchase: state id app product_id purchased_at status quantity environment store
          store_purchase_identifier ownership original_customer_id entitlements presented_offering_id country gross
          known_to_store
        Products at the stores: product_id, else premium_monthly and lifetime (App Store), pro and lifetime (Google Play);
          other entitlements' begin with their lookup key. A token of Google Play's is shared.ORDER
        Fields of a customer: id aliases state subscriptions purchases first_seen last_seen country attributes

        FAULTS; a rule applies to requests that match customer, endpoint and method (left out: any)
          skip: N  times: N  every: N      pass N first; hit N at most; hit each Nth
          latency: 50ms  latency_max: 80ms
          status: 503                      error_type, retryable, backoff; processed: true carries the request out
          body: html | empty | truncated | deep | huge     size: bytes or levels
          connection: drop_before | drop_midway | reset_after
          drip_bytes: 16  drip_every: 50ms
          repeat_cursor: true              date_skew: +45s
        Several rules may match; each field comes from the first rule that sets it.
        Endpoints: customer subscriptions purchases aliases active_entitlements find_subscriptions find_purchases
          subscription subscription_entitlements subscription_transactions purchase purchase_entitlements entitlements
          customers create_customer delete_customer transfer grant_entitlement revoke_granted_entitlement

        CONTROL
          PUT    /control/customers/ID     {"state":"expired"}: store a customer; GET shows it, DELETE removes it
          POST   /control/faults           one rule or a list; GET lists them, DELETE removes all
          GET    /control/requests         counts; ?customer=ID or ?customers=true; DELETE counts afresh,
                                           with ?log=true it keeps their order, which GET ?log=true tells
          POST   /control/clock            {"shift":"+13d"} {"set":1790000000000} {"frozen":true}; GET tells the time
          GET    /control/events           what the store would have sent as webhooks
          POST   /control/reset            the scenario as loaded, relative times counted from now
          PUT    /control/scenario         another scenario, as JSON

        """
}
