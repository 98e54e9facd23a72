-- The ledger: work that must be done once, entered in the same transaction as its effect (I4), or begun and completed
-- around an effect outside (I7). The rules are those of core/src/ledger.rs.

-- One call in the transaction of the effect: true means do it now, false means it was done before (I5).
CREATE OR REPLACE FUNCTION leasehold.once(p_scope text, p_key text, p_fingerprint bytea DEFAULT NULL, p_born timestamptz DEFAULT NULL
) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    e leasehold.ledger;
    print bytea := coalesce(p_fingerprint, decode(repeat('00', 32), 'hex'));
    l leasehold.lease;
BEGIN
    PERFORM leasehold.check_text('lease name', p_scope, 200);
    PERFORM leasehold.check_text('ledger key', p_key, 200);
    LOOP
        SELECT * INTO e FROM leasehold.ledger WHERE scope = p_scope AND key = p_key FOR UPDATE;
        IF FOUND THEN
            IF e.fingerprint <> print THEN
                RAISE EXCEPTION 'ledger key % of % was used for something else', p_key, p_scope USING ERRCODE = 'LH003';
            END IF;
            IF e.done_at IS NOT NULL THEN RETURN false; END IF;
            RAISE EXCEPTION 'ledger key % of % is begun under token % and not completed', p_key, p_scope, e.token
                USING ERRCODE = 'LH004', HINT = 'Complete it with leasehold.finish, or abandon it: the same without a response.';
        END IF;
        IF p_born < (SELECT kept_from FROM leasehold.meta) THEN
            RAISE EXCEPTION 'the request for % of % is older than the memory of the ledger', p_key, p_scope
                USING ERRCODE = 'LH005', HINT = 'Whether it was done cannot be told any more; look at the effect itself.';
        END IF;
        IF position(leasehold.pass(p_scope) IN coalesce(current_setting('leasehold.passed', true), '')) = 0 THEN
            RAISE EXCEPTION 'refused: this transaction has not passed the fence of the lease %', p_scope
                USING ERRCODE = 'LH001', HINT = format('First in the transaction: SELECT leasehold.fence(%L, <your token>);', p_scope);
        END IF;
        SELECT * INTO l FROM leasehold.lease WHERE name = p_scope;
        INSERT INTO leasehold.ledger (scope, key, token, attempt, holder, fingerprint, begun_at, done_at, response)
        VALUES (p_scope, p_key, l.token, gen_random_uuid(), l.holder, print, clock_timestamp(), clock_timestamp(), '')
        ON CONFLICT DO NOTHING;
        IF FOUND THEN RETURN true; END IF;
    END LOOP;
END $$;
COMMENT ON FUNCTION leasehold.once(text, text, bytea, timestamptz) IS
    'In the transaction of the effect, after fence(): true, do it now; false, it was done before.';

DO $$ BEGIN
    IF to_regtype('leasehold.verdict') IS NULL THEN
        CREATE TYPE leasehold.verdict AS (verdict text, entry leasehold.ledger, refusal leasehold.refusal, kept_from timestamptz);
        COMMENT ON TYPE leasehold.verdict IS
            'begun, resumed, took_over, already_done, in_progress, not_begun, left_unfinished, mismatch, too_old, completed, abandoned, refused.';
    END IF;
END $$;

-- Begins work: with its effect in this transaction, which may then write under the lease as after fence(); or with one
-- outside of this database (I7): begin, do it with the same external key, complete. p_holder null: the lease's own.
--
-- The wait for another session at the same key ends in 'in_progress'. The limit of it is this function's own, so that it
-- does not outlast it in the caller's transaction.
-- Not "begin": psql takes that word for the start of a body, and loads a dump of this schema as one broken statement.
CREATE OR REPLACE FUNCTION leasehold.begin_work(
    p_scope text, p_key text, p_token bigint, p_attempt uuid, p_holder text, p_fingerprint bytea,
    p_take_over boolean DEFAULT true, p_born timestamptz DEFAULT NULL
) RETURNS leasehold.verdict
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $$
DECLARE
    l leasehold.lease;
    e leasehold.ledger;
    v leasehold.verdict;
BEGIN
    PERFORM leasehold.check_text('lease name', p_scope, 200);
    PERFORM leasehold.check_text('ledger key', p_key, 200);
    IF p_holder IS NOT NULL THEN PERFORM leasehold.check_text('holder', p_holder, 200); END IF;
    PERFORM leasehold.check_token(p_token);
    PERFORM leasehold.check_id('attempt', p_attempt);
    PERFORM leasehold.bound(5000);
    l := leasehold.behind_barrier(p_scope);
    BEGIN
        LOOP
            SELECT * INTO e FROM leasehold.ledger WHERE scope = p_scope AND key = p_key FOR UPDATE;
            EXIT WHEN FOUND;
            SELECT kept_from INTO v.kept_from FROM leasehold.meta;
            IF p_born < v.kept_from THEN v.verdict := 'too_old'; RETURN v; END IF;
            v.refusal := leasehold.issued(l, p_token);
            IF (v.refusal).kind IS NOT NULL THEN
                v.verdict := 'refused';
                PERFORM leasehold.note_refusal(p_scope, p_key, v.refusal);
                RETURN v;
            END IF;
            INSERT INTO leasehold.ledger (scope, key, token, attempt, holder, fingerprint, begun_at)
            VALUES (p_scope, p_key, p_token, p_attempt, coalesce(p_holder, l.holder), p_fingerprint, clock_timestamp())
            ON CONFLICT DO NOTHING;
            IF FOUND THEN
                PERFORM leasehold.let_pass(l);
                v.verdict := 'begun';
                RETURN v;
            END IF;
        END LOOP;
    EXCEPTION WHEN lock_not_available THEN
        v.verdict := 'in_progress';
        RETURN v;
    END;
    v.entry := e;
    v.refusal := CASE WHEN p_token < e.token THEN ROW('stale', p_token, e.token, NULL)::leasehold.refusal
                      ELSE leasehold.issued(l, p_token) END;
    v.verdict := CASE
        WHEN e.fingerprint <> p_fingerprint THEN 'mismatch'
        WHEN e.done_at IS NOT NULL THEN 'already_done'
        WHEN (v.refusal).kind IS NOT NULL THEN 'refused'
        WHEN p_token = e.token AND p_attempt = e.attempt THEN 'resumed'
        WHEN p_token = e.token THEN 'in_progress'
        WHEN NOT p_take_over THEN 'left_unfinished'
        ELSE 'took_over' END;
    IF v.verdict = 'took_over' THEN
        UPDATE leasehold.ledger SET token = p_token, attempt = p_attempt, holder = coalesce(p_holder, l.holder),
            begun_at = clock_timestamp()
        WHERE scope = p_scope AND key = p_key;
    END IF;
    IF v.verdict IN ('took_over', 'resumed') THEN
        PERFORM leasehold.let_pass(l);
    ELSIF v.verdict = 'refused' THEN
        PERFORM leasehold.note_refusal(p_scope, p_key, v.refusal);
    END IF;
    RETURN v;
END $$;

-- Begins work whose effect is in this transaction, and enters it as done: if the transaction commits it was (I4).
CREATE OR REPLACE FUNCTION leasehold.claim(
    p_scope text, p_key text, p_token bigint, p_attempt uuid, p_fingerprint bytea, p_born timestamptz DEFAULT NULL
) RETURNS leasehold.verdict
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v leasehold.verdict;
BEGIN
    v := leasehold.begin_work(p_scope, p_key, p_token, p_attempt, NULL, p_fingerprint, true, p_born);
    IF v.verdict IN ('begun', 'resumed', 'took_over') THEN
        UPDATE leasehold.ledger SET done_at = clock_timestamp(), response = '' WHERE scope = p_scope AND key = p_key;
    END IF;
    RETURN v;
END $$;

-- What a claim answers from now on.
CREATE OR REPLACE FUNCTION leasehold.respond(p_scope text, p_key text, p_token bigint, p_attempt uuid, p_response bytea)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE leasehold.ledger SET response = p_response
    WHERE scope = p_scope AND key = p_key AND token = p_token AND attempt = p_attempt AND done_at IS NOT NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'this transaction has not claimed the ledger key % of %', p_key, p_scope USING ERRCODE = 'LH002';
    END IF;
END $$;

-- Ends an entry that this attempt began under this token: done, with a response to replay, or gone (p_response null).
CREATE OR REPLACE FUNCTION leasehold.finish(p_scope text, p_key text, p_token bigint, p_attempt uuid, p_response bytea)
RETURNS leasehold.verdict
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $$
DECLARE
    e leasehold.ledger;
    v leasehold.verdict;
    mine boolean;
BEGIN
    PERFORM leasehold.check_token(p_token);
    PERFORM leasehold.bound(5000);
    SELECT * INTO e FROM leasehold.ledger WHERE scope = p_scope AND key = p_key FOR UPDATE;
    mine := e.token = p_token AND e.attempt = p_attempt;
    v.entry := e;
    IF mine IS NOT TRUE THEN
        v.verdict := CASE
            WHEN p_token < e.token THEN 'refused'
            WHEN p_token = e.token AND e.done_at IS NOT NULL THEN 'already_done'
            WHEN p_token = e.token THEN 'in_progress'
            WHEN p_response IS NULL THEN 'abandoned'
            ELSE 'not_begun' END;
        IF v.verdict = 'refused' THEN
            v.refusal := ROW('stale', p_token, e.token, NULL)::leasehold.refusal;
            PERFORM leasehold.note_refusal(p_scope, p_key, v.refusal);
        END IF;
    ELSIF e.done_at IS NOT NULL THEN
        v.verdict := CASE WHEN p_response IS NULL THEN 'already_done' ELSE 'completed' END;
    ELSIF p_response IS NULL THEN
        DELETE FROM leasehold.ledger WHERE scope = p_scope AND key = p_key;
        v.verdict := 'abandoned';
    ELSE
        UPDATE leasehold.ledger SET done_at = clock_timestamp(), response = p_response WHERE scope = p_scope AND key = p_key;
        v.verdict := 'completed';
    END IF;
    RETURN v;
END $$;

-- A verdict as one text for the drivers of other programs: times in microseconds since 1970, bytes in hex.
CREATE OR REPLACE FUNCTION leasehold.told(v leasehold.verdict) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT jsonb_build_object('verdict', v.verdict, 'kind', (v.refusal).kind, 'refused', (v.refusal).token,
        'highest', (v.refusal).highest, 'kept_from', leasehold.micros(v.kept_from), 'token', (v.entry).token,
        'attempt', replace((v.entry).attempt::text, '-', ''), 'holder', (v.entry).holder,
        'fingerprint', encode((v.entry).fingerprint, 'hex'), 'begun_at', leasehold.micros((v.entry).begun_at),
        'done_at', leasehold.micros((v.entry).done_at), 'response', encode((v.entry).response, 'hex'))::text
$$;
