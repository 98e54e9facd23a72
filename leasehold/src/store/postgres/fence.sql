-- Fences: the check and the writes that follow it commit together (F2, A18, A19). A refusal has SQLSTATE LH001 and
-- names both tokens; a misuse has LH002.

-- Why a fence lets nothing through, as core/src/fence.rs names it.
DO $$ BEGIN
    IF to_regtype('leasehold.refusal') IS NULL THEN
        CREATE TYPE leasehold.refusal AS (kind text, token bigint, highest bigint, lease text);
        COMMENT ON TYPE leasehold.refusal IS
            'stale, expired, released, never_issued, not_raised, too_far, other_lease, not_confirmed, no_fence.';
    END IF;
END $$;

CREATE OR REPLACE FUNCTION leasehold.words(r leasehold.refusal) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT 'refused: ' || CASE r.kind
        WHEN 'stale' THEN format('token %s is older than %s', r.token, r.highest)
        WHEN 'expired' THEN format('token %s expired', r.token)
        WHEN 'released' THEN format('token %s was released', r.token)
        WHEN 'never_issued' THEN format('token %s was never issued', r.token)
        WHEN 'not_raised' THEN format('token %s is newer than the fence %s: raise it first', r.token, r.highest)
        WHEN 'too_far' THEN format('token %s is too far above the fence %s to be true', r.token, r.highest)
        WHEN 'other_lease' THEN format('the fence belongs to the lease %s', r.lease)
        WHEN 'not_confirmed' THEN format('token %s was issued before a failover that nobody has confirmed', r.token)
        WHEN 'no_fence' THEN format('no fence was raised for this resource: raise it with token %s first', r.token)
        ELSE r.kind END
$$;

-- The rule of F7 on one row, evaluated now; null if the token passes. A row of another line passes nothing (F14b).
CREATE OR REPLACE FUNCTION leasehold.issued(l leasehold.lease, p_token bigint) RETURNS leasehold.refusal
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN CASE
        WHEN p_token < l.token THEN ROW('stale', p_token, l.token, NULL)::leasehold.refusal
        WHEN p_token > l.token OR l.session IS NULL THEN ROW('never_issued', p_token, l.token, NULL)::leasehold.refusal
        -- Before the clock: it may be another server's by now.
        WHEN l.line <> leasehold.line() THEN ROW('not_confirmed', p_token, NULL, NULL)::leasehold.refusal
        WHEN l.released THEN ROW('released', p_token, NULL, NULL)::leasehold.refusal
        WHEN l.expires_at <= clock_timestamp() THEN ROW('expired', p_token, NULL, NULL)::leasehold.refusal
    END;
END $$;

-- Whether this call is a transaction of its own. Seen with plain statements and with prepared ones; not where a driver
-- sends text and parameters in one go outside a transaction. There only protect() tells.
CREATE OR REPLACE FUNCTION leasehold.is_alone() RETURNS boolean
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT transaction_timestamp() = statement_timestamp()
        OR EXISTS (SELECT 1 FROM pg_cursors WHERE creation_time = transaction_timestamp())
$$;

CREATE OR REPLACE FUNCTION leasehold.check_not_alone(p_what text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF leasehold.is_alone() THEN
        RAISE EXCEPTION 'leasehold.% protects the transaction it is called in, and this call is a transaction of its own', p_what
            USING ERRCODE = 'LH002', HINT = format('Send BEGIN first, as a statement of its own; then %s, then the writes, then COMMIT.', p_what);
    END IF;
END $$;

-- The lease as it stands, behind its barrier, which is held shared from here to the end of the transaction: a takeover
-- waits for this transaction, or this look sees the takeover. The look is a statement of its own, after the wait. That
-- needs READ COMMITTED, where a statement sees what was committed before it. Under stricter isolation the row is locked as
-- well, which fails with 40001 if the snapshot is older than the row (F14).
CREATE OR REPLACE FUNCTION leasehold.behind_barrier(p_name text) RETURNS leasehold.lease
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    l leasehold.lease;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(leasehold.barrier_key(p_name));
    IF current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') THEN
        l := leasehold.known(p_name);
    ELSE
        SELECT * INTO l FROM leasehold.lease WHERE name = p_name FOR KEY SHARE;
        IF NOT FOUND THEN l := leasehold.known(p_name); END IF;
    END IF;
    RETURN l;
END $$;

-- The first statement of a transaction that writes under a lease kept in this database (F7).
CREATE OR REPLACE FUNCTION leasehold.fence(p_name text, p_token bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM leasehold.check_not_alone('fence');
    PERFORM leasehold.pass_fence(p_name, p_token);
END $$;
COMMENT ON FUNCTION leasehold.fence(text, bigint) IS
    'First statement of a transaction that writes under a lease: returns, or raises LH001 naming both tokens.';

-- The same inside of a statement that writes, which may then be a transaction of its own (F17). Its snapshot is older
-- than the wait for the barrier, so it may only compute from the rows that it writes, which are read anew (F12). The
-- triggers of protect() come before it and refuse it.
CREATE OR REPLACE FUNCTION leasehold.fenced(p_name text, p_token bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_query() !~* '\m(insert|update|delete|merge)\M' THEN
        RAISE EXCEPTION 'leasehold.fenced protects the statement it is a part of, and this one writes nothing'
            USING ERRCODE = 'LH002', HINT = format(
                'WITH f AS MATERIALIZED (SELECT leasehold.fenced(%L, %s)) UPDATE ... FROM f WHERE ...', p_name, p_token);
    END IF;
    PERFORM leasehold.pass_fence(p_name, p_token);
    RETURN true;
END $$;
COMMENT ON FUNCTION leasehold.fenced(text, bigint) IS
    'Part of one statement that writes: WITH f AS MATERIALIZED (SELECT leasehold.fenced(name, token)) UPDATE ... FROM f.';

CREATE OR REPLACE FUNCTION leasehold.pass_fence(p_name text, p_token bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    l leasehold.lease;
    no leasehold.refusal;
BEGIN
    PERFORM leasehold.check_token(p_token);
    l := leasehold.behind_barrier(p_name);
    no := leasehold.issued(l, p_token);
    IF no.kind IS NOT NULL THEN
        RAISE EXCEPTION '%', leasehold.words(no) USING ERRCODE = 'LH001', CONSTRAINT = no.kind,
            DETAIL = format('lease %s, token %s, newest token %s', p_name, p_token, coalesce(l.token::text, 'none')),
            HINT = 'Another holder has taken over, or this one is too late. Roll back, stop working, and ask for the lease again.';
    END IF;
    PERFORM leasehold.let_pass(l);
END $$;

-- From here to its end this transaction may write under the lease, which it holds the barrier of.
CREATE OR REPLACE FUNCTION leasehold.let_pass(l leasehold.lease) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM leasehold.limit_idleness(l.expires_at - clock_timestamp());
    PERFORM set_config('leasehold.passed', coalesce(current_setting('leasehold.passed', true), '')
        || leasehold.pass(l.name), true);
END $$;

-- A holder that freezes inside its transaction must not block its successor for long (F21). Only ever shorter.
CREATE OR REPLACE FUNCTION leasehold.limit_idleness(p_left interval) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    set interval := current_setting('idle_in_transaction_session_timeout')::interval;
    most interval := CASE WHEN set > interval '0' THEN least(set, p_left) ELSE p_left END;
BEGIN
    PERFORM set_config('idle_in_transaction_session_timeout',
        greatest(1, leasehold.microseconds(most) / 1000)::text, true);
END $$;

-- What fence() leaves behind for the triggers of protect(); it dies with the transaction, or with the savepoint.
CREATE OR REPLACE FUNCTION leasehold.pass(p_name text) RETURNS text
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT E'\n' || p_name || E'\t' || pg_current_xact_id()::text || E'\n'
$$;

-- An event as the core writes it: {"refused": {"target": …, "why": {"stale": {"token": "1", "highest": "2"}}}}.
CREATE OR REPLACE FUNCTION leasehold.note_refusal(p_lease text, p_target text, r leasehold.refusal) RETURNS void
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT leasehold.note(p_lease, jsonb_build_object('refused', jsonb_build_object('target', p_target, 'why',
        jsonb_build_object(CASE r.kind WHEN 'not_confirmed' THEN 'never_issued' ELSE r.kind END,
            CASE WHEN r.kind = 'other_lease' THEN jsonb_build_object('by', r.lease)
                 ELSE jsonb_strip_nulls(jsonb_build_object('token', r.token::text, 'highest', r.highest::text)) END))))
$$;

-- Raises the fence of a receiver (F6). A lease of this store tells by itself which tokens it issued; of one that lives
-- elsewhere (F18) nothing is known, so only the jump is bounded (T10). Autocommit; repeat it at will.
CREATE OR REPLACE FUNCTION leasehold.try_raise(p_resource text, p_name text, p_token bigint, p_elsewhere boolean DEFAULT false)
RETURNS leasehold.refusal
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    f leasehold.fence;
    l leasehold.lease;
    highest bigint;
    no leasehold.refusal;
BEGIN
    PERFORM leasehold.check_text('resource', p_resource, 200);
    PERFORM leasehold.check_text('lease name', p_name, 200);
    PERFORM leasehold.check_token(p_token);
    PERFORM leasehold.bound(5000);
    LOOP
        -- FOR UPDATE waits for the writes that check() has let in (F11).
        SELECT * INTO f FROM leasehold.fence WHERE resource = p_resource FOR UPDATE;
        l := leasehold.known(p_name);
        IF p_elsewhere AND l.name IS NULL THEN l.token := NULL; END IF;
        highest := coalesce(f.token, l.token, p_token);
        no := CASE
            WHEN f.lease <> p_name THEN ROW('other_lease', p_token, NULL, f.lease)::leasehold.refusal
            WHEN p_token < highest THEN ROW('stale', p_token, highest, NULL)::leasehold.refusal
            WHEN p_token > l.token THEN ROW('never_issued', p_token, NULL, NULL)::leasehold.refusal
            WHEN l.token IS NULL AND p_token - highest > 8796093022208
                THEN ROW('too_far', p_token, highest, NULL)::leasehold.refusal END;
        IF no.kind IS NOT NULL THEN
            PERFORM leasehold.note_refusal(p_name, p_resource, no);
            RETURN no;
        END IF;
        IF f.resource IS NOT NULL THEN
            UPDATE leasehold.fence SET token = p_token WHERE resource = p_resource;
            RETURN NULL;
        END IF;
        INSERT INTO leasehold.fence (resource, lease, token) VALUES (p_resource, p_name, p_token) ON CONFLICT DO NOTHING;
        IF FOUND THEN RETURN NULL; END IF;
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION leasehold.raise(p_resource text, p_name text, p_token bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    no leasehold.refusal := leasehold.try_raise(p_resource, p_name, p_token, true);
BEGIN
    IF no.kind IS NOT NULL THEN
        RAISE EXCEPTION '%', leasehold.words(no) USING ERRCODE = 'LH001';
    END IF;
END $$;
COMMENT ON FUNCTION leasehold.raise(text, text, bigint) IS
    'The barrier of a new holder, before its first read: afterwards no smaller token passes check().';

-- The check of a write behind raise(): inside the transaction of the write, before it (F18).
CREATE OR REPLACE FUNCTION leasehold.check(p_resource text, p_name text, p_token bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    f leasehold.fence;
BEGIN
    PERFORM leasehold.check_token(p_token);
    PERFORM leasehold.check_not_alone('check');
    SELECT * INTO f FROM leasehold.fence WHERE resource = p_resource FOR SHARE;
    IF f.lease IS DISTINCT FROM p_name OR f.token <> p_token THEN
        RAISE EXCEPTION '%', leasehold.words(leasehold.compare(f, p_name, p_token)) USING ERRCODE = 'LH001';
    END IF;
END $$;
COMMENT ON FUNCTION leasehold.check(text, text, bigint) IS
    'In the transaction of the write, before it: returns if the token is the raised one, else raises LH001.';

CREATE OR REPLACE FUNCTION leasehold.compare(f leasehold.fence, p_name text, p_token bigint) RETURNS leasehold.refusal
LANGUAGE sql IMMUTABLE AS $$
    SELECT ROW(CASE
        WHEN f.resource IS NULL THEN 'no_fence'
        WHEN f.lease <> p_name THEN 'other_lease'
        WHEN p_token < f.token THEN 'stale'
        ELSE 'not_raised' END, p_token, f.token, f.lease)::leasehold.refusal
$$;
