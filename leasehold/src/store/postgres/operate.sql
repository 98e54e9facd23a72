-- For many leases at once, for readers and for operators.

-- Many renewals in one statement, an answer each (W8). A row that somebody has locked is that lease's trouble only (A20).
CREATE OR REPLACE FUNCTION leasehold.renew_all(
    p_names text[], p_tokens bigint[], p_sessions uuid[], p_ttls bigint[], p_numbers bigint[], p_renew_ids uuid[]
) RETURNS TABLE (nr bigint, answer leasehold.answer)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    n record;
BEGIN
    FOR n IN SELECT * FROM unnest(p_names, p_tokens, p_sessions, p_ttls, p_numbers, p_renew_ids)
        WITH ORDINALITY AS u(name, token, session, ttl, number, renew_id, nr) ORDER BY name COLLATE "C"
    LOOP
        nr := n.nr;
        PERFORM 1 FROM leasehold.lease WHERE name = n.name FOR NO KEY UPDATE SKIP LOCKED;
        IF NOT FOUND AND EXISTS (SELECT 1 FROM leasehold.lease WHERE name = n.name) THEN
            answer := NULL;
            answer.answer := 'locked';
        ELSE
            answer := leasehold.renew(n.name, n.token, n.session, n.ttl, n.number, n.renew_id);
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

-- The eight hex digits that tell two sessions apart, as the core computes them (FNV-1a).
CREATE OR REPLACE FUNCTION leasehold.fingerprint(session uuid) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    bytes bytea := uuid_send(session);
    hash bigint := 2166136261;
BEGIN
    FOR i IN 0..15 LOOP
        hash := ((hash # get_byte(bytes, i)) * 16777619) & 4294967295;
    END LOOP;
    RETURN hash;
END $$;

-- What readers may see: everything but the sessions, which are keys (A21).
CREATE OR REPLACE VIEW leasehold.status AS
SELECT name, token, holder, leasehold.fingerprint(session) AS session_hash,
    session IS NOT NULL AND released AS released, info, ttl_ms, renewals, granted_at, expires_at,
    CASE WHEN doubt THEN 'quarantined'
         WHEN session IS NOT NULL AND released THEN 'free'
         WHEN clock_timestamp() >= free THEN 'free'
         WHEN session IS NULL THEN 'quarantined'
         WHEN clock_timestamp() < expires_at THEN 'held'
         ELSE 'delayed' END AS state,
    leasehold.microseconds(CASE WHEN session IS NOT NULL AND clock_timestamp() < expires_at THEN expires_at
        ELSE free END - clock_timestamp()) AS remaining_us,
    CASE WHEN session IS NOT NULL THEN leasehold.microseconds(clock_timestamp() - granted_at) END AS since_us
FROM (SELECT l.*, leasehold.free_from(l) AS free,
          -- Written before a failover or a restore: nobody holds it, the next touch quarantines it (PG9).
          l.line <> here.line AND here.policy = 'quarantine' AS doubt
      FROM leasehold.lease l, (SELECT leasehold.line() AS line, policy FROM leasehold.meta) here) l;
COMMENT ON VIEW leasehold.status IS 'Who holds what now, without the keys.';

-- An operator takes a lease away (A21): the token grows at once; others get it when the old promise ends, or at once.
CREATE OR REPLACE FUNCTION leasehold.force_release(p_name text, p_now boolean DEFAULT false) RETURNS leasehold.answer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    a leasehold.answer;
BEGIN
    PERFORM leasehold.bound(5000);
    UPDATE leasehold.lease SET token = token + 1, session = NULL, request_id = NULL, holder = NULL, info = NULL,
        -- Nobody waits for what was taken away at once, by whatever clock.
        released = p_now, renewals = 0, renew_id = NULL, touches = touches + 1,
        expires_at = CASE WHEN p_now THEN least(expires_at, clock_timestamp()) ELSE expires_at END,
        lock_delay_ms = CASE WHEN p_now THEN 0 ELSE lock_delay_ms END
    WHERE name = p_name AND token < 9223372036854775807 AND clock_timestamp() < leasehold.free_from(lease)
    RETURNING token INTO a.token;
    IF NOT FOUND THEN
        a.answer := CASE WHEN EXISTS (SELECT 1 FROM leasehold.lease l WHERE name = p_name
            AND clock_timestamp() < leasehold.free_from(l)) THEN 'exhausted' ELSE 'already_over' END;
        RETURN a;
    END IF;
    PERFORM leasehold.note(p_name, jsonb_build_object('forced', jsonb_build_object('token', a.token::text)));
    PERFORM pg_notify('leasehold', p_name);
    a.answer := 'bumped';
    RETURN a;
END $$;

-- One lease's past is in doubt (T6).
CREATE OR REPLACE FUNCTION leasehold.quarantine(p_name text, p_above bigint) RETURNS leasehold.answer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    a leasehold.answer;
BEGIN
    PERFORM leasehold.check_text('lease name', p_name, 200);
    PERFORM leasehold.check_token(p_above);
    PERFORM leasehold.bound(5000);
    INSERT INTO leasehold.lease (name, token, ttl_ms, granted_at, expires_at, released, line)
    SELECT p_name, floor, 15000, 'epoch', 'epoch', true, leasehold.line() FROM leasehold.meta FOR SHARE
    ON CONFLICT DO NOTHING;
    UPDATE leasehold.lease SET token = greatest(token + 1, p_above), session = NULL, request_id = NULL, holder = NULL,
        info = NULL, released = false, renewals = 0, renew_id = NULL, touches = touches + 1, line = leasehold.line(),
        expires_at = leasehold.doubted_until(lease)
    WHERE name = p_name AND token < 9223372036854775807 RETURNING token INTO a.token;
    a.answer := CASE WHEN FOUND THEN 'bumped' ELSE 'exhausted' END;
    IF FOUND THEN
        PERFORM leasehold.note(p_name, jsonb_build_object('quarantined', jsonb_build_object('token', a.token::text)));
    END IF;
    RETURN a;
END $$;

DO $$ BEGIN
    IF to_regtype('leasehold.bumped') IS NULL THEN
        CREATE TYPE leasehold.bumped AS (why text, newest bigint, most bigint, wall timestamptz, event timestamptz);
        COMMENT ON TYPE leasehold.bumped IS 'Why a bump was not done: clock_behind, too_large, too_small; null, it was.';
    END IF;
END $$;

-- After a restore that nothing can detect: every later token above p_above, nobody holds for one ttl (T6, A10).
CREATE OR REPLACE FUNCTION leasehold.try_bump(p_above bigint) RETURNS leasehold.bumped
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    b leasehold.bumped;
    low bigint;
BEGIN
    PERFORM leasehold.check_token(p_above);
    PERFORM leasehold.bound(5000);
    SELECT floor INTO low FROM leasehold.meta FOR UPDATE;
    SELECT max(at) INTO b.event FROM leasehold.event;
    b.wall := clock_timestamp();
    b.most := floor(extract(epoch FROM b.wall) * 1000)::bigint + 86400000;
    SELECT nullif(greatest(low, max(token)), 0) INTO b.newest FROM leasehold.lease WHERE token < 9223372036854775807;
    b.why := CASE WHEN b.wall < b.event THEN 'clock_behind' WHEN p_above > b.most THEN 'too_large'
        WHEN p_above <= b.newest THEN 'too_small' END;
    IF b.why IS NOT NULL THEN RETURN b; END IF;
    UPDATE leasehold.meta SET floor = p_above;
    WITH done AS (
        UPDATE leasehold.lease SET token = greatest(token + 1, p_above), session = NULL, request_id = NULL, holder = NULL,
            info = NULL, released = false, renewals = 0, renew_id = NULL, touches = touches + 1, line = leasehold.line(),
            expires_at = leasehold.doubted_until(lease)
        WHERE token < 9223372036854775807 RETURNING name, token)
    INSERT INTO leasehold.event (name, what)
    SELECT name, jsonb_build_object('quarantined', jsonb_build_object('token', token::text)) FROM done ORDER BY name;
    RETURN b;
END $$;

CREATE OR REPLACE FUNCTION leasehold.bump(p_above bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    b leasehold.bumped := leasehold.try_bump(p_above);
BEGIN
    IF b.why IS NOT NULL THEN
        RAISE EXCEPTION 'a bump to % is not allowed (%): it must be above % and at most %, and the clock, %, not behind the history, %',
            p_above, b.why, b.newest, b.most, b.wall, b.event USING ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;
COMMENT ON FUNCTION leasehold.bump(bigint) IS
    'For operators, after a restore: every later token is above this number, such as the unix time in ms.';

-- Ends the sessions that keep an expired lease from its next holder, if it expired more than its ttl ago (A19).
CREATE OR REPLACE FUNCTION leasehold.evict(p_name text) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ended integer;
BEGIN
    SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) INTO ended FROM leasehold.in_flight(p_name) pid
    WHERE EXISTS (SELECT 1 FROM leasehold.lease l WHERE l.name = p_name
        AND clock_timestamp() > l.expires_at + l.ttl_ms * interval '1 ms');
    RETURN ended;
EXCEPTION WHEN insufficient_privilege THEN
    RETURN 0;
END $$;

-- Forgets leases free for 24 h into the floor, ledger lines older than 400 days, all but the newest 100 000 events.
CREATE OR REPLACE FUNCTION leasehold.collect() RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    gone bigint;
    more bigint;
BEGIN
    -- The floor first: a new name reads it FOR SHARE, and must not see it before the rows are gone (A20).
    PERFORM leasehold.bound(5000);
    PERFORM 1 FROM leasehold.meta FOR UPDATE;
    PERFORM set_config('leasehold.collecting', 'on', true);
    WITH d AS (
        DELETE FROM leasehold.lease l USING (
            SELECT name FROM leasehold.lease WHERE line = leasehold.line()
                AND expires_at + lock_delay_ms * interval '1 ms' < clock_timestamp() - interval '24 hours'
                -- A floor so far ahead of the clock would shut out every new name.
                AND token <= 8796093022208
            FOR UPDATE SKIP LOCKED) old
        WHERE l.name = old.name RETURNING l.token
    ), f AS (UPDATE leasehold.meta SET floor = greatest(floor, (SELECT max(token) FROM d)))
    SELECT count(*) INTO gone FROM d;
    PERFORM set_config('leasehold.collecting', '', true);
    DELETE FROM leasehold.ledger WHERE coalesce(done_at, begun_at) < clock_timestamp() - interval '400 days';
    GET DIAGNOSTICS more = ROW_COUNT;
    UPDATE leasehold.meta SET kept_from = greatest(kept_from, clock_timestamp() - interval '400 days');
    gone := gone + more;
    DELETE FROM leasehold.event WHERE number <= (SELECT max(number) - 100000 FROM leasehold.event);
    GET DIAGNOSTICS more = ROW_COUNT;
    RETURN gone + more;
END $$;

-- Nothing else deletes lease rows: a lost row is a lost token (A9).
CREATE OR REPLACE FUNCTION leasehold.keep() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'DELETE' AND current_setting('leasehold.collecting', true) = 'on' THEN RETURN OLD; END IF;
    RAISE EXCEPTION 'rows of leasehold.lease are not deleted by hand: the next token would be an old one'
        USING ERRCODE = 'LH002', HINT = 'SELECT leasehold.collect() forgets what is old and remembers its tokens.';
END $$;
CREATE OR REPLACE TRIGGER keep_rows BEFORE DELETE ON leasehold.lease FOR EACH ROW EXECUTE FUNCTION leasehold.keep();
CREATE OR REPLACE TRIGGER keep_table BEFORE TRUNCATE ON leasehold.lease FOR EACH STATEMENT EXECUTE FUNCTION leasehold.keep();

-- Applications need USAGE on the schema; these stay with its owner.
REVOKE EXECUTE ON FUNCTION leasehold.force_release(text, boolean), leasehold.bump(bigint), leasehold.try_bump(bigint), leasehold.collect(),
    leasehold.quarantine(text, bigint), leasehold.note_refusal(text, text, leasehold.refusal),
    leasehold.note(text, jsonb) FROM PUBLIC;
GRANT SELECT ON leasehold.status, leasehold.event, leasehold.ledger, leasehold.fence, leasehold.meta TO PUBLIC;
