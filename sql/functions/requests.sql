-- Requests: the contract's `request_restore` and `request_reconcile`, the form of proofs, and the limit of requests per minute.

CREATE OR REPLACE FUNCTION request_restore(
    user_id         text,
    proofs          jsonb  DEFAULT '[]',
    client_error    text   DEFAULT NULL,
    product_ids     text[] DEFAULT NULL,
    idempotency_key text   DEFAULT NULL,
    origin          text   DEFAULT NULL
) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    RETURN (restore_of(user_key_of(user_id), proofs, client_error, product_ids, idempotency_key, origin, NULL)).job;
END
$$;
COMMENT ON FUNCTION request_restore IS
'Enqueues a restore in the caller''s transaction and returns its job id. A restore that is queued already is joined.
proofs: at most 20 of {"store", "kind", "value"}. Kinds that prove: storekit_jws, app_receipt, purchase_token, '
'onside_history. Kinds that are only reported: transaction_id, order_id, onside_order_id. app_transaction names the store account of '
'the device and no purchase.
client_error: the error that the SDK reported, by name or code, such as receipt_already_in_use.
product_ids: which restored products are listed for delivery; null lists all.
idempotency_key: at most 255 characters; the same key with the same content returns the same job for seven days.
origin: profile, paywall or null.
Errors: ES001 unknown user, ES002 malformed proof, ES003 key too long, ES004 key used with other content, '
'ES005 a limit, 22023 another origin. Nothing is enqueued then.';

CREATE OR REPLACE FUNCTION request_reconcile(user_id text, reason text DEFAULT 'manual') RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    fresh  uuid := new_id();
    answer uuid;
BEGIN
    IF length(reason) > 200 THEN
        RAISE EXCEPTION USING ERRCODE = 'ES005', MESSAGE = 'reason: longer than 200', HINT = 'Say it in a few words.';
    END IF;
    answer := enqueue(user_key_of(user_id), 1::smallint, 2::smallint, fresh);
    IF answer = fresh AND reason IS DISTINCT FROM 'manual' THEN
        INSERT INTO job_request (id, reason) VALUES (fresh, reason);
    END IF;
    PERFORM stir();
    RETURN answer;
END
$$;
COMMENT ON FUNCTION request_reconcile IS
'Enqueues a reconcile in the caller''s transaction and returns its job id. A reconcile that is queued already is joined and due now.
reason: at most 200 characters, for the record.
Errors: ES001 unknown user, ES005 a limit.';

-- Checks submitted proofs and returns them as they are kept: in their order, without repeats, each with the store and kind that its text
-- shows. Errors: ES002 for a wrong form, with index and field; ES005 for too many or too long ones.
CREATE OR REPLACE FUNCTION checked_proofs(proofs jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    n     integer := 0;
    proof jsonb;
    field text;
    kept  jsonb := '[]';
    plain jsonb;
BEGIN
    IF proofs IS NULL OR proofs = '[]' THEN
        RETURN '[]';
    END IF;
    IF jsonb_typeof(proofs) <> 'array' THEN
        RAISE EXCEPTION USING ERRCODE = 'ES002', MESSAGE = 'proofs: must be a JSON array',
            HINT = 'Pass [{"store": …, "kind": …, "value": …}], or [].';
    END IF;
    IF jsonb_array_length(proofs) > 20 THEN
        RAISE EXCEPTION USING ERRCODE = 'ES005', MESSAGE = 'proofs: at most 20 are taken',
            HINT = 'Send the newest proof of each purchase.';
    END IF;
    FOR proof IN SELECT * FROM jsonb_array_elements(proofs) LOOP
        IF jsonb_typeof(proof) <> 'object' THEN
            RAISE EXCEPTION USING ERRCODE = 'ES002', MESSAGE = format('proofs[%s]: must be an object', n),
                HINT = 'Each proof has the fields store, kind and value.';
        END IF;
        FOREACH field IN ARRAY ARRAY['store', 'kind', 'value'] LOOP
            IF jsonb_typeof(proof -> field) IS DISTINCT FROM 'string' OR proof ->> field = '' THEN
                RAISE EXCEPTION USING ERRCODE = 'ES002',
                    MESSAGE = format('proofs[%s].%s: must be a string that is not empty', n, field),
                    HINT = 'Each proof has the fields store, kind and value.';
            END IF;
        END LOOP;
        -- RevenueCat's name of the store, which an app may send.
        IF proof ->> 'store' = 'play_store' THEN
            proof := jsonb_set(proof, '{store}', '"google_play"');
        END IF;
        IF proof ->> 'store' NOT IN ('app_store', 'google_play', 'onside') THEN
            RAISE EXCEPTION USING ERRCODE = 'ES002', MESSAGE = format('proofs[%s].store: unknown store', n),
                HINT = 'Use app_store, google_play or onside.';
        END IF;
        IF proof ->> 'kind' NOT IN ('storekit_jws', 'app_receipt', 'purchase_token', 'onside_history', 'app_transaction',
                                    'onside_order_id', 'transaction_id', 'order_id') THEN
            RAISE EXCEPTION USING ERRCODE = 'ES002', MESSAGE = format('proofs[%s].kind: unknown kind', n),
                HINT = 'Use storekit_jws, app_receipt, purchase_token, onside_history, app_transaction, onside_order_id, '
                       'transaction_id or order_id.';
        END IF;
        IF (proof ->> 'kind' IN ('storekit_jws', 'app_receipt', 'app_transaction') AND proof ->> 'store' <> 'app_store')
           OR (proof ->> 'kind' = 'purchase_token' AND proof ->> 'store' <> 'google_play')
           OR (proof ->> 'kind' IN ('onside_history', 'onside_order_id') AND proof ->> 'store' <> 'onside') THEN
            RAISE EXCEPTION USING ERRCODE = 'ES002',
                MESSAGE = format('proofs[%s].store: this kind is not one of that store', n),
                HINT = 'storekit_jws, app_receipt and app_transaction are app_store''s, purchase_token is google_play''s, '
                       'onside_… onside''s.';
        END IF;
        IF length(proof ->> 'value') > 1048576 THEN
            RAISE EXCEPTION USING ERRCODE = 'ES005', MESSAGE = format('proofs[%s].value: longer than 1 MiB', n),
                HINT = 'Send the signed transaction in place of the whole receipt.';
        END IF;
        IF proof ->> 'kind' IN ('transaction_id', 'order_id', 'onside_order_id') AND length(proof ->> 'value') > 255 THEN
            RAISE EXCEPTION USING ERRCODE = 'ES005', MESSAGE = format('proofs[%s].value: longer than 255', n),
                HINT = 'An order or transaction id is a short text.';
        END IF;
        IF proof ->> 'kind' IN ('storekit_jws', 'app_receipt', 'purchase_token', 'app_transaction') THEN
            plain := plain_proof(proof ->> 'kind', proof ->> 'value');
            IF plain IS NULL THEN
                RAISE EXCEPTION USING ERRCODE = 'ES002',
                    MESSAGE = format('proofs[%s].value: not a whole %s', n, proof ->> 'kind'),
                    HINT = CASE proof ->> 'kind'
                        WHEN 'storekit_jws' THEN 'Send a transaction''s jwsRepresentation as StoreKit gives it, all of it: '
                                                 'three parts with dots between them.'
                        WHEN 'app_receipt' THEN 'Send the base64 of the whole app receipt, as the file at appStoreReceiptURL '
                                                'holds it.'
                        WHEN 'app_transaction' THEN 'Send the jwsRepresentation of AppTransaction.shared as StoreKit gives it, '
                                                    'all of it: three parts with dots between them.'
                        ELSE 'Send the purchaseToken of Play''s Purchase alone: at most 1000 letters, digits, dots, hyphens '
                             'and underscores.' END;
            END IF;
            proof := plain;
        ELSE
            proof := jsonb_build_object('store', proof -> 'store', 'kind', proof -> 'kind', 'value', proof -> 'value');
        END IF;
        IF NOT kept @> jsonb_build_array(proof) THEN
            kept := kept || jsonb_build_array(proof);
        END IF;
        n := n + 1;
    END LOOP;
    RETURN kept;
END
$$;

-- A proof with the store and kind that its text shows, whatever kind the app stated; null: its text has no form that a store verifies.
CREATE OR REPLACE FUNCTION plain_proof(kind text, value text) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    inner_text text := unwrapped_proof(value);
    dense      text := translate(inner_text, E' \t\r\n', '');
    -- Inside a plugin's JSON only the text shows the kind.
    is_wrapped boolean := inner_text <> btrim(value, E' \t\r\n');
    says       jsonb;
    receipt    text;
BEGIN
    IF dense IS NULL OR dense = '' THEN
        RETURN NULL;
    END IF;
    -- `eyJ` begins the base64 of a JSON header. Google's tokens have two parts, a JWS has three.
    IF dense ~ '^[A-Za-z0-9_-]+[.][A-Za-z0-9_-]+[.][A-Za-z0-9_-]+$'
       AND (kind IN ('storekit_jws', 'app_transaction') OR dense ~ '^eyJ') THEN
        says := signed_payload(dense);
        -- Renewal info and notifications are signed too, but are neither transactions nor app transactions. A real signed text is
        -- long, because it holds certificates, and its signature has 86 characters: a shorter one was cut off.
        IF says ?| ARRAY['autoRenewProductId', 'autoRenewStatus', 'notificationType', 'notificationUUID']
               AND NOT says ? 'transactionId'
           OR length(dense) > 1000 AND length(split_part(dense, '.', 3)) < 86 THEN
            RETURN NULL;
        END IF;
        RETURN jsonb_build_object('store', 'app_store', 'kind',
            -- Only an app transaction has a receipt's type; an app that sends the one for the other means it well.
            CASE WHEN says ? 'transactionId' THEN 'storekit_jws' WHEN says ? 'receiptType' OR kind = 'app_transaction'
                 THEN 'app_transaction' ELSE 'storekit_jws' END,
            'value', dense);
    END IF;
    IF dense ~ '^MI[A-Za-z0-9+/=_-]+$' AND (kind = 'app_receipt' OR length(dense) > 1000 OR dense ~ '[+/=]')
       OR kind = 'app_receipt' AND NOT is_wrapped THEN
        -- A space at the end may have been a plus.
        receipt := receipt_text(CASE WHEN is_wrapped THEN inner_text ELSE ltrim(value, E' \t\r\n') END);
        -- Base64 of JSON, of a property list or of base64 is no receipt.
        RETURN CASE WHEN receipt !~ '^(e[wy]|TUl)'
                    THEN jsonb_build_object('store', 'app_store', 'kind', 'app_receipt', 'value', receipt) END;
    END IF;
    IF kind = 'app_transaction' THEN
        RETURN NULL;
    END IF;
    IF (kind = 'purchase_token' OR is_wrapped) AND dense ~ '^[A-Za-z0-9._-]+$' AND length(dense) <= 1000
       AND dense NOT IN ('.', '..') AND dense !~ '^eyJ' THEN
        RETURN jsonb_build_object('store', 'google_play', 'kind', 'purchase_token', 'value', dense);
    END IF;
    RETURN NULL;
END
$$;

-- Removes what a plugin or an app put around a proof: JSON with known members, or quotes, several levels deep. Null: there is no proof
-- inside.
CREATE OR REPLACE FUNCTION unwrapped_proof(written text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    inner_text text := btrim(written, E' \t\r\n');
    box        jsonb;
BEGIN
    -- Unity's JSON for Google Play has three levels.
    FOR level IN 1..6 LOOP
        IF left(inner_text, 1) NOT IN ('{', '[', '"') THEN
            RETURN inner_text;
        END IF;
        box := inner_text::jsonb;
        IF jsonb_typeof(box) = 'array' AND jsonb_array_length(box) = 1 THEN
            box := box -> 0;
        END IF;
        IF jsonb_typeof(box) = 'object' THEN
            -- Unity's name of the store. What Unity has for other stores is signed by no store.
            IF coalesce(box ->> 'Store', 'GooglePlay') NOT IN ('AppleAppStore', 'MacAppStore', 'GooglePlay') THEN
                RETURN NULL;
            END IF;
            SELECT box -> k.name INTO box
              FROM unnest(ARRAY['purchaseToken', 'purchase_token', 'token', 'serverVerificationData', 'jwsRepresentation',
                                'jwsRepresentationIos', 'jwsRepresentationIOS', 'verificationResultIOS',
                                'signedTransactionInfo', 'signedTransaction', 'jws', 'appStoreReceipt', 'app_receipt',
                                'transactionReceipt', 'receipt-data', 'receiptData', 'receipt_data', 'receipt', 'Payload',
                                'payload', 'json', 'originalJson', 'purchaseData', 'INAPP_PURCHASE_DATA',
                                'verificationData', 'transaction', 'nativePurchase', 'data'])
                   WITH ORDINALITY AS k(name, place)
             WHERE jsonb_typeof(box -> k.name) IN ('string', 'object') AND box ->> k.name <> ''
             ORDER BY k.place LIMIT 1;
        END IF;
        inner_text := CASE jsonb_typeof(box) WHEN 'string' THEN btrim(box #>> '{}', E' \t\r\n') WHEN 'object' THEN box::text END;
        IF inner_text IS NULL THEN
            RETURN NULL;
        END IF;
    END LOOP;
    RETURN NULL;
EXCEPTION
    -- The text is no JSON, holds a NUL or half a character, or is nested too deep.
    WHEN data_exception OR program_limit_exceeded THEN
        RETURN NULL;
END
$$;

-- The payload of a JWS, not verified; null: it cannot be read.
CREATE OR REPLACE FUNCTION signed_payload(jws text) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    part text := translate(split_part(jws, '.', 2), '-_', '+/');
BEGIN
    RETURN convert_from(decode(part || repeat('=', (4 - length(part) % 4) % 4), 'base64'), 'UTF8')::jsonb;
EXCEPTION
    WHEN data_exception OR program_limit_exceeded OR untranslatable_character THEN
        RETURN NULL;
END
$$;

-- An app receipt's base64 in one form: padded, without white space and URL-safe characters. Null: the text is no base64, or was cut off.
CREATE OR REPLACE FUNCTION receipt_text(written text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    spaced text := translate(written, E'-_=\t\r\n', '+/');
    dense  text := replace(spaced, ' ', '');
    head   bytea;
    size   integer;
BEGIN
    IF dense !~ '^[A-Za-z0-9+/]+$' OR translate(written, E' \t\r\n', '') !~ '^[^=]*={0,2}$' THEN
        RETURN NULL;
    END IF;
    IF length(dense) < 64 THEN
        RETURN dense || CASE length(dense) % 4 WHEN 2 THEN '==' WHEN 3 THEN '=' ELSE '' END;
    END IF;
    IF dense ~ '^MI[IJKLMNOP]' THEN
        -- ASN.1: the receipt is a sequence whose length stands at its beginning, in two or three bytes.
        head := decode(left(dense, 8), 'base64');
        size := CASE get_byte(head, 1) WHEN 130 THEN 4 + get_byte(head, 2) * 256 + get_byte(head, 3)
                                       ELSE 5 + (get_byte(head, 2) * 256 + get_byte(head, 3)) * 256 + get_byte(head, 4) END;
        size := (size * 4 + 2) / 3;
        -- Form encoding turns a plus into a space.
        IF length(dense) <> size AND length(replace(spaced, ' ', '+')) = size THEN
            dense := replace(spaced, ' ', '+');
        END IF;
        IF length(dense) <> size THEN
            RETURN NULL;
        END IF;
    END IF;
    RETURN CASE length(dense) % 4 WHEN 0 THEN dense WHEN 2 THEN dense || '==' WHEN 3 THEN dense || '=' END;
END
$$;

-- The newest proofs of both lists, without repeats, at most 20.
CREATE OR REPLACE FUNCTION united_proofs(earlier jsonb, later jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT coalesce(jsonb_agg(kept.proof ORDER BY kept.place), '[]')
      FROM (SELECT each.proof, max(each.place) AS place
              FROM (SELECT e.proof, e.n AS place FROM jsonb_array_elements(coalesce(earlier, '[]')) WITH ORDINALITY AS e(proof, n)
                    UNION ALL
                    SELECT l.proof, 1000 + l.n FROM jsonb_array_elements(coalesce(later, '[]')) WITH ORDINALITY AS l(proof, n)
                   ) AS each
             GROUP BY each.proof
             ORDER BY 2 DESC
             LIMIT 20) AS kept
$$;

-- Counts up to `wanted` requests against the `allowed` ones of a minute. `given`: how many are allowed; `wait`: seconds until the minute
-- is over.
CREATE OR REPLACE FUNCTION take_requests(counted bytea, allowed integer, wanted integer)
RETURNS TABLE (given integer, wait double precision)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    at timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    INSERT INTO request_count AS c (key, began, taken) VALUES (counted, at, wanted)
    ON CONFLICT (key) DO UPDATE
       SET began = CASE WHEN c.began <= at - interval '1 minute' THEN at ELSE c.began END,
           taken = CASE WHEN c.began <= at - interval '1 minute' THEN wanted
                        ELSE least(c.taken, allowed) + wanted END
    RETURNING greatest(0, least(wanted, allowed - (c.taken - wanted))),
              greatest(0, 60 - extract(epoch FROM at - c.began))::double precision;
END
$$;

-- Deletes request counts after five minutes, digests of proofs after two days, and store accounts of devices after 400.
CREATE OR REPLACE FUNCTION forget_requests() RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    DELETE FROM request_count AS c WHERE c.began < now() - interval '5 minutes';
    DELETE FROM shown_proof AS s WHERE s.shown_at < now() - interval '2 days';
    DELETE FROM submitted_account AS a
     WHERE (a.user_key, a.store_account)
        IN (SELECT x.user_key, x.store_account FROM submitted_account AS x WHERE x.submitted_at < now() - interval '400 days'
             ORDER BY x.submitted_at LIMIT 10000 FOR UPDATE SKIP LOCKED);
$$;
