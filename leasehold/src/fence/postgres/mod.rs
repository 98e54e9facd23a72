//! Fences and ledger in your own PostgreSQL transaction, for data in the database that keeps the leases. The same
//! functions take a transaction of tokio-postgres and, with the feature `sqlx`, one of sqlx.
//!
//! ```no_run
//! # use leasehold::{fence, Guard};
//! # async fn work(client: &mut tokio_postgres::Client, guard: &Guard) -> Result<(), Box<dyn std::error::Error>> {
//! let step = client.transaction().await?;
//! fence::postgres::check(&step, guard).await?;
//! step.execute("UPDATE report SET text = 'mine'", &[]).await?;
//! step.commit().await?;
//! # Ok(()) }
//! ```
//!
//! With sqlx it is `check(&mut tx, guard)`. A refusal aborts the transaction, so nothing that follows is written, and
//! ends the tenure of the guard (F9).
//!
//! # Round trips
//! [`write()`] sends BEGIN, check, one statement and COMMIT together: one round trip (F17). Within a longer transaction of
//! tokio-postgres the check may travel with what follows it, since the server does them in order:
//! `tokio::join!(biased; check(&step, guard), step.execute(…))`. With sqlx, or any other client, a single statement can
//! check and write: `WITH f AS MATERIALIZED (SELECT leasehold.fenced('nightly', 2)) UPDATE … FROM f WHERE …`. It must use
//! `f`, and what it computes must come from the rows that it writes, as in `SET v = v + 1` (F12). A table that
//! `leasehold.protect` guards refuses that form.
//!
//! # Done once
//! [`once`] does a piece of work and remembers that it did, in your transaction. Work whose effect is elsewhere wants two
//! ([`begin`], [`complete`]).

mod ledger;
mod step;

use leasehold_core::{Proof, Refusal};
use tokio_postgres::{
    Client,
    types::{ToSql, Type},
};

pub use self::{
    ledger::{Claim, Once, abandon, begin, complete, once},
    step::Step,
};
use super::{Bearer, FenceError, settle};
use step::Arg;

/// What [`check`] sends.
const FENCE: &str = "SELECT leasehold.fence($1, $2)::text";

/// The first statement of a transaction that writes under a lease of this database: from here to its end nobody takes
/// the lease over (F14). `Refused` ends the bearer's tenure (F9).
pub async fn check(mut step: impl Step, bearer: &impl Bearer) -> Result<(), FenceError> {
    let Proof { lease, token } = bearer.proof();
    let sent = step
        .ask(FENCE, &[Arg::Text(lease.as_str()), Arg::Token(token)])
        .await;
    told(bearer, sent).map(|_| ())
}

/// One statement under a lease, in a transaction of its own and in one round trip (F17); answers how many rows it wrote.
///
/// `statement` is sent with the types of its values and not prepared, so that every pooler will do. An error of the
/// connection leaves open whether it was written: write again what is the same twice, or look. The same holds for a
/// future that is dropped.
pub async fn write(
    client: &mut Client,
    bearer: &impl Bearer,
    statement: &str,
    values: &[(&(dyn ToSql + Sync), Type)],
) -> Result<u64, FenceError> {
    let Proof { lease, token } = bearer.proof();
    let (lease, token) = (lease.as_str(), token.get().cast_signed());
    let fence: [(&(dyn ToSql + Sync), Type); 2] = [(&lease, Type::TEXT), (&token, Type::INT8)];
    // All four are on their way when this is first polled, in this order; nobody else has the client meanwhile.
    let (began, passed, wrote, ended) = tokio::join!(
        biased;
        client.batch_execute("BEGIN"),
        client.query_typed(FENCE, &fence),
        client.execute_typed(statement, values),
        client.batch_execute("COMMIT"),
    );
    began?;
    told(bearer, passed.map_err(step::of_tokio))?;
    let rows = wrote?;
    ended?;
    Ok(rows)
}

/// Tells the bearer if its token was refused.
fn told<T>(bearer: &impl Bearer, result: Result<T, FenceError>) -> Result<T, FenceError> {
    match result {
        Err(FenceError::Refused(refusal)) => settle(bearer, Err(refusal)),
        other => other,
    }
}

/// What `leasehold.fence` raised: its kind travels in the place of a constraint's name, the tokens in the detail.
fn refusal(code: &str, constraint: Option<&str>, detail: Option<&str>) -> Option<Refusal> {
    if code != "LH001" {
        return None;
    }
    // "lease NAME, token 1, newest token 2", where NAME is anything.
    let mut words = detail?.rsplit(' ');
    let newest = words.next()?;
    let token = words.nth(2)?.trim_end_matches(',').parse().ok()?;
    Some(match constraint? {
        "stale" => Refusal::Stale {
            token,
            highest: newest.parse().ok()?,
        },
        "expired" => Refusal::Expired { token },
        "released" => Refusal::Released { token },
        _ => Refusal::NeverIssued { token },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_read_whatever_the_lease_is_called() {
        let told = |kind, detail| refusal("LH001", Some(kind), Some(detail));
        let token = "1".parse().unwrap();
        let stale = "lease a, token 7, newest token 9, token 1, newest token 2";
        let highest = "2".parse().unwrap();
        assert_eq!(
            told("stale", stale),
            Some(Refusal::Stale { token, highest })
        );
        let none = "lease a, token 1, newest token none";
        assert_eq!(
            told("never_issued", none),
            Some(Refusal::NeverIssued { token })
        );
        for detail in ["", "token", "a b c d", "lease a, token 0, newest token 1"] {
            assert_eq!(told("stale", detail), None, "{detail:?}");
        }
        assert_eq!(refusal("LH002", Some("stale"), Some(stale)), None);
    }
}
