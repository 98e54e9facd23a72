//! What `doctor` learns about a database: each finding names what was seen, and the statement that mends it.

use leasehold_core::WallTime;
use tokio_postgres::Row;

use super::rows::column;
use crate::{
    StoreError,
    store::{Finding, Level},
};

/// One row about the server, the table and the roles.
pub(super) const LOOK: &str = "SELECT current_setting('server_version') AS version, \
    (SELECT relpersistence::text FROM pg_class WHERE oid = 'leasehold.lease'::regclass) AS kept, \
    current_setting('fsync') AS fsync, current_setting('full_page_writes') AS pages, \
    current_setting('synchronous_commit') AS commit, current_setting('synchronous_standby_names') AS names, \
    (SELECT count(*) FROM pg_stat_replication) AS standbys, (SELECT policy FROM leasehold.meta) AS policy, \
    (SELECT mxid_age(datminmxid)::bigint FROM pg_database WHERE datname = current_database()) AS multixacts, \
    (SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()) AS prepared, \
    (SELECT coalesce(extract(epoch FROM max(clock_timestamp() - xact_start)), 0)::bigint FROM pg_stat_activity \
        WHERE datname = current_database() AND pid <> pg_backend_pid()) AS oldest, \
    (SELECT r.rolname::text FROM pg_proc p JOIN pg_roles r ON r.oid = p.proowner \
        WHERE p.oid = 'leasehold.evict(text)'::regprocedure \
            AND NOT r.rolsuper AND NOT pg_has_role(r.oid, 'pg_signal_backend', 'member')) AS powerless, \
    current_setting('statement_timeout') AS statement, inet_server_port()::bigint AS port, current_user::text AS me, \
    leasehold.micros(clock_timestamp()) AS now";

/// The findings in [`LOOK`]'s row, which was asked for and answered at these times, over this port.
pub(super) fn examine(
    row: &Row,
    (asked, answered): (WallTime, WallTime),
    port: Option<u16>,
) -> Result<Vec<Finding>, StoreError> {
    let text = |name| -> Result<&str, StoreError> { column(row, name) };
    let number = |name| -> Result<i64, StoreError> { column(row, name) };
    let mut findings = vec![finding(
        Level::Good,
        format!("PostgreSQL {}", text("version")?),
        "",
    )];
    if text("kept")? != "p" {
        findings.push(finding(
            Level::Fault,
            "the table of leases is unlogged: a crash loses every token (T4)".into(),
            "ALTER TABLE leasehold.lease SET LOGGED; -- every lease is quarantined once",
        ));
    }
    for (setting, value) in [
        ("fsync", text("fsync")?),
        ("full_page_writes", text("pages")?),
    ] {
        if value == "off" {
            findings.push(finding(
                Level::Fault,
                format!("{setting} is off: a power loss may lose tokens that were answered (T4)"),
                &format!("ALTER SYSTEM SET {setting} = on; SELECT pg_reload_conf();"),
            ));
        }
    }
    if text("commit")? == "off" {
        findings.push(finding(
            Level::Warning,
            "synchronous_commit is off: leases are committed synchronously all the same, your fenced writes are not".into(),
            &format!("ALTER ROLE {} SET synchronous_commit = on;", text("me")?),
        ));
    }
    findings.push(replication(
        text("names")?,
        number("standbys")?,
        text("policy")?,
    ));
    if number("multixacts")? > 200_000_000 {
        findings.push(finding(
            Level::Warning,
            "many multixacts are in use: when they run out nothing is written any more (A18)"
                .into(),
            "VACUUM (FREEZE); -- and end long transactions",
        ));
    }
    if number("prepared")? > 0 {
        findings.push(finding(
            Level::Warning,
            "there are prepared transactions: a fenced one blocks a takeover, and no timeout ends it".into(),
            "SELECT gid, prepared FROM pg_prepared_xacts; -- then COMMIT PREPARED or ROLLBACK PREPARED",
        ));
    }
    if number("oldest")? > 300 {
        findings.push(finding(
            Level::Warning,
            format!("a transaction is open for {} s", number("oldest")?),
            "SELECT pid, xact_start, query FROM pg_stat_activity ORDER BY xact_start; -- then pg_terminate_backend(pid)",
        ));
    }
    if let Some(owner) = column::<Option<&str>>(row, "powerless")? {
        findings.push(finding(
            Level::Warning,
            format!("{owner}, who owns the schema, cannot end a frozen transaction that blocks a takeover (A19)"),
            &format!("GRANT pg_signal_backend TO {owner};"),
        ));
    }
    if let (Some(ours), Ok(Some(theirs))) = (port, column::<Option<i64>>(row, "port"))
        && i64::from(ours) != theirs
    {
        findings.push(finding(
            Level::Good,
            format!("something stands between this program and the server, which listens on port {theirs}: if it is a pooler, waiters learn of a release only when they ask again"),
            "",
        ));
    }
    findings.extend(clock(number("now")?, asked, answered));
    Ok(findings)
}

fn replication(names: &str, standbys: i64, policy: &str) -> Finding {
    match (names.is_empty(), standbys, policy) {
        (true, _, "trust_sync") => finding(
            Level::Fault,
            "the policy is trust_sync, but replication is not synchronous: a failover may issue a token twice (PG9)".into(),
            "UPDATE leasehold.meta SET policy = 'quarantine';",
        ),
        (true, 1.., _) => finding(
            Level::Good,
            "the standby is asynchronous: after a failover every lease is quarantined for its ttl".into(),
            "",
        ),
        (false, ..) => finding(Level::Good, format!("synchronous standbys: {names}; policy {policy}"), ""),
        _ => finding(Level::Good, "no standby".into(), ""),
    }
}

/// Offsets do no harm; a clock that is set does (PG8).
fn clock(now_micros: i64, asked: WallTime, answered: WallTime) -> Option<Finding> {
    let server = WallTime::from_nanos(now_micros.unsigned_abs().saturating_mul(1000));
    let off = asked.since(server).max(server.since(answered));
    (off.as_secs() >= 1).then(|| {
        finding(
            Level::Warning,
            format!("the server's clock differs from this machine's by {off:.1?}: if somebody sets it, leases end early or late"),
            "run a time service on both machines; or add expiry=both to the URL, which waits for both clocks",
        )
    })
}

fn finding(level: Level, what: String, fix: &str) -> Finding {
    let fix = (!fix.is_empty()).then(|| fix.to_owned());
    Finding { level, what, fix }
}
