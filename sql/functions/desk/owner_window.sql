-- The time in which a purchase's owner can object or consent, and how it is skipped.

-- An owner keeps what they were told; another owner has been told and has said nothing. What was stopped asks anew.
CREATE OR REPLACE FUNCTION keep_owner() RETURNS trigger
LANGUAGE plpgsql SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    IF NEW.owner_key IS DISTINCT FROM OLD.owner_key THEN
        NEW.owner_heard_at := NULL;
        NEW.owner_asked_at := NULL;
        NEW.owner_until := NULL;
        NEW.owner_yes_at := NULL;
        NEW.owner_no_at := NULL;
    ELSIF OLD.state = 'executing' AND NEW.state = 'new' THEN
        NEW.owner_asked_at := NULL;
        NEW.owner_until := NULL;
        NEW.owner_yes_at := NULL;
    ELSIF NEW.owner_until > NEW.owner_asked_at OR NEW.owner_no_at IS NOT NULL THEN
        NEW.owner_heard_at := coalesce(NEW.owner_heard_at, NEW.owner_asked_at, NEW.owner_no_at);
    END IF;
    RETURN NEW;
END
$$;

-- Until when the owner may object, however often it is reckoned anew: who agreed is waited for no longer, nor is one whose time a
-- senior skipped. Who is asked again has not agreed. What was skipped runs on where the case begins anew, where the evidence is
-- another, and where whoever skipped it might not do so now.
CREATE OR REPLACE FUNCTION keep_agreement() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    e ticket_evidence;
BEGIN
    IF NEW.owner_asked_at IS NULL THEN
        NEW.owner_yes_at := NULL;
    END IF;
    -- What has begun asks for itself whether it counts.
    IF NEW.owner_waived_at IS NOT NULL AND NEW.state NOT IN ('executing', 'transferred') THEN
        SELECT x.* INTO e FROM ticket_evidence AS x WHERE x.id = NEW.evidence_id;
        IF NEW.owner_asked_at IS NULL OR NEW.state = 'new' OR waiver_counts(NEW, e) IS NOT TRUE THEN
            NEW.owner_waived_at := NULL;
            NEW.owner_waived_by := NULL;
            NEW.owner_waived_hash := NULL;
            NEW.owner_until := NEW.owner_asked_at + e.owner_window;
        END IF;
    END IF;
    IF NEW.owner_until IS NOT NULL THEN
        NEW.owner_until := least(NEW.owner_until, NEW.owner_yes_at, NEW.owner_waived_at);
    END IF;
    RETURN NEW;
END
$$;

-- How long the owner of a ticket's purchase would have to object, in hours, for whoever may look at it; null: there is nobody to ask.
CREATE OR REPLACE FUNCTION ticket_window(session bytea, which bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who operator := acting(session, 'view');
BEGIN
    RETURN (SELECT ceil(extract(epoch FROM e.owner_window) / 3600)::bigint
              FROM ticket AS t JOIN ticket_evidence AS e ON e.id = t.evidence_id
             WHERE t.id = which AND NOT is_own_case(who.id, t) AND t.owner_key IS NOT NULL AND e.owner_window > interval '0'
               AND NOT 'owner_erased' = ANY (e.facts));
END
$$;

-- Skips the rest of the time that the owner has to object, on the evidence as it is. Nobody has agreed by that, and the owner may
-- object until the transfer begins. `words`: why.
CREATE OR REPLACE FUNCTION waive_owner_window(session bytea, which bigint, words text) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    who operator := acting(session, 'override', interval '10 minutes');
    got record;
    t   ticket;
    e   ticket_evidence;
BEGIN
    IF words IS NULL OR length(words) NOT BETWEEN 1 AND 4000 OR btrim(words, E' \t\r\n') = '' THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'reason: has to have 1 to 4000 characters',
            HINT = 'Say in a sentence why the owner is not waited for.';
    END IF;
    PERFORM keep_people(which);
    SELECT f.* INTO got FROM ticket_for(who, which, 'waive', false) AS f;
    IF got.refusal IS NOT NULL THEN
        RETURN got.refusal;
    END IF;
    t := got.t;
    IF t.owner_no_at IS NOT NULL THEN
        RETURN refuse_act(who, which, 'waive', 'owner_objected');
    END IF;
    IF t.state NOT IN ('needs_second', 'waiting_owner', 'approved') THEN
        RETURN refuse_act(who, which, 'waive', 'state');
    END IF;
    IF t.owner_until IS NULL OR t.owner_until <= clock_timestamp() THEN
        RETURN refuse_act(who, which, 'waive', 'no_window');
    END IF;
    SELECT x.* INTO STRICT e FROM ticket_evidence AS x WHERE x.id = t.evidence_id;
    -- Where nobody else has to agree any more, somebody else has to have agreed.
    IF t.state <> 'needs_second' AND NOT others_agree(t, e, who.id) THEN
        RETURN refuse_act(who, which, 'waive', 'only_approver');
    END IF;
    UPDATE ticket AS x
       SET owner_waived_at = clock_timestamp(), owner_waived_by = who.id, owner_waived_hash = e.hash
     WHERE x.id = which;
    PERFORM note_event(who, which, 'owner_window_waived', jsonb_build_object('until', moment(t.owner_until)));
    PERFORM add_note(who, which, words);
    IF t.state = 'waiting_owner' THEN
        PERFORM move_ticket(which, 'window_ended');
    END IF;
    RETURN NULL;
END
$$;

-- Whether what a senior skipped is skipped still: by the operator of this moment, and on this evidence.
CREATE OR REPLACE FUNCTION waiver_counts(t ticket, e ticket_evidence) RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT t.owner_waived_hash = e.hash AND t.owner_waived_at > coalesce(o.lost_at, '-infinity') AND o.disabled_at IS NULL
        AND NOT is_banned(o.id)
           AND coalesce(o.held_until <= clock_timestamp(), true) AND NOT is_own_case(o.id, t)
           AND EXISTS (SELECT 1 FROM desk_duty AS d WHERE d.duty = 'override' AND d.role = o.role)
      FROM operator AS o WHERE o.id = t.owner_waived_by
$$;

-- Who skipped the owner's time, and when, for whoever may look at the ticket; no row: nobody, or it runs again.
CREATE OR REPLACE FUNCTION ticket_waiver(session bytea, which bigint) RETURNS TABLE (at timestamptz, operator text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
DECLARE
    who operator := acting(session, 'view');
BEGIN
    RETURN QUERY
    SELECT t.owner_waived_at, o.name
      FROM ticket AS t JOIN operator AS o ON o.id = t.owner_waived_by
     WHERE t.id = which AND NOT is_own_case(who.id, t);
END
$$;

-- Takes an owner's word that a purchase of theirs may go to the account whose app shows the reference. Whatever is behind it, the
-- answer is the same.
CREATE OR REPLACE FUNCTION release_purchase(wanted text, spoken text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp
-- A user whom somebody else holds must not keep a connection that others wait for.
SET lock_timeout = '500ms' SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
DECLARE
    code  text := upper(spoken);
    known bigint;
    made  bigint;
    cases bigint[];
    told  bigint[];
    t     ticket;
BEGIN
    PERFORM check_isolation();
    IF spoken IS NULL OR NOT spoken ~* '^[RT]-[0-9A-HJKMNP-TV-Z]{4}-[0-9A-HJKMNP-TV-Z]{2}$' THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'reference: must be such as R-7K3Q-92',
            HINT = 'Let the person copy it from the app that is signed in to their other account.';
    END IF;
    known := user_key_of(wanted);
    -- One at a time for each owner, and none after an erasure that had begun.
    PERFORM FROM user_sync AS u WHERE u.user_key = known AND u.user_id = wanted FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'ES001', MESSAGE = 'user_id: there is no such user', HINT = 'Sign the person in anew.';
    END IF;
    -- What was taken back today is not given again today.
    IF (SELECT count(*) FROM purchase_release AS r
         WHERE r.owner_key = known AND r.reference <> code AND r.at > clock_timestamp() - interval '1 day')
       >= desk_number('releases_per_day')
       OR EXISTS (SELECT 1 FROM purchase_release AS r
                   WHERE r.owner_key = known AND r.reference = code AND r.ended_at > clock_timestamp() - interval '1 day') THEN
        RAISE EXCEPTION USING ERRCODE = 'ES008', MESSAGE = 'reference: enough were given today',
            HINT = 'Let the person check the reference, and try again tomorrow.';
    END IF;
    INSERT INTO purchase_release AS r (owner_key, reference) VALUES (known, code) ON CONFLICT (owner_key, reference) DO NOTHING;
    SELECT r.id INTO made FROM purchase_release AS r WHERE r.owner_key = known AND r.reference = code;
    cases := ARRAY(WITH RECURSIVE item AS (
                       SELECT p.id FROM purchase AS p WHERE p.owner_key = known AND p.merged_into IS NULL
                        UNION
                       SELECT p.id FROM purchase AS p JOIN item AS i ON p.merged_into = i.id
                   ), about AS MATERIALIZED (
                       SELECT x.id, x.claimant_key FROM item AS i JOIN ticket AS x ON x.purchase_id = i.id WHERE is_open(x.state)
                        UNION
                       SELECT x.id, x.claimant_key FROM item AS i JOIN ticket AS x ON x.subject_id = i.id
                        WHERE x.purchase_id IS NULL AND is_open(x.state)
                   )
                   SELECT a.id FROM about AS a WHERE a.claimant_key <> known AND has_reference(a.claimant_key, code));
    -- Those that know of it need not be told again.
    told := ARRAY(SELECT c FROM unnest(cases) AS c
                   WHERE is_released(c)
                     AND EXISTS (SELECT 1 FROM ticket_event AS e
                                  WHERE e.ticket_id = c AND e.kind = 'owner_released' AND e.detail ->> 'release' = made::text));
    UPDATE purchase_release AS r SET at = clock_timestamp(), ended_at = NULL WHERE r.id = made;
    FOR t IN SELECT x.* FROM ticket AS x WHERE x.id = ANY (cases) ORDER BY x.id FOR NO KEY UPDATE LOOP
        UPDATE purchase_release AS r SET claimant_key = t.claimant_key WHERE r.id = made;
        -- What was closed while its row was waited for is over.
        CONTINUE WHEN NOT is_open(t.state) OR t.id = ANY (told);
        UPDATE ticket AS x SET owner_heard_at = coalesce(x.owner_heard_at, clock_timestamp())
         WHERE x.id = t.id AND x.owner_key = known;
        IF t.state <> 'executing' THEN
            -- An owner who releases it is waited for no longer; one who has objected as well is a case for people.
            UPDATE ticket AS x
               SET evidence_due = clock_timestamp(), evidence_tries = 0,
                   owner_yes_at = CASE WHEN x.owner_key = known AND x.owner_no_at IS NULL
                                       THEN coalesce(x.owner_yes_at, clock_timestamp()) ELSE x.owner_yes_at END
             WHERE x.id = t.id;
        END IF;
        INSERT INTO ticket_event (ticket_id, kind, detail)
        VALUES (t.id, 'owner_released', jsonb_build_object('release', made));
    END LOOP;
END
$$;

-- Whether whoever owns a ticket's purchase has released it to the claimant, since they own it and not too long ago.
CREATE OR REPLACE FUNCTION is_released(which bigint) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    SELECT EXISTS (
        SELECT 1 FROM ticket AS t
          JOIN purchase AS p ON p.id = living(coalesce(t.purchase_id, t.subject_id))
          JOIN purchase_release AS r ON r.owner_key = p.owner_key
         WHERE t.id = which AND p.owner_key <> t.claimant_key AND r.at > p.owner_since AND r.ended_at IS NULL
           AND r.at > clock_timestamp() - desk_number('release_days') * interval '1 day'
           -- It may have been given before anybody knew which purchase the claimant means.
           AND (r.claimant_key = t.claimant_key OR r.claimant_key IS NULL AND has_reference(t.claimant_key, r.reference)))
$$;
