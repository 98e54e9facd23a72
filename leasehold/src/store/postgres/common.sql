-- What the functions share: the line of the server's history, the barrier, checks of what comes from outside.
--
-- The functions that applications call run with the rights of the owner and a search path of their own; those that only
-- these call have neither, since to set a path costs as much as the work. What runs at every call is one expression, or
-- plpgsql, which keeps its plan.

-- The server's history (A9). Changes at a promotion, a restore to a point in time, a dump and reload, a table rewrite.
CREATE OR REPLACE FUNCTION leasehold.line() RETURNS text
LANGUAGE sql VOLATILE AS $$
    SELECT (pg_control_system()).system_identifier || '/' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)
        || '/' || pg_relation_filenode('leasehold.lease')
$$;

-- The barrier of a lease is an advisory lock on 64 bits of hash of its name; a collision only waits.
CREATE OR REPLACE FUNCTION leasehold.barrier_key(p_name text) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$ SELECT hashtextextended(p_name, 1279611219) $$;

-- Who holds a barrier shared: the fenced transactions of this lease that are in flight.
CREATE OR REPLACE FUNCTION leasehold.in_flight(p_name text) RETURNS SETOF integer
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT DISTINCT pid FROM pg_locks
    WHERE locktype = 'advisory' AND granted AND mode = 'ShareLock' AND objsubid = 1 AND pid <> pg_backend_pid()
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND (classid::bigint << 32) | objid::bigint = leasehold.barrier_key(p_name)
$$;

-- Nobody waits here for longer than this (INV-12), and what is answered is durable, whatever the session says (L10).
CREATE OR REPLACE FUNCTION leasehold.bound(p_ms bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM set_config('lock_timeout', least(30000, greatest(50, p_ms))::text, true);
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION leasehold.check_text(what text, given text, most integer) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF given IS NULL OR octet_length(given) NOT BETWEEN 1 AND most OR given <> btrim(given, E' \t\n\r')
        OR given ~ '[\u0001-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]'
    THEN
        RAISE EXCEPTION '% "%" is not allowed: 1 to % bytes of UTF-8 without control or invisible characters, no space at either end',
            what, left(regexp_replace(coalesce(given, 'NULL'), '[[:cntrl:]]', '?', 'g'), 60), most
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;

CREATE OR REPLACE FUNCTION leasehold.check_token(given bigint) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF given IS NULL OR given < 1 THEN
        RAISE EXCEPTION 'token "%" is not allowed: a token is a whole number from 1 to 9223372036854775807',
            coalesce(given::text, 'NULL') USING ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;

CREATE OR REPLACE FUNCTION leasehold.check_ttl(given bigint) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF given IS NULL OR given NOT BETWEEN 500 AND 86400000 THEN
        RAISE EXCEPTION 'ttl "%" is not allowed: 500 to 86400000 milliseconds', coalesce(given::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;

CREATE OR REPLACE FUNCTION leasehold.check_id(what text, given uuid) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF given IS NULL THEN
        RAISE EXCEPTION '% "NULL" is not allowed: give a random uuid', what USING ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;

CREATE OR REPLACE FUNCTION leasehold.note(name text, what jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO leasehold.event (name, what) VALUES (note.name, note.what);
END $$;

-- When anybody gets the lease, if nothing else happens to it (L1).
CREATE OR REPLACE FUNCTION leasehold.free_from(l leasehold.lease) RETURNS timestamptz
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN l.session IS NOT NULL AND l.released THEN 'epoch'
                ELSE l.expires_at + l.lock_delay_ms * interval '1 ms' END
$$;

DO $$ BEGIN
    IF to_regtype('leasehold.answer') IS NULL THEN
        CREATE TYPE leasehold.answer AS (
            answer text, token bigint, ttl_ms bigint, hint_us bigint, holder text, info text, yours boolean,
            at timestamptz, touches bigint, wait_ms bigint
        );
        COMMENT ON TYPE leasehold.answer IS
            'What acquire, renew and release say: granted, held, delayed, quarantined, already_used, exhausted, blocked; renewed, expired, taken, was_released, seq_mismatch, gone; released, already_over.';
    END IF;
END $$;

-- Times travel as microseconds since 1970.
CREATE OR REPLACE FUNCTION leasehold.micros(t timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT CASE WHEN isfinite(t) THEN greatest(0, (extract(epoch FROM t) * 1000000)::bigint) ELSE 0 END
$$;
CREATE OR REPLACE FUNCTION leasehold.from_micros(m bigint) RETURNS timestamptz
LANGUAGE sql IMMUTABLE AS $$ SELECT timestamptz 'epoch' + m * interval '1 microsecond' $$;

-- The longest promise of a lease that was never granted, and how long a quarantine lasts (T6): whoever may still trust
-- an old promise is waited for; none was ever longer than 24 h.
CREATE OR REPLACE FUNCTION leasehold.doubted_until(l leasehold.lease) RETURNS timestamptz
LANGUAGE sql VOLATILE AS $$
    SELECT greatest(least(l.expires_at, clock_timestamp() + interval '24 hours'),
        clock_timestamp() + l.ttl_ms * interval '1 ms')
$$;

CREATE OR REPLACE FUNCTION leasehold.microseconds(i interval) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$ SELECT greatest(0, (extract(epoch FROM i) * 1000000)::bigint) $$;
