-- What is on record of a ticket's store accounts and of the claimant's sign-in, for operators. None of it decides a case by itself, so it
-- is no evidence: it is read each time, and falls with the erasure of its user.

-- `relation`: whether the purchase was bought with a store account of the claimant. `same`; `family`: with another one, and the store
-- shares the purchase within a family, or the same product with the claimant; `other`; null: not known. Store accounts of two apps are
-- never compared. `purchase_users`, `claimant_users`: how many users have each account. `provider`, `signed_in_at`: from
-- the claimant's newest restore about the ticket.
CREATE OR REPLACE FUNCTION account_facts(t ticket) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    WITH item AS MATERIALIZED (
        SELECT p.id, p.store_account AS account, p.store_app AS app, p.product_id AS product,
               p.ownership = 'family_shared' AS is_shared
          FROM purchase AS p WHERE p.id = purchase_of(t)
    ), own AS MATERIALIZED (
        SELECT a.store_account AS account, NULL AS shared_product, a.submitted_at AS at
          FROM (SELECT x.* FROM submitted_account AS x WHERE x.user_key = t.claimant_key ORDER BY x.submitted_at DESC LIMIT 100) AS a
         WHERE a.store_app = coalesce((SELECT i.app FROM item AS i), a.store_app)
         UNION ALL
        SELECT p.store_account, CASE WHEN p.ownership = 'family_shared' THEN p.product_id END, p.observed_at
          FROM (SELECT x.* FROM purchase AS x
                 WHERE x.owner_key = t.claimant_key AND x.store_account IS NOT NULL AND x.merged_into IS NULL
                 ORDER BY x.id DESC LIMIT 100) AS p
         WHERE p.id IS DISTINCT FROM (SELECT i.id FROM item AS i)
           AND coalesce(p.store_app = (SELECT i.app FROM item AS i), true)
    )
    SELECT jsonb_build_object(
               'relation', (SELECT CASE WHEN i.account IN (SELECT o.account FROM own AS o) THEN 'same'
                                        WHEN i.is_shared OR i.product IN (SELECT o.shared_product FROM own AS o) THEN 'family'
                                        ELSE 'other' END
                              FROM item AS i
                             WHERE i.account IS NOT NULL AND EXISTS (SELECT 1 FROM own)),
               'purchase_users', (SELECT users_of_account(i.account) FROM item AS i WHERE i.account IS NOT NULL),
               'claimant_users', (SELECT users_of_account(o.account) FROM own AS o ORDER BY o.at DESC LIMIT 1),
               'provider', s.sign_in_provider, 'signed_in_at', s.signed_in_at)
      FROM (SELECT 1) AS one
      LEFT JOIN LATERAL (
            SELECT r.sign_in_provider, r.signed_in_at
              FROM (SELECT e.id, e.job_id FROM ticket_event AS e
                     WHERE e.ticket_id = t.id AND e.kind IN ('opened', 'touched') AND e.job_id IS NOT NULL
                     ORDER BY e.id DESC LIMIT 20) AS e
              JOIN job_request AS r ON r.id = e.job_id
             WHERE r.sign_in_provider IS NOT NULL OR r.signed_in_at IS NOT NULL
             ORDER BY e.id DESC LIMIT 1) AS s ON true
$$;
