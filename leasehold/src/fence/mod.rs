//! Fences: where a write is refused because the lease has a new holder. One file per kind of receiver.
//!
//! A check protects only the effect that commits with it (F2), so each function here wants the transaction, or does
//! check and effect in one call. A new holder raises the fence of everything that it will depend on before it reads
//! anything there (F10).

#[cfg(feature = "etcd")]
pub mod etcd;
pub mod kv;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(target_os = "linux")]
pub mod sqlite;

use leasehold_core::{Proof, Refusal, Resource, Verdict};

use crate::{Guard, StoreError};

/// Whoever shows a token: a [`Guard`], whose tenure ends when a fence says that it is over (F9), or a bare [`Proof`].
pub trait Bearer {
    /// The lease and the token.
    fn proof(&self) -> Proof;

    /// A fence refused the token.
    fn refused(&self, refusal: &Refusal) {
        let _ = refusal;
    }
}

impl Bearer for Proof {
    fn proof(&self) -> Proof {
        self.clone()
    }
}

impl Bearer for Guard {
    fn proof(&self) -> Proof {
        self.proof()
    }

    /// What else is refused is a mistake of the caller and says nothing about the lease.
    fn refused(&self, refusal: &Refusal) {
        if let Refusal::Stale { .. } | Refusal::Expired { .. } | Refusal::Released { .. } = refusal
        {
            self.fenced_out(refusal.clone());
        }
    }
}

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FenceError {
    /// The fence said no. [`Refusal::Stale`] is final: the lease has a new holder.
    #[error("refused: {0}")]
    Refused(Refusal),
    /// Nobody has raised the fence of this resource yet.
    #[error("nobody has raised the fence of {0}: raise it before the first read (F10)")]
    NotRaised(Resource),
    /// The ledger will not let this work begin now.
    #[error("the ledger says: {}", ledger(.0))]
    Ledger(Box<Verdict>),
    /// A check outside of a transaction is none.
    #[error(
        "not in a transaction: the check must commit with what it protects; begin one with BEGIN IMMEDIATE"
    )]
    NotInTransaction,
    /// A transaction that does not have the write lock may check what is over when it writes.
    #[error(
        "the transaction has no write lock: begin it with BEGIN IMMEDIATE (TransactionBehavior::Immediate)"
    )]
    NotImmediate,
    /// A store's own file is no place for other data: a stopped writer would keep everybody from their leases (A8).
    #[error("this is a store of leases: keep data in another file")]
    IsStore,
    /// A fence or a line of the ledger holds what was never written.
    #[error("a row is damaged: {0}")]
    Damaged(String),
    /// The database failed; roll back.
    #[cfg(target_os = "linux")]
    #[error("the database failed: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// The database failed; roll back.
    #[cfg(feature = "postgres")]
    #[error("the database failed: {0}")]
    Postgres(#[from] tokio_postgres::Error),
    /// The database failed; roll back.
    #[cfg(feature = "sqlx")]
    #[error("the database failed: {0}")]
    Sqlx(#[from] sqlx::Error),
    /// The store failed, or does not know whether it did it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn ledger(verdict: &Verdict) -> String {
    match verdict {
        Verdict::InProgress => "another attempt under this token is at it".into(),
        Verdict::LeftUnfinished(entry) => {
            format!(
                "token {} began it and nobody knows whether it was done",
                entry.token
            )
        }
        Verdict::Mismatch => "the same key was used for something else".into(),
        Verdict::TooOld { .. } => "the request is older than the ledger's memory".into(),
        Verdict::NotBegun => "this attempt has not begun it".into(),
        other => format!("{other:?}"),
    }
}

/// Why the ledger lets nothing begin.
#[cfg(any(feature = "postgres", target_os = "linux"))]
fn unsettled(verdict: Verdict) -> FenceError {
    match verdict {
        Verdict::Refused(refusal) => FenceError::Refused(refusal),
        verdict => FenceError::Ledger(Box::new(verdict)),
    }
}

/// Tells the bearer what became of its token.
fn settle<T>(bearer: &impl Bearer, result: Result<T, Refusal>) -> Result<T, FenceError> {
    result.map_err(|refusal| {
        bearer.refused(&refusal);
        FenceError::Refused(refusal)
    })
}
