//! The contract of every store, written once. A store file adds only: who judges expiry, by which clock, where the
//! token comes from, what a crash keeps.
//!
//! # What every store promises
//! - One call of [`Store::apply`] is one atomic step, evaluated by [`leasehold_core::apply`] or held against it by a test.
//! - It answers only when the step is durable (L10). After a crash of the store nothing that was answered is missing.
//! - Expiry is judged by the store's clock alone, read after every wait and lock (C1, SEMANTICS 3).
//! - [`StoreError::Unavailable`] and [`StoreError::Invalid`]: nothing was changed, now or later (INV-10).
//! - [`StoreError::Unknown`]: it may have been applied, or may yet be. Only the same operation with the same ids may be
//!   sent again; a caller that gives up sends a release (L9, L14).
//! - A caller may drop the future of a call at any moment; that is `Unknown` to it.

pub mod contract;
#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(any(
    feature = "etcd",
    feature = "http",
    feature = "kubernetes",
    feature = "postgres"
))]
mod remote;
#[cfg(target_os = "linux")]
pub mod sqlite;
mod url;

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use leasehold_core::{
    Answer, Entry, Event, Fence, Invalid, Key, LeaseName, Op, Outcome, Pair, Resource, Status, Ttl,
    Work,
};
use tokio::sync::watch;

pub use url::connect;

/// How long a lease must have been free before its record is forgotten (A21): longer than any retry of its last holder.
pub const FREE_BEFORE_FORGOTTEN: Duration = leasehold_core::Record::KEPT;
/// How long the ledger remembers (I9): longer than a year, so that yearly work is found again.
pub const LEDGER_KEPT: Duration = leasehold_core::Entry::KEPT;
/// How many events a history keeps at least; older ones go. About 15 MB, and years of hand-overs on one machine.
pub const HISTORY_KEPT: u64 = 100_000;

/// A place that decides who holds what. See the [module](self) for the contract.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync {
    /// What this store is and can do. Asking for what it cannot do is `Invalid`, never ignored (A16).
    fn profile(&self) -> &Profile;

    /// Whether it can be told to give out larger tokens only ([`Op::Bump`]).
    fn bumps(&self) -> bool {
        true
    }

    /// Whether it counts the renewals of a tenure, and so finds out a clone of the holder (C14).
    fn counts_renewals(&self) -> bool {
        true
    }

    /// Does one thing in one atomic, durable step.
    async fn apply(&self, op: Op) -> Result<Outcome, StoreError>;

    /// Does many things, each a step of its own with an answer of its own; a store may put them in one commit (W8).
    async fn apply_all(&self, ops: Vec<Op>) -> Vec<Result<Outcome, StoreError>> {
        let mut outcomes = Vec::with_capacity(ops.len());
        for op in ops {
            outcomes.push(self.apply(op).await);
        }
        outcomes
    }

    /// As [`Self::apply`], but a store with waiters in order ([`Profile::fifo`]) may hold an acquire back, up to `wait`,
    /// until it can be granted; its answer says how long it did (A1). Other stores answer at once.
    async fn apply_waiting(&self, op: Op, wait: Duration) -> Result<Outcome, StoreError> {
        let _ = wait;
        self.apply(op).await
    }

    /// The lease as it is now; linearizable (L11). `None`: never heard of.
    async fn status(&self, name: &LeaseName) -> Result<Option<Status>, StoreError>;

    /// Up to `limit` leases whose names start with `prefix`, by name.
    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<Status>, StoreError>;

    /// A pair.
    async fn pair(&self, key: &Key) -> Result<Option<Pair>, StoreError>;

    /// The fence of a receiver.
    async fn fence(&self, resource: &Resource) -> Result<Option<Fence>, StoreError>;

    /// A line of the ledger.
    async fn entry(&self, work: &Work) -> Result<Option<Entry>, StoreError>;

    /// Up to `limit` events with a number above `after`, of one lease or of all, oldest first.
    async fn history(
        &self,
        name: Option<&LeaseName>,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Recorded>, StoreError>;

    /// Ticks when something may have changed: a hint that wakes waiters early, never needed for safety. Subscribe
    /// before asking, or the tick may be missed.
    fn changes(&self) -> Changes;

    /// Forgets what needs no memory any more: records free for 24 h (their tokens go into the floor), ledger lines past
    /// their age. Answers how many rows went.
    async fn collect(&self) -> Result<u64, StoreError>;

    /// Gets whoever blocks the store out of the way for good ([`StoreError::BlockedBy`], A8); answers who that was, if
    /// anybody did.
    async fn evict(&self) -> Result<Option<String>, StoreError> {
        Err(StoreError::Invalid {
            what: "nobody can stand in the way of this kind of store".to_owned(),
        })
    }

    /// What this setup guarantees and what in it breaks a promise, each with its fix.
    async fn examine(&self) -> Result<Vec<Finding>, StoreError>;
}

/// What a store is, in words for people and flags for programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The scheme of its URL.
    pub scheme: &'static str,
    /// Who judges expiry, by which clock.
    pub clock: &'static str,
    /// Where tokens come from.
    pub tokens: &'static str,
    /// What a crash keeps.
    pub durability: &'static str,
    /// The shortest ttl it grants.
    pub min_ttl: Ttl,
    /// How much longer than its ttl a lease may last, at the worst.
    pub extension: Duration,
    /// Tokens of one lease have no gaps between discontinuities.
    pub dense: bool,
    /// Waiters are served in order.
    pub fifo: bool,
    /// `lock_delay` works.
    pub lock_delay: bool,
    /// Pairs work ([`Op::Put`], [`Op::Delete`]).
    pub pairs: bool,
    /// Fences of receivers work ([`Op::Raise`]).
    pub fences: bool,
    /// The ledger works ([`Op::Begin`] and what follows).
    pub ledger: bool,
    /// History works.
    pub history: bool,
}

/// An event with its place in the store's history.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Recorded {
    /// Grows by time; unique in the store.
    pub number: u64,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// See [`Store::changes`].
#[derive(Clone, Debug)]
pub struct Changes(watch::Receiver<u64>);

impl Changes {
    /// Ticks when the sender's number changes.
    pub fn new(receiver: watch::Receiver<u64>) -> Self {
        Self(receiver)
    }

    /// The next change after the last one seen. Never, if the store is gone. Cancel-safe.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

/// One thing `doctor` has to say.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Finding {
    /// Whether a promise is broken, or only at risk, or all is well.
    pub level: Level,
    /// What was seen.
    pub what: String,
    /// What to do about it, if anything.
    pub fix: Option<String>,
}

/// How bad a [`Finding`] is.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// As it should be.
    Good,
    /// Works, but something could be better.
    Warning,
    /// A promise is broken.
    Fault,
}

/// Why a store gave no answer, sorted by what the caller may do next (L14).
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Certainly not applied; the same call may succeed later.
    #[error("the store is unavailable: {what}")]
    Unavailable {
        /// What failed and what to do.
        what: String,
    },
    /// Perhaps applied, now or later. Send the same operation with the same ids again, or release.
    #[error("the outcome is unknown: {what}")]
    Unknown {
        /// What failed.
        what: String,
    },
    /// Certainly not applied: somebody stands in the way, and will until it goes on or is evicted (A8).
    #[error("blocked by {who}")]
    BlockedBy {
        /// Who, and how to get it out of the way.
        who: String,
    },
    /// Never applied: the request or the set-up is wrong.
    #[error("{what}")]
    Invalid {
        /// What is wrong and what is allowed.
        what: String,
    },
}

impl From<Invalid> for StoreError {
    fn from(invalid: Invalid) -> Self {
        StoreError::Invalid {
            what: invalid.to_string(),
        }
    }
}

/// Whether this made a lease free, so that those who wait should ask again.
pub(crate) fn frees(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Lease(Answer::Released | Answer::Bumped { .. })
    )
}

/// A store that many may use.
pub type SharedStore = Arc<dyn Store>;
