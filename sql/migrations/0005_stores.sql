-- What stores that are asked directly need: by which id each purchase is asked for again, what they said of the buyer, and
-- the sales that Google Play takes back unless they are acknowledged.

ALTER TABLE purchase
    ADD COLUMN lookup_id   text,
    ADD COLUMN account_key bigint,
    ADD COLUMN stated_at   timestamptz;
COMMENT ON COLUMN purchase.lookup_id IS 'by which of its identifiers the store itself is asked; absent: only RevenueCat knows it';
COMMENT ON COLUMN purchase.account_key IS 'the user whom the id that the app gave the store names, where another witness named somebody else';
COMMENT ON COLUMN purchase.stated_at IS 'the store''s own version of what stands here: when it signed or fetched it';

-- One name for Google Play, whoever speaks of it.
UPDATE purchase SET store = 'google_play' WHERE store = 'play_store';
UPDATE purchase_identifier AS i SET store = 'google_play'
 WHERE i.store = 'play_store'
   AND NOT EXISTS (SELECT 1 FROM purchase_identifier AS x
                    WHERE x.value = i.value AND x.store = 'google_play' AND x.environment = i.environment);

-- Money that nobody claims: purchases without an owner are few, and people have to find them.
CREATE INDEX purchase_unowned ON purchase (first_seen_at) WHERE owner_key IS NULL AND merged_into IS NULL;

ALTER TABLE ticket ADD COLUMN deadline timestamptz;
COMMENT ON COLUMN ticket.deadline IS 'when the store takes the sale back: to be decided before';

-- Written with the grant, deleted once Google Play has taken the call. `called`: a call was begun, and only a read can tell
-- what came of it.
CREATE TABLE acknowledgement (
    token      text        PRIMARY KEY,
    product_id text        NOT NULL,
    kind       text        NOT NULL,
    deadline   timestamptz NOT NULL,
    due        timestamptz NOT NULL DEFAULT now(),
    attempt    integer     NOT NULL DEFAULT 0,
    called     boolean     NOT NULL DEFAULT false,
    last_error text
);
CREATE INDEX acknowledgement_due ON acknowledgement (due);
SELECT grant_to('entitlement_sync_worker', ARRAY[
    'GRANT SELECT, INSERT, UPDATE, DELETE ON acknowledgement TO %I']);

-- Users to be looked at again: stores that send no word are asked around the ends of what they sold.
CREATE INDEX user_sync_next_look ON user_sync (next_look) WHERE next_look IS NOT NULL;

-- Where non-renewing purchases of one kind end: each begins where the last one ends, or where it was bought if that is
-- later. `kinds`: what adds up with each other; `lengths`: the products' durations.
CREATE FUNCTION stacked_ends(kinds text[], bought timestamptz[], lengths interval[]) RETURNS SETOF timestamptz
LANGUAGE plpgsql STABLE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    ends jsonb := '{}';
    item record;
    last timestamptz;
    made timestamptz[] := array_fill(NULL::timestamptz, ARRAY[cardinality(kinds)]);
BEGIN
    FOR item IN
        SELECT n.kind, n.at, n.length, n.place
          FROM unnest(kinds, bought, lengths) WITH ORDINALITY AS n(kind, at, length, place)
         ORDER BY n.at, n.place
    LOOP
        last := (ends ->> item.kind)::timestamptz;
        -- Days and months are counted in UTC, whatever the session's zone.
        last := (greatest(last, item.at) AT TIME ZONE 'UTC' + item.length) AT TIME ZONE 'UTC';
        ends := jsonb_set(ends, ARRAY[item.kind], to_jsonb(last));
        made[item.place] := last;
    END LOOP;
    RETURN QUERY SELECT m.at FROM unnest(made) WITH ORDINALITY AS m(at, place) ORDER BY m.place;
END
$$;
REVOKE ALL ON FUNCTION stacked_ends(text[], timestamptz[], interval[]) FROM PUBLIC;
SELECT grant_to('entitlement_sync_worker', ARRAY[
    'GRANT EXECUTE ON FUNCTION stacked_ends(text[], timestamptz[], interval[]) TO %I']);

-- A purchase token opens a purchase to whoever holds it: people see which there are, and not the tokens.
CREATE VIEW purchase_identifier_log AS
SELECT i.purchase_id, i.store, i.environment, i.kind,
       CASE WHEN i.kind <> 'purchase_token' THEN i.value END AS value
  FROM purchase_identifier AS i;
COMMENT ON VIEW purchase_identifier_log IS 'what stores call each purchase; a purchase token''s value is left out';
DO $$
DECLARE
    visible text;
    name text;
BEGIN
    SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) INTO visible
      FROM pg_attribute AS a
     WHERE a.attrelid = 'entitlement_sync.purchase'::regclass AND a.attnum > 0 AND NOT a.attisdropped
       AND a.attname <> 'lookup_id';
    FOREACH name IN ARRAY ARRAY['entitlement_sync_support', 'entitlement_sync_auditor'] LOOP
        PERFORM entitlement_sync.grant_to(name, ARRAY[
            'REVOKE SELECT ON entitlement_sync.purchase, entitlement_sync.purchase_identifier FROM %I',
            'GRANT SELECT (' || visible || ') ON entitlement_sync.purchase TO %I',
            'GRANT SELECT ON entitlement_sync.purchase_identifier_log TO %I']);
    END LOOP;
END
$$;
