-- The tables of Leasehold, version 1. Everything lives in the schema leasehold; applications get functions, not tables.
-- Written to be run again: it creates what is missing and changes nothing else.

CREATE SCHEMA IF NOT EXISTS leasehold;
COMMENT ON SCHEMA leasehold IS 'Leases with fencing tokens. Read leasehold.lease; write only through the functions.';

CREATE TABLE IF NOT EXISTS leasehold.meta (
    one       boolean PRIMARY KEY DEFAULT true CHECK (one),
    version   integer NOT NULL,
    floor     bigint NOT NULL DEFAULT 0 CHECK (floor >= 0),
    kept_from timestamptz NOT NULL DEFAULT 'epoch',
    policy    text NOT NULL DEFAULT 'quarantine' CHECK (policy IN ('quarantine', 'trust_sync'))
);
COMMENT ON TABLE leasehold.meta IS 'One row about the store as a whole.';
COMMENT ON COLUMN leasehold.meta.one IS 'Makes it one row.';
COMMENT ON COLUMN leasehold.meta.version IS 'The version of this schema; raised by leasehold migrate.';
COMMENT ON COLUMN leasehold.meta.floor IS 'No forgotten lease ever had a larger token (T5).';
COMMENT ON COLUMN leasehold.meta.kept_from IS 'Ledger lines from before this were pruned (I9).';
COMMENT ON COLUMN leasehold.meta.policy IS 'What the first touch after a failover does (PG9): quarantine, or trust_sync where replication never loses an acknowledged commit.';

CREATE TABLE IF NOT EXISTS leasehold.lease (
    name          text COLLATE "C" PRIMARY KEY,
    token         bigint NOT NULL CHECK (token >= 0),
    session       uuid,
    request_id    uuid,
    holder        text,
    info          text,
    ttl_ms        bigint NOT NULL CHECK (ttl_ms BETWEEN 500 AND 86400000),
    lock_delay_ms bigint NOT NULL DEFAULT 0 CHECK (lock_delay_ms BETWEEN 0 AND 600000),
    promise_ms    bigint NOT NULL DEFAULT 0 CHECK (promise_ms BETWEEN 0 AND 86400000),
    granted_at    timestamptz NOT NULL,
    expires_at    timestamptz NOT NULL,
    released      boolean NOT NULL,
    renewals      bigint NOT NULL DEFAULT 0,
    renew_id      uuid,
    touches       bigint NOT NULL DEFAULT 0,
    line          text NOT NULL,
    UNIQUE (name, token)
) WITH (fillfactor = 50);
COMMENT ON TABLE leasehold.lease IS 'Who holds what. A row stays when its lease ends, so that tokens only grow; only leasehold.collect deletes.';
COMMENT ON COLUMN leasehold.lease.name IS 'What is held.';
COMMENT ON COLUMN leasehold.lease.token IS 'The largest token this name ever had; in a unique index so that a takeover waits for fenced transactions (F14).';
COMMENT ON COLUMN leasehold.lease.session IS 'The holder''s key; null: nobody (quarantined or forced).';
COMMENT ON COLUMN leasehold.lease.request_id IS 'The acquire that was granted; the same one again gets the same token (L2).';
COMMENT ON COLUMN leasehold.lease.holder IS 'Who, for people.';
COMMENT ON COLUMN leasehold.lease.info IS 'What the holder lets others know.';
COMMENT ON COLUMN leasehold.lease.ttl_ms IS 'The ttl of the last grant or renewal, in milliseconds.';
COMMENT ON COLUMN leasehold.lease.lock_delay_ms IS 'How long it stays empty after it ran out unreleased, in milliseconds (W4).';
COMMENT ON COLUMN leasehold.lease.promise_ms IS 'The longest ttl that the tenure was promised at any time, in milliseconds: so long after its last touch somebody may still trust it (A2, PG8).';
COMMENT ON COLUMN leasehold.lease.granted_at IS 'When the token was granted, by this server''s clock.';
COMMENT ON COLUMN leasehold.lease.expires_at IS 'Up to here it is promised, by this server''s clock; decides.';
COMMENT ON COLUMN leasehold.lease.released IS 'Whether the holder gave it back.';
COMMENT ON COLUMN leasehold.lease.renewals IS 'How many renewals the tenure had (C14).';
COMMENT ON COLUMN leasehold.lease.renew_id IS 'The last renewal (A3).';
COMMENT ON COLUMN leasehold.lease.touches IS 'Grows with every grant, renewal and retry of one: others see by it whether the holder lives (PG8).';
COMMENT ON COLUMN leasehold.lease.line IS 'The server''s history this row was written on: system identifier, timeline, file of the table (A9).';

CREATE TABLE IF NOT EXISTS leasehold.event (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    name   text COLLATE "C" NOT NULL,
    what   jsonb NOT NULL
);
CREATE INDEX IF NOT EXISTS event_by_name ON leasehold.event (name, number);
COMMENT ON TABLE leasehold.event IS 'What happened, newest last; leasehold.collect keeps it bounded.';
COMMENT ON COLUMN leasehold.event.number IS 'Its place; numbers can be missing.';
COMMENT ON COLUMN leasehold.event.at IS 'When.';
COMMENT ON COLUMN leasehold.event.name IS 'To which lease.';
COMMENT ON COLUMN leasehold.event.what IS 'What, as the history of every store tells it.';

CREATE TABLE IF NOT EXISTS leasehold.fence (
    resource text COLLATE "C" PRIMARY KEY,
    lease    text COLLATE "C" NOT NULL,
    token    bigint NOT NULL CHECK (token > 0)
);
COMMENT ON TABLE leasehold.fence IS 'The largest token seen per receiver, for leases that live in another store (F18).';
COMMENT ON COLUMN leasehold.fence.resource IS 'What is protected.';
COMMENT ON COLUMN leasehold.fence.lease IS 'Whose tokens are compared.';
COMMENT ON COLUMN leasehold.fence.token IS 'The largest so far; it never falls.';

CREATE TABLE IF NOT EXISTS leasehold.ledger (
    scope       text COLLATE "C" NOT NULL,
    key         text COLLATE "C" NOT NULL,
    token       bigint NOT NULL CHECK (token > 0),
    attempt     uuid NOT NULL,
    holder      text NOT NULL,
    fingerprint bytea NOT NULL CHECK (octet_length(fingerprint) = 32),
    begun_at    timestamptz NOT NULL,
    done_at     timestamptz,
    response    bytea,
    PRIMARY KEY (scope, key)
);
COMMENT ON TABLE leasehold.ledger IS 'Work that must be done once, entered under its business fact (I4).';
COMMENT ON COLUMN leasehold.ledger.scope IS 'The lease it is done under.';
COMMENT ON COLUMN leasehold.ledger.key IS 'The business fact.';
COMMENT ON COLUMN leasehold.ledger.token IS 'The token it was begun under last.';
COMMENT ON COLUMN leasehold.ledger.attempt IS 'Which try.';
COMMENT ON COLUMN leasehold.ledger.holder IS 'Who, for people.';
COMMENT ON COLUMN leasehold.ledger.fingerprint IS 'A SHA-256 of what was asked.';
COMMENT ON COLUMN leasehold.ledger.begun_at IS 'When it was first entered.';
COMMENT ON COLUMN leasehold.ledger.done_at IS 'When it was done; null while it is not.';
COMMENT ON COLUMN leasehold.ledger.response IS 'What to replay to whoever asks again.';

