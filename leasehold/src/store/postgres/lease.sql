-- Acquire, renew, release: one call is one autocommitted statement and one round trip (L13). The rules are those of
-- core/src/lease.rs; a test holds the two together on random histories.
--
-- Order in acquire: look without a lock (a poll of a held lease waits for nobody, PG4); then the barrier, which waits
-- for fenced transactions of the old token (A18); then read the clock, look again and write in one statement (A1).

-- The answer to an acquire that gets nothing (L2.4).
CREATE OR REPLACE FUNCTION leasehold.refuse(l leasehold.lease, p_session uuid, now timestamptz)
RETURNS leasehold.answer LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    a leasehold.answer;
BEGIN
    a.answer := CASE WHEN l.session IS NULL THEN 'quarantined' WHEN now < l.expires_at THEN 'held' ELSE 'delayed' END;
    a.token := l.token;
    a.hint_us := leasehold.microseconds(leasehold.free_from(l) - now);
    a.holder := l.holder;
    a.info := l.info;
    a.yours := l.session IS NOT DISTINCT FROM p_session;
    a.at := now;
    a.touches := l.touches;
    a.wait_ms := greatest(l.promise_ms, l.ttl_ms) + l.lock_delay_ms;
    RETURN a;
END $$;

-- Waits until no fenced transaction of the old token is in flight (A18), at most a tenth of the ttl (A1). Answers which
-- of them stand in the way, an empty text if it was only another acquire, or null.
CREATE OR REPLACE FUNCTION leasehold.barrier(p_name text, p_ttl_ms bigint) RETURNS text
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    pids text;
BEGIN
    PERFORM leasehold.bound(p_ttl_ms / 10);
    PERFORM pg_advisory_xact_lock(leasehold.barrier_key(p_name));
    PERFORM leasehold.bound(greatest(2000, p_ttl_ms / 10));
    RETURN NULL;
EXCEPTION WHEN lock_not_available THEN
    SELECT string_agg(pid::text, ', ') INTO pids FROM leasehold.in_flight(p_name) pid;
    RETURN coalesce(pids, '');
END $$;

-- p_seen_token and p_seen_touches: the lease as the caller saw it stand, unchanged, for its ttl and lock delay and some
-- more by a clock of its own (PG8). Without p_strict that is enough to take it over, so that a clock set back does not
-- keep it held for hours; with it, it is needed as well, so that a clock set forward does not end it early.
CREATE OR REPLACE FUNCTION leasehold.acquire(
    p_name text, p_session uuid, p_request_id uuid, p_holder text, p_info text, p_ttl_ms bigint,
    p_lock_delay_ms bigint DEFAULT 0, p_evict boolean DEFAULT true, p_seen_token bigint DEFAULT NULL,
    p_seen_touches bigint DEFAULT NULL, p_strict boolean DEFAULT false
) RETURNS leasehold.answer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    here text := leasehold.line();
    l leasehold.lease;
    a leasehold.answer;
    low bigint;
    now timestamptz;
    seen boolean;
BEGIN
    PERFORM leasehold.check_text('lease name', p_name, 200);
    PERFORM leasehold.check_text('holder', p_holder, 200);
    IF p_info IS NOT NULL THEN PERFORM leasehold.check_text('info', p_info, 1024); END IF;
    PERFORM leasehold.check_ttl(p_ttl_ms);
    PERFORM leasehold.check_id('session', p_session);
    PERFORM leasehold.check_id('request id', p_request_id);
    PERFORM leasehold.bound(greatest(2000, p_ttl_ms / 10));
    FOR try IN 1..100 LOOP
        SELECT * INTO l FROM leasehold.lease WHERE name = p_name;
        IF NOT FOUND THEN
            -- FOR SHARE: the floor must not move under the token that follows it (A20).
            SELECT floor INTO low FROM leasehold.meta FOR SHARE;
            IF low = 9223372036854775807 THEN a.answer := 'exhausted'; RETURN a; END IF;
            -- No conflict target: with one, two inserts can deadlock over the other unique index.
            INSERT INTO leasehold.lease (name, token, ttl_ms, granted_at, expires_at, released, line)
            VALUES (p_name, low, p_ttl_ms, 'epoch', 'epoch', true, here) ON CONFLICT DO NOTHING;
            CONTINUE;
        END IF;
        IF l.line <> here THEN
            a := leasehold.new_line(l, here);
            IF a.answer IS NOT NULL THEN RETURN a; END IF;
            CONTINUE;
        END IF;
        now := clock_timestamp();
        IF l.session = p_session AND l.request_id = p_request_id THEN
            UPDATE leasehold.lease SET touches = touches + 1, promise_ms = greatest(promise_ms, p_ttl_ms),
                expires_at = greatest(expires_at, clock_timestamp() + p_ttl_ms * interval '1 ms')
            WHERE name = p_name AND token = l.token AND session = p_session AND request_id = p_request_id
                AND line = here AND NOT released AND expires_at > clock_timestamp();
            a.answer := CASE WHEN FOUND THEN 'granted' ELSE 'already_used' END;
            a.token := l.token;
            a.ttl_ms := p_ttl_ms;
            a.at := clock_timestamp();
            RETURN a;
        END IF;
        seen := coalesce(l.token = p_seen_token AND l.touches = p_seen_touches, false);
        IF now < leasehold.free_from(l) AND (p_strict OR NOT seen)
            OR p_strict AND NOT seen AND NOT l.released
        THEN
            RETURN leasehold.refuse(l, p_session, now);
        END IF;
        IF l.token = 9223372036854775807 THEN a.answer := 'exhausted'; RETURN a; END IF;
        a.holder := leasehold.barrier(p_name, p_ttl_ms);
        CONTINUE WHEN a.holder = '';
        IF a.holder IS NOT NULL THEN
            IF p_evict THEN PERFORM leasehold.evict(p_name); END IF;
            a.answer := 'blocked';
            RETURN a;
        END IF;
        -- The clock is read in the statement, so that it is read again if the statement waits (PG2, PG3).
        UPDATE leasehold.lease SET token = token + 1, session = p_session, request_id = p_request_id, holder = p_holder,
            info = p_info, ttl_ms = p_ttl_ms, promise_ms = p_ttl_ms, lock_delay_ms = p_lock_delay_ms, granted_at = clock_timestamp(),
            expires_at = clock_timestamp() + p_ttl_ms * interval '1 ms', released = false, renewals = 0,
            renew_id = NULL, touches = touches + 1
        WHERE name = p_name AND token = l.token AND line = here
            AND (clock_timestamp() >= leasehold.free_from(lease) OR seen AND NOT p_strict AND touches = p_seen_touches);
        CONTINUE WHEN NOT FOUND;
        IF l.session IS NOT NULL AND NOT l.released THEN
            PERFORM leasehold.note(p_name, jsonb_build_object('expired',
                jsonb_build_object('holder', l.holder, 'token', l.token::text)));
        END IF;
        PERFORM leasehold.note(p_name, jsonb_build_object('granted',
            jsonb_build_object('holder', p_holder, 'token', (l.token + 1)::text, 'ttl', p_ttl_ms)));
        a.answer := 'granted';
        a.token := l.token + 1;
        a.ttl_ms := p_ttl_ms;
        a.at := clock_timestamp();
        RETURN a;
    END LOOP;
    RAISE EXCEPTION 'lease % changed hands too fast to be read', p_name USING ERRCODE = 'serialization_failure';
END $$;

-- The first touch of a row that was written on another line of the server's history (PG9).
CREATE OR REPLACE FUNCTION leasehold.new_line(l leasehold.lease, here text) RETURNS leasehold.answer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    a leasehold.answer;
BEGIN
    IF (SELECT policy FROM leasehold.meta) = 'trust_sync' THEN
        -- Another server, another clock: every promise is counted anew.
        UPDATE leasehold.lease SET line = here, touches = touches + 1,
            expires_at = CASE WHEN released THEN expires_at
                              ELSE greatest(expires_at, clock_timestamp() + ttl_ms * interval '1 ms') END
        WHERE name = l.name AND line = l.line;
        RETURN a;
    END IF;
    UPDATE leasehold.lease SET line = here, session = NULL, holder = NULL, request_id = NULL, info = NULL,
        released = false, renewals = 0, renew_id = NULL, touches = touches + 1,
        token = CASE WHEN token = 9223372036854775807 THEN token
            ELSE greatest(token + 1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) END,
        expires_at = leasehold.doubted_until(lease)
    WHERE name = l.name AND line = l.line RETURNING * INTO l;
    IF NOT FOUND THEN RETURN a; END IF;
    PERFORM leasehold.note(l.name, jsonb_build_object('quarantined', jsonb_build_object('token', l.token::text)));
    RETURN leasehold.refuse(l, NULL, clock_timestamp());
END $$;

CREATE OR REPLACE FUNCTION leasehold.renew(
    p_name text, p_token bigint, p_session uuid, p_ttl_ms bigint, p_number bigint, p_renew_id uuid
) RETURNS leasehold.answer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    here text := leasehold.line();
    l leasehold.lease;
    a leasehold.answer;
BEGIN
    PERFORM leasehold.check_token(p_token);
    PERFORM leasehold.check_ttl(p_ttl_ms);
    PERFORM leasehold.check_id('renew id', p_renew_id);
    PERFORM leasehold.bound(greatest(2000, p_ttl_ms / 10));
    -- Only columns outside every key change, so fenced transactions do not hold a renewal up (INV-24).
    UPDATE leasehold.lease SET
        ttl_ms = CASE WHEN renewals = p_number - 1 THEN p_ttl_ms ELSE ttl_ms END,
        promise_ms = greatest(promise_ms, p_ttl_ms),
        expires_at = greatest(expires_at, clock_timestamp() + p_ttl_ms * interval '1 ms'),
        renewals = p_number, renew_id = p_renew_id, touches = touches + 1
    WHERE name = p_name AND token = p_token AND session = p_session AND line = here AND NOT released
        AND expires_at > clock_timestamp()
        AND (renewals = p_number - 1 OR (renewals = p_number AND renew_id = p_renew_id));
    a.at := clock_timestamp();
    IF FOUND THEN
        a.answer := 'renewed';
        a.token := p_token;
        a.ttl_ms := p_ttl_ms;
        RETURN a;
    END IF;
    l := leasehold.known(p_name);
    IF l.line <> here THEN
        PERFORM leasehold.new_line(l, here);
        l := leasehold.known(p_name);
        IF l.session = p_session AND l.token = p_token THEN
            RETURN leasehold.renew(p_name, p_token, p_session, p_ttl_ms, p_number, p_renew_id);
        END IF;
    END IF;
    a.at := clock_timestamp();
    a.token := l.token;
    a.holder := l.holder;
    a.answer := CASE
        WHEN p_token < l.token THEN 'taken'
        WHEN p_token > l.token OR l.session IS NULL THEN 'gone'
        WHEN l.session IS DISTINCT FROM p_session THEN 'taken'
        WHEN l.released THEN 'was_released'
        WHEN l.expires_at <= a.at THEN 'expired'
        ELSE 'seq_mismatch' END;
    PERFORM leasehold.note(p_name, jsonb_build_object('lost', jsonb_build_object('token', p_token::text, 'why',
        CASE a.answer
            WHEN 'taken' THEN jsonb_build_object('taken', jsonb_build_object('by', a.holder, 'token', a.token::text))
            WHEN 'was_released' THEN '"released"'::jsonb
            ELSE to_jsonb(a.answer) END)));
    RETURN a;
END $$;

-- The row, or for a name that has none one with the floor as its token: what was forgotten had no larger one (T5).
CREATE OR REPLACE FUNCTION leasehold.known(p_name text) RETURNS leasehold.lease
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    l leasehold.lease;
BEGIN
    SELECT * INTO l FROM leasehold.lease WHERE name = p_name;
    IF NOT FOUND THEN SELECT floor INTO l.token FROM leasehold.meta; END IF;
    RETURN l;
END $$;

-- A release that finds its tenure over changes nothing: whoever ran out may still have requests on the way (W4).
-- Transactions that notify commit one after the other. A caller that releases a lot says so itself, now and then.
DROP FUNCTION IF EXISTS leasehold.release(text, bigint, uuid, uuid);
CREATE OR REPLACE FUNCTION leasehold.release(
    p_name text, p_token bigint, p_session uuid, p_request_id uuid, p_notify boolean DEFAULT true
) RETURNS leasehold.answer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    l leasehold.lease;
    a leasehold.answer;
BEGIN
    PERFORM leasehold.bound(5000);
    UPDATE leasehold.lease SET released = true, expires_at = least(expires_at, clock_timestamp())
    WHERE name = p_name AND session = p_session AND NOT released AND expires_at > clock_timestamp()
        AND (token = p_token OR (p_token IS NULL AND request_id = p_request_id))
    RETURNING * INTO l;
    a.at := clock_timestamp();
    IF FOUND THEN
        PERFORM leasehold.note(p_name, jsonb_build_object('released',
            jsonb_build_object('holder', l.holder, 'token', l.token::text)));
        IF p_notify THEN PERFORM pg_notify('leasehold', p_name); END IF;
        a.answer := 'released';
        RETURN a;
    END IF;
    l := leasehold.known(p_name);
    a.token := l.token;
    a.holder := l.holder;
    a.answer := CASE
        WHEN p_token IS NULL OR p_token < l.token THEN 'already_over'
        WHEN p_token > l.token THEN 'gone'
        WHEN l.session IS NULL OR l.session = p_session THEN 'already_over'
        ELSE 'taken' END;
    RETURN a;
END $$;
