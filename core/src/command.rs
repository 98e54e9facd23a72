//! What may be asked of one lease, and what the store says to it. The rules between the two are in `lease.rs`.
//!
//! Losing a race is an answer, not an error (L14).

use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Holder, Info, LockDelay, RenewId, RequestId, Session, Token, Ttl};

/// What anybody may ask of one lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Give it to me if it is free.
    Acquire(Acquire),
    /// Let me keep it.
    Renew(Renew),
    /// I am done with it.
    Release(Release),
    /// An operator takes it away. The token grows at once, so the holder's fenced writes are refused; others get the
    /// lease when the old promise ends, or at once with `now`, which risks two that act (A21).
    ForceRelease {
        /// Do not wait for the old promise to end.
        now: bool,
    },
    /// The store's past is in doubt (a restore, a failover): nobody holds for one ttl, and the next token is larger
    /// than both `above` and the stored one (T6).
    Quarantine {
        /// A number no smaller than any token that may have been issued and forgotten. It is not judged, as that of
        /// [`crate::Op::Bump`] is: a number that is too large leaves no tokens.
        above: Token,
    },
}

/// The fields of [`Command::Acquire`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acquire {
    /// Who asks; never two askers with one session.
    pub session: Session,
    /// Which call this is; the same over its retries.
    pub request_id: RequestId,
    /// Who asks, for people.
    pub holder: Holder,
    /// Shown to others while it is held.
    pub info: Option<Info>,
    /// How long the lease shall last without a renewal.
    pub ttl: Ttl,
    /// How long it shall stay empty if it ends without a release.
    pub lock_delay: LockDelay,
}

/// The fields of [`Command::Renew`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renew {
    /// The tenure to keep.
    pub token: Token,
    /// Its key.
    pub session: Session,
    /// How much longer, from the store's evaluation on.
    pub ttl: Ttl,
    /// The number of the renewal: 1, 2, 3, ... within a tenure; the same over its retries (A3).
    pub number: u64,
    /// The renewal's own id; the same over its retries.
    pub renew_id: RenewId,
}

/// [`Command::Release`]: by token, or by the acquire whose answer never came (A4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Release {
    /// The tenure that the caller knows.
    Tenure {
        /// Its token.
        token: Token,
        /// Its key.
        session: Session,
    },
    /// Whatever this acquire was granted, if it was.
    Request {
        /// Its session.
        session: Session,
        /// Its id.
        request_id: RequestId,
    },
}

/// The store's answer to a command about one lease. Losing a race is an answer, not an error (L14).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The caller holds.
    Granted(Grant),
    /// The caller still holds, for this long from the evaluation on.
    Renewed {
        /// What was given.
        ttl: Ttl,
    },
    /// The lease is free, by this call.
    Released,
    /// Taken away by an operator or put in quarantine; `token` is burnt, the next grant gets a larger one.
    Bumped {
        /// The largest token now.
        token: Token,
    },
    /// That tenure had ended before; nothing was changed (A21).
    AlreadyOver,
    /// Somebody holds.
    Held(Held),
    /// Nobody holds and nobody may yet: the lock delay runs for about `hint` more.
    Delayed {
        /// How long; only a hint.
        hint: Duration,
    },
    /// Nobody holds and nobody may yet: an old promise runs for about `hint` more.
    Quarantined {
        /// How long; only a hint.
        hint: Duration,
    },
    /// This acquire had its grant, and the tenure is over. Ask again with a new request id (L2.2).
    AlreadyUsed,
    /// The caller holds no longer; nothing was changed.
    Lost(Lost),
    /// No larger token is left (1.2).
    TokenExhausted,
}

/// A grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Send it with every write.
    pub token: Token,
    /// What was really given, from the store's evaluation on (1.3).
    pub ttl: Ttl,
    /// How long the store held the request back before it evaluated it, on its own clock (A1). Zero from [`crate::decide`].
    pub waited: Duration,
}

/// Who holds, for a caller that does not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Who.
    pub holder: Holder,
    /// What the holder lets others know.
    pub info: Option<Info>,
    /// With which token.
    pub token: Token,
    /// How long until it could be free; only a hint, the holder may renew.
    pub hint: Duration,
    /// It is the caller's own session under another request id: an orphan to release by token (A4).
    pub yours: bool,
}

/// Why a holder holds no longer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lost {
    /// It ran out. A late renewal is refused even if nobody took the lease (L5).
    Expired,
    /// A larger token was issued, to `by` or to nobody.
    Taken {
        /// The holder of that token.
        by: Option<Holder>,
        /// That token.
        token: Token,
    },
    /// It was released.
    Released,
    /// Somebody else renews with the same session and token: a clone of this holder (C14).
    SeqMismatch,
    /// The store never issued that token, or has forgotten it.
    Gone,
}

impl Answer {
    /// Whether the record that came with this answer differs from the one that went in, and so must be kept.
    pub fn changes(&self) -> bool {
        matches!(
            self,
            Answer::Granted(_) | Answer::Renewed { .. } | Answer::Released | Answer::Bumped { .. }
        )
    }
}
