-- A queue through which millions of jobs went while somebody held an old snapshot (a report, a forgotten transaction, a
-- standby's feedback) is full of rows that vacuum may not remove, and its files never shrink again by themselves. Where
-- few rows are alive, they are moved to new files, which takes milliseconds and needs no vacuum.

-- Moves the queue to new files where it takes up more than `above` bytes and at most `at_most` rows are alive; answers
-- whether it did. It waits for nobody longer than a moment: whoever reads or writes the queue goes first, and it is tried
-- again later. A snapshot that is older than the move and has not looked at the queue before sees it empty.
CREATE FUNCTION compact_queue(above bigint DEFAULT 33554432, at_most integer DEFAULT 20000) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = entitlement_sync, pg_temp SET lock_timeout = '100ms' SET enable_seqscan = on AS $$
DECLARE
    kept queue[];
BEGIN
    IF pg_total_relation_size('entitlement_sync.queue') <= above THEN
        RETURN false;
    END IF;
    -- A first look without the lock, which nobody should wait for in vain.
    IF (SELECT count(*) FROM (SELECT 1 FROM queue LIMIT at_most + 1) AS q) > at_most THEN
        RETURN false;
    END IF;
    BEGIN
        LOCK TABLE queue IN ACCESS EXCLUSIVE MODE;
    EXCEPTION
        WHEN lock_not_available THEN RETURN false;
    END;
    kept := ARRAY(SELECT q FROM queue AS q LIMIT at_most + 1);
    IF cardinality(kept) > at_most THEN
        RETURN false;
    END IF;
    TRUNCATE queue;
    INSERT INTO queue SELECT k.* FROM unnest(kept) AS k;
    RETURN true;
END
$$;
REVOKE ALL ON FUNCTION compact_queue(bigint, integer) FROM PUBLIC;
SELECT grant_to('entitlement_sync_worker', ARRAY['GRANT EXECUTE ON FUNCTION compact_queue(bigint, integer) TO %I']);
