-- A table belongs to a lease: from protect() on every write to it, by whatever client, needs the transaction to have
-- passed the fence (A19).
--
-- It protects against mistakes, not against a role that lies. What it does not catch: a role that sets leasehold.passed
-- itself, the owner who disables triggers, session_replication_role = replica (also logical replication), ALTER TABLE,
-- and TRUNCATE of a partition that was attached after protect(). Cascades of foreign keys are writes, and refused.

CREATE OR REPLACE FUNCTION leasehold.protect(p_table regclass, p_lease text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    part record;
BEGIN
    PERFORM leasehold.check_text('lease name', p_lease, 200);
    PERFORM leasehold.unprotect(p_table);
    FOR part IN SELECT * FROM leasehold.parts(p_table) LOOP
        EXECUTE format('CREATE TRIGGER leasehold_statement BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s
            FOR EACH STATEMENT EXECUTE FUNCTION leasehold.guard(%L)', part.relation, p_lease);
        -- A partitioned table hands its row triggers down by itself, also to partitions that come later.
        IF NOT part.inherits_rows THEN
            EXECUTE format('CREATE TRIGGER leasehold_row BEFORE INSERT OR UPDATE OR DELETE ON %s
                FOR EACH ROW EXECUTE FUNCTION leasehold.guard(%L)', part.relation, p_lease);
        END IF;
    END LOOP;
END $$;
COMMENT ON FUNCTION leasehold.protect(regclass, text) IS
    'Makes a table refuse every write of a transaction that has not passed leasehold.fence() of this lease.';

CREATE OR REPLACE FUNCTION leasehold.unprotect(p_table regclass) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET client_min_messages = warning AS $$
DECLARE
    part record;
BEGIN
    FOR part IN SELECT * FROM leasehold.parts(p_table) LOOP
        EXECUTE format('DROP TRIGGER IF EXISTS leasehold_statement ON %s', part.relation);
        IF NOT part.inherits_rows THEN
            EXECUTE format('DROP TRIGGER IF EXISTS leasehold_row ON %s', part.relation);
        END IF;
    END LOOP;
END $$;
COMMENT ON FUNCTION leasehold.unprotect(regclass) IS 'Undoes leasehold.protect.';

-- The table, its partitions and whatever inherits from it: each can be written to by its own name.
CREATE OR REPLACE FUNCTION leasehold.parts(p_table regclass) RETURNS TABLE (relation regclass, inherits_rows boolean)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE tree(oid) AS (
        SELECT p_table::oid UNION SELECT i.inhrelid FROM pg_inherits i JOIN tree t ON i.inhparent = t.oid)
    SELECT c.oid::regclass, c.relispartition AND c.oid <> p_table FROM tree JOIN pg_class c USING (oid)
    WHERE c.relkind IN ('r', 'p')
$$;

-- Compares the transaction's pass only; the lock that fence() took with it does the rest (F22). It needs no right of
-- the writer but the one to write.
CREATE OR REPLACE FUNCTION leasehold.guard() RETURNS trigger
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF position(E'\n' || TG_ARGV[0] || E'\t' || pg_current_xact_id()::text || E'\n'
        IN coalesce(current_setting('leasehold.passed', true), '')) = 0
    THEN
        RAISE EXCEPTION 'refused: table % belongs to the lease %, and this transaction has not passed its fence',
            TG_TABLE_NAME, TG_ARGV[0]
            USING ERRCODE = 'LH001', HINT = format('First in the transaction: SELECT leasehold.fence(%L, <your token>);', TG_ARGV[0]);
    END IF;
    IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
    RETURN NEW;
END $$;
