-- Store accounts: the ids under which stores sign a user's account are kept as keyed hashes alone.

-- The hash of each store account, named by environment and id with a space between. The key does not leave the database.
CREATE OR REPLACE FUNCTION store_accounts(names text[]) RETURNS TABLE (name text, hash uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    SELECT n.name, opaque_id('store account ' || n.name) FROM unnest(names) AS n(name)
$$;

-- How many users have a store account: they own purchases that were bought with it, or their apps submitted it. 100: as many or more.
CREATE OR REPLACE FUNCTION users_of_account(account uuid) RETURNS integer
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT count(*)::integer
      FROM (SELECT p.owner_key
              FROM (SELECT x.owner_key FROM purchase AS x
                     WHERE x.store_account = account AND x.owner_key IS NOT NULL AND x.merged_into IS NULL
                     ORDER BY x.id DESC LIMIT 1000) AS p
             UNION
            (SELECT a.user_key FROM submitted_account AS a WHERE a.store_account = account ORDER BY a.user_key LIMIT 100)
             LIMIT 100) AS n
$$;
