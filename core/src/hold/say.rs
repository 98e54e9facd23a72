//! What a holder hears and what it says: every input and output of [`Hold`](crate::Hold) as plain data.

use alloc::string::String;
use core::{fmt, num::NonZeroU128, time::Duration};

use crate::{
    Answer, BootTime, Held, Holder, Info, LeaseName, LockDelay, Lost, Op, Refusal, Term, Timing,
    Token,
};

/// Fresh random bits, from the kernel in a real holder (A3), from a seed in a simulation.
pub trait Dice {
    /// 128 bits that nobody had before.
    fn roll(&mut self) -> NonZeroU128;
}

/// What one holder wants, and how. It does not change while it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Which lease.
    pub name: LeaseName,
    /// Who, for people.
    pub holder: Holder,
    /// What others are shown.
    pub info: Option<Info>,
    /// How long the lease stays empty if it ends without a release (W4).
    pub lock_delay: LockDelay,
    /// When to renew, to stop, to kill.
    pub timing: Timing,
    /// The longest time between two asks of a waiter (W1).
    pub poll_max: Duration,
    /// How long the store may hold an ask of a waiter back until it can be granted (A1); zero: it answers at once.
    pub hold_back: Duration,
    /// If set: the work says at least this often that it goes on, or the lease is given up (FB-35).
    pub probe: Option<Duration>,
    /// How long to leave the lease to others after work failed once (FB-68); doubled each time.
    pub rest_min: Duration,
    /// The longest such rest.
    pub rest_max: Duration,
}

impl Plan {
    /// Waits politely, shows nothing, probes nothing.
    pub fn new(name: LeaseName, holder: Holder, timing: Timing) -> Self {
        Self {
            name,
            holder,
            info: None,
            lock_delay: LockDelay::NONE,
            timing,
            poll_max: timing.renew().min(Duration::from_secs(5)),
            hold_back: Duration::ZERO,
            probe: None,
            rest_min: Duration::from_secs(1),
            rest_max: Duration::from_secs(60),
        }
    }
}

/// How long to wait for the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Until it comes.
    Forever,
    /// At most so long.
    AtMost(Duration),
    /// Only as long as the store needs to answer.
    No,
}

/// What may happen to a holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Get the lease.
    Want(Wait),
    /// The store answered this attempt.
    Answered {
        /// Of [`Action::Send`].
        attempt: u64,
        /// What it said.
        answer: Answer,
    },
    /// This attempt got no answer.
    Failed {
        /// Of [`Action::Send`].
        attempt: u64,
        /// Why.
        failure: Failure,
    },
    /// Nothing but time.
    Tick,
    /// Something may have changed in the store (a hint).
    Changed,
    /// The machine may have stood still unseen: trust nothing until the store confirms (C13).
    Paused,
    /// The work went on, at that time (FB-35).
    Progress(BootTime),
    /// The lease is lost, says somebody who knows: a fence (F9), or the edge.
    Lose(Loss),
    /// Come to an end: stop the work, give the lease back.
    Stop,
    /// The work has ended and nothing of it is on its way any more (H5).
    Drained {
        /// It failed; rest before the next try (FB-68).
        failed: bool,
    },
    /// Whoever worked under the lease is gone without a word; perhaps the work goes on (O15).
    Dropped,
}

/// What a holder wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send this, at once. Any call before it is given up; its answer would be ignored.
    Send {
        /// Comes back with the answer.
        attempt: u64,
        /// What to ask.
        op: Op,
        /// The store may hold it back so long; zero: it shall answer at once.
        hold_back: Duration,
        /// After this the attempt is over for the holder; the caller may drop it.
        timeout: Duration,
    },
    /// Tell those who wait or work.
    Tell(Tell),
}

/// What those who wait or work hear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tell {
    /// Not yet.
    Waiting {
        /// For whom or what.
        blocker: Blocker,
        /// When the store is asked again, if no hint comes sooner.
        again: BootTime,
    },
    /// The lease is held: work.
    Held(Term),
    /// It was renewed.
    Renewed(Term),
    /// Start nothing until `Confirmed` (C13).
    Suspect,
    /// The store said that it is still held.
    Confirmed,
    /// Stop the work, then say `Drained`. Comes again only if a loss has become certain.
    Stop {
        /// Why.
        loss: Loss,
        /// What has not ended by then must be ended.
        kill_at: BootTime,
    },
    /// The time to stop by itself is over: end the work now.
    Kill,
    /// The deadline passed and the work has not ended: only fences protect now (H4).
    Overdue,
    /// The tenure is over.
    Over {
        /// The token it had.
        token: Token,
        /// Why it ended, if not by itself.
        loss: Option<Loss>,
        /// The store knows. If not, the lease runs out by itself.
        released: bool,
    },
    /// There will be no lease.
    GaveUp(GaveUp),
}

/// Why there is no lease yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocker {
    /// Somebody holds it.
    Held(Held),
    /// Nobody may have it for this long yet: its lock delay runs.
    Delayed(Duration),
    /// Nobody may have it for this long yet: an old promise runs.
    Quarantined(Duration),
    /// The store gives no answer.
    Store(Failure),
}

/// Why there will be no lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GaveUp {
    /// It is not free, and nobody wants to wait.
    Busy(Blocker),
    /// The time to wait is over.
    TimedOut(Option<Blocker>),
    /// Told to stop.
    Stopped,
    /// The store never grants this; it says why.
    Refused(String),
    /// No larger token is left (1.2).
    TokenExhausted,
}

/// Why a store gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Perhaps it was done, now or later.
    Unknown(String),
    /// Certainly not done.
    Unavailable(String),
    /// Certainly not done: somebody stands in the way.
    Blocked(String),
    /// Never done: the request is wrong.
    Invalid(String),
}

/// Why a tenure ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The store said so.
    Store(Lost),
    /// No renewal was answered in time; the last failure, if there was one.
    NotRenewed(Option<Failure>),
    /// The machine may have stood still, and the store did not confirm the lease afterwards (C13).
    Unconfirmed,
    /// The work did not say that it goes on (FB-35).
    Stalled,
    /// A fence refused the token (F9).
    FencedOut(Refusal),
    /// The store never renews this; it says why.
    Refused(String),
    /// Whoever renewed it died (FB-20).
    Died,
    /// Told to stop. Nobody else has the lease before it is released.
    Stopped,
    /// Whoever worked under it is gone without a word.
    Dropped,
}

impl Loss {
    /// Somebody else may hold the lease already: nothing more may be done under it, not even to finish. Other losses
    /// leave the time to the deadline.
    pub fn is_certain(&self) -> bool {
        match self {
            Loss::Store(_) | Loss::Unconfirmed | Loss::FencedOut(_) => true,
            Loss::Refused(_) | Loss::Died => true,
            Loss::NotRenewed(_) | Loss::Stalled | Loss::Stopped | Loss::Dropped => false,
        }
    }

    /// Whether the store may still think that it is held.
    pub(super) fn leaves_something(&self) -> bool {
        !matches!(self, Loss::Store(_) | Loss::FencedOut(_))
    }

    /// Whether trying again at once would end the same way.
    pub(super) fn is_failure(&self) -> bool {
        matches!(self, Loss::Stalled | Loss::FencedOut(_) | Loss::Refused(_))
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::Store(lost) => write_lost(f, lost),
            Loss::NotRenewed(None) => f.write_str("it could not be renewed in time"),
            Loss::NotRenewed(Some(failure)) => {
                write!(f, "it could not be renewed in time: {failure}")
            }
            Loss::Unconfirmed => f.write_str(
                "the machine stood still for a while, and the store did not confirm the lease afterwards",
            ),
            Loss::Stalled => f.write_str("its work made no progress"),
            Loss::FencedOut(refusal) => write!(f, "a fence refused it: {refusal}"),
            Loss::Refused(what) => write!(f, "the store refuses to renew it: {what}"),
            Loss::Died => f.write_str("the thread that renewed it died"),
            Loss::Stopped => f.write_str("its holder was told to stop"),
            Loss::Dropped => f.write_str("its guard was dropped without a release"),
        }
    }
}

fn write_lost(f: &mut fmt::Formatter<'_>, lost: &Lost) -> fmt::Result {
    match lost {
        Lost::Expired => f.write_str("it expired"),
        Lost::Taken {
            by: Some(by),
            token,
        } => write!(f, "{by} holds it with token {token}"),
        Lost::Taken { by: None, token } => write!(f, "it was taken away with token {token}"),
        Lost::Released => f.write_str("it was released"),
        Lost::SeqMismatch => f.write_str("a clone of this holder renews it"),
        Lost::Gone => f.write_str("the store does not know its token"),
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Unknown(what) => write!(f, "the outcome is unknown: {what}"),
            Failure::Unavailable(what) => write!(f, "the store is unavailable: {what}"),
            Failure::Blocked(who) => write!(f, "blocked by {who}"),
            Failure::Invalid(what) => f.write_str(what),
        }
    }
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Blocker::Held(held) => write!(f, "held by {}", held.holder),
            Blocker::Delayed(hint) => {
                write!(f, "nobody may have it for {hint:?}: its lock delay runs")
            }
            Blocker::Quarantined(hint) => {
                write!(f, "nobody may have it for {hint:?}: it is in quarantine")
            }
            Blocker::Store(failure) => failure.fmt(f),
        }
    }
}
