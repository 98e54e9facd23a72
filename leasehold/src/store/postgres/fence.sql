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
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN CASE
        WHEN p_token < l.token THEN ROW('stale', p_token, l.token, NULL)::leasehold.refusal
        WHEN l.name IS NULL OR p_token > l.token OR l.session IS NULL THEN ROW('never_issued', p_token, l.token, NULL)::leasehold.refusal
        WHEN l.released THEN ROW('released', p_token, NULL, NULL)::leasehold.refusal
        WHEN l.expires_at <= clock_timestamp() THEN ROW('expired', p_token, NULL, NULL)::leasehold.refusal
        WHEN l.line <> leasehold.line() THEN ROW('not_confirmed', p_token, NULL, NULL)::leasehold.refusal
    END;
END $$;

-- The first statement of a transaction that writes under a lease kept in this database (F7).
--
-- Under READ COMMITTED it takes the lease's barrier shared and then looks, in a statement of its own: a takeover waits
-- for this transaction, or this look sees the takeover. Under stricter isolation the look would use an old snapshot, so
-- the row is locked instead, which fails with 40001 if it changed (F14).
CREATE OR REPLACE FUNCTION leasehold.fence(p_name text, p_token bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    l leasehold.lease;
    no leasehold.refusal;
BEGIN
    PERFORM leasehold.check_token(p_token);
    IF transaction_timestamp() = statement_timestamp() THEN
        RAISE EXCEPTION 'leasehold.fence protects the transaction it is called in, and this call is a transaction of its own'
            USING ERRCODE = 'LH002', HINT = 'Send BEGIN first, as a statement of its own; then fence, then the writes, then COMMIT.';
    END IF;
    IF current_setting('transaction_isolation') = 'read committed' THEN
        PERFORM pg_advisory_xact_lock_shared(leasehold.barrier_class(), hashtext(p_name));
        SELECT * INTO l FROM leasehold.lease WHERE name = p_name;
    ELSE
        SELECT * INTO l FROM leasehold.lease WHERE name = p_name FOR KEY SHARE;
    END IF;
    no := leasehold.issued(l, p_token);
    IF no.kind IS NOT NULL THEN
        RAISE EXCEPTION '%', leasehold.words(no) USING ERRCODE = 'LH001',
            DETAIL = format('lease %s, token %s, newest token %s', p_name, p_token, coalesce(l.token::text, 'none')),
            HINT = 'Another holder has taken over, or this one is too late. Roll back, stop working, and ask for the lease again.';
    END IF;
    -- A holder that freezes here must not block its successor for long (F21).
    PERFORM set_config('idle_in_transaction_session_timeout',
        greatest(1, leasehold.microseconds(l.expires_at - clock_timestamp()) / 1000)::text, true);
    PERFORM set_config('leasehold.passed', coalesce(current_setting('leasehold.passed', true), '')
        || leasehold.pass(p_name), true);
END $$;
COMMENT ON FUNCTION leasehold.fence(text, bigint) IS
    'First statement of a transaction that writes under a lease: returns, or raises LH001 naming both tokens.';

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

-- Raises the fence of a receiver whose lease lives in another store (F6, F18). Autocommit; repeat it at will.
CREATE OR REPLACE FUNCTION leasehold.try_raise(p_resource text, p_name text, p_token bigint) RETURNS leasehold.refusal
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    f leasehold.fence;
    no leasehold.refusal;
BEGIN
    PERFORM leasehold.check_text('resource', p_resource, 200);
    PERFORM leasehold.check_text('lease name', p_name, 200);
    PERFORM leasehold.check_token(p_token);
    INSERT INTO leasehold.fence AS old (resource, lease, token) VALUES (p_resource, p_name, p_token)
    ON CONFLICT (resource) DO UPDATE SET token = excluded.token
        WHERE old.lease = excluded.lease AND old.token <= excluded.token
            AND (excluded.token - old.token <= 8796093022208
                 OR EXISTS (SELECT 1 FROM leasehold.lease l WHERE l.name = p_name AND l.token >= p_token));
    IF NOT FOUND THEN
        SELECT * INTO f FROM leasehold.fence WHERE resource = p_resource;
        no := leasehold.compare(f, p_name, p_token);
        PERFORM leasehold.note_refusal(p_name, p_resource, no);
    END IF;
    RETURN no;
END $$;

CREATE OR REPLACE FUNCTION leasehold.raise(p_resource text, p_name text, p_token bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    no leasehold.refusal := leasehold.try_raise(p_resource, p_name, p_token);
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
        WHEN p_token - f.token > 8796093022208 THEN 'too_far'
        ELSE 'not_raised' END, p_token, f.token, f.lease)::leasehold.refusal
$$;

-- A table belongs to a lease: from now on every write to it, by whatever client, needs the transaction to have passed
-- the fence (A19). It protects against mistakes, not against a role that lies: the owner can disable triggers,
-- session_replication_role = replica skips them, ALTER TABLE and COPY FREEZE are not writes to a trigger.
CREATE OR REPLACE FUNCTION leasehold.protect(p_table regclass, p_lease text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM leasehold.check_text('lease name', p_lease, 200);
    PERFORM leasehold.unprotect(p_table);
    EXECUTE format('CREATE TRIGGER leasehold_statement BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s
        FOR EACH STATEMENT EXECUTE FUNCTION leasehold.guard(%L)', p_table, p_lease);
    EXECUTE format('CREATE TRIGGER leasehold_row BEFORE INSERT OR UPDATE OR DELETE ON %s
        FOR EACH ROW EXECUTE FUNCTION leasehold.guard(%L)', p_table, p_lease);
END $$;
COMMENT ON FUNCTION leasehold.protect(regclass, text) IS
    'Makes a table refuse every write of a transaction that has not passed leasehold.fence() of this lease.';

CREATE OR REPLACE FUNCTION leasehold.unprotect(p_table regclass) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET client_min_messages = warning AS $$
BEGIN
    EXECUTE format('DROP TRIGGER IF EXISTS leasehold_statement ON %s', p_table);
    EXECUTE format('DROP TRIGGER IF EXISTS leasehold_row ON %s', p_table);
END $$;
COMMENT ON FUNCTION leasehold.unprotect(regclass) IS 'Undoes leasehold.protect.';

CREATE OR REPLACE FUNCTION leasehold.guard() RETURNS trigger
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF position(leasehold.pass(TG_ARGV[0]) IN coalesce(current_setting('leasehold.passed', true), '')) = 0 THEN
        RAISE EXCEPTION 'refused: table % belongs to the lease %, and this transaction has not passed its fence',
            TG_TABLE_NAME, TG_ARGV[0]
            USING ERRCODE = 'LH001', HINT = format('First in the transaction: SELECT leasehold.fence(%L, <your token>);', TG_ARGV[0]);
    END IF;
    IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
    RETURN NEW;
END $$;
