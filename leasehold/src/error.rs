//! Why there is no lease, no step under it, no confirmed release. Each says what to do.

use std::{io, time::Duration};

use leasehold_core::{BadTiming, Blocker, LeaseName, Loss, Proof};

/// Why there is no lease.
#[derive(Debug, thiserror::Error)]
pub enum NotAcquired {
    /// The times do not fit together.
    #[error(transparent)]
    Timing(#[from] BadTiming),
    /// Something else about the settings, or the store, cannot work.
    #[error("{0}")]
    Invalid(String),
    /// Somebody holds it, and nobody wanted to wait.
    #[error("lease {lease} is busy: {blocker}")]
    Busy {
        /// Which.
        lease: LeaseName,
        /// Who or what.
        blocker: Blocker,
    },
    /// The time to wait is over.
    #[error("lease {lease} did not come in time{}", said(.blocker.as_ref()))]
    TimedOut {
        /// Which.
        lease: LeaseName,
        /// Who or what was in the way last.
        blocker: Option<Blocker>,
    },
    /// The keeper was told to stop.
    #[error("the keeper of lease {lease} was told to stop")]
    Stopped {
        /// Which.
        lease: LeaseName,
    },
    /// There are no more tokens (1.2).
    #[error("lease {lease} has had its last token; use another name")]
    TokenExhausted {
        /// Which.
        lease: LeaseName,
    },
    /// The renewing thread cannot start.
    #[error("cannot start the thread that renews: {0}")]
    Start(#[from] io::Error),
    /// The renewing thread died: the store panicked, or a bug did.
    #[error("the thread that renews lease {lease} died; see its panic message")]
    Died {
        /// Which.
        lease: LeaseName,
    },
}

fn said(blocker: Option<&Blocker>) -> String {
    blocker.map_or_else(String::new, |blocker| format!(": {blocker}"))
}

/// Why work must not begin this step. The lease is not held, or not for long enough.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotHeld {
    /// Stop, and acquire again like anybody else.
    #[error("lease {} with token {} is lost: {loss}; stop the work and acquire again", .proof.lease, .proof.token)]
    Lost {
        /// The lease and its token.
        proof: Proof,
        /// Why.
        loss: Loss,
    },
    /// The machine may have stood still; the store is being asked (C13). Try again soon.
    #[error(
        "lease {} with token {} is in doubt since the machine may have stood still; the store is asked, try again soon",
        .proof.lease, .proof.token
    )]
    Suspect {
        /// The lease and its token.
        proof: Proof,
    },
    /// Held, but not for as long as the step may take.
    #[error(
        "lease {} with token {} is held for {left:?} more, less than the {budget:?} asked for; wait for a renewal or take \
         smaller steps",
        .proof.lease, .proof.token
    )]
    TooShort {
        /// The lease and its token.
        proof: Proof,
        /// What was asked for.
        budget: Duration,
        /// What is left.
        left: Duration,
    },
}

/// The store did not confirm a release. Nothing is held any more; the next holder may have to wait for the expiry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReleased {
    /// There was nothing to release.
    #[error("lease {} with token {} was lost before: {loss}", .proof.lease, .proof.token)]
    Lost {
        /// The lease and its token.
        proof: Proof,
        /// Why.
        loss: Loss,
    },
    /// No answer came.
    #[error(
        "the store did not confirm the release of lease {} with token {}: it runs out by itself within {ttl:?}",
        .proof.lease, .proof.token
    )]
    Unconfirmed {
        /// The lease and its token.
        proof: Proof,
        /// How long the lease may stay held at most.
        ttl: Duration,
    },
}
