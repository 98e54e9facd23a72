//! Fences in your own PostgreSQL transaction, over tokio-postgres, for data in the database that keeps the leases.
//!
//! ```no_run
//! # async fn work(client: &mut tokio_postgres::Client, guard: &leasehold::Guard)
//! #     -> Result<(), Box<dyn std::error::Error>> {
//! let step = client.transaction().await?;
//! leasehold::fence::postgres::check(&step, guard).await?;
//! step.execute("UPDATE report SET text = 'mine'", &[]).await?;
//! step.commit().await?;
//! # Ok(()) }
//! ```
//!
//! A refusal aborts the transaction, so nothing that follows is written. That is why check and first write may also be
//! polled together (`join!`): they travel in one round trip, and the server does them in order (F17).

use leasehold_core::{Refusal, Token};
use tokio_postgres::{Transaction, error::DbError, types::Type};

use super::{Bearer, FenceError, settle};

/// The first statement of a transaction that writes under a lease of this database: from here to its end nobody takes
/// the lease over (F14). `Refused` ends the bearer's tenure (F9).
pub async fn check(step: &Transaction<'_>, bearer: &impl Bearer) -> Result<(), FenceError> {
    let proof = bearer.proof();
    let (lease, number) = (proof.lease.as_str(), proof.token.get().cast_signed());
    let sent = step
        .query_typed(
            "SELECT leasehold.fence($1, $2)",
            &[(&lease, Type::TEXT), (&number, Type::INT8)],
        )
        .await;
    let Err(error) = sent else { return Ok(()) };
    match error.as_db_error().and_then(|db| refusal(db, proof.token)) {
        Some(refusal) => settle(bearer, Err(refusal)),
        None => Err(FenceError::Postgres(error)),
    }
}

/// What `leasehold.fence` raised; its kind travels in the place of a constraint's name.
fn refusal(error: &DbError, token: Token) -> Option<Refusal> {
    if error.code().code() != "LH001" {
        return None;
    }
    let newest = error.detail().and_then(|detail| detail.rsplit(' ').next());
    Some(match error.constraint()? {
        "stale" => Refusal::Stale {
            token,
            highest: newest?.parse().ok()?,
        },
        "expired" => Refusal::Expired { token },
        "released" => Refusal::Released { token },
        _ => Refusal::NeverIssued { token },
    })
}
