/// Users in every state that a restore may find them in, and what the stores hold for them.
enum RestoreScene {
    static let scenario = """
        customers:
          - {id: ann, state: active}
          - {id: owner, subscriptions: [{state: active, store_subscription_identifier: "2000000700000001"}]}
          - {id: retry, subscriptions: [expired, billing_retry]}
          - {id: ended, state: expired}
          - {id: tester, state: sandbox}
          - {id: banned, state: active}
          - {id: leaving, state: active}
          - {id: down, state: active}
          - {id: two, subscriptions: [active, {state: active, product_id: prod-other}]}
        app_store:
          customers:
            - id: apple-owner
              transactions: [{original: "2000000700000001", product: premium_monthly, state: active, expires: +20d}]
            - id: apple-payer
              transactions: [{original: "2000000800000001", product: premium_monthly, state: active, expires: +20d}]
        google_play:
          purchases: [{token: tok-player, state: active}]
        faults: [{customer: down, status: 503}]
        """

    static let users = [
        "ann", "owner", "retry", "ended", "tester", "banned", "leaving", "down", "two", "fresh", "thief", "payer",
        "player", "out",
    ]
}
