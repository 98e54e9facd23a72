//! Everything a store may be asked to do, and what may come of it.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    Abandon, Answer, Begin, Command, Complete, Key, LeaseName, Proof, Refusal, Resource, StoreTime,
    Token, Value, Verdict, WallTime,
};

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// A command to one lease.
    Lease {
        /// Which lease.
        name: LeaseName,
        /// What.
        command: Command,
    },
    /// Writes a pair, plain or fenced.
    Put {
        /// Where.
        key: Key,
        /// What.
        value: Value,
        /// Under which lease, if fenced.
        proof: Option<Proof>,
    },
    /// Deletes a pair, plain or fenced.
    Delete {
        /// Which.
        key: Key,
        /// Under which lease, if fenced.
        proof: Option<Proof>,
    },
    /// Raises the fence of a receiver to a token of a lease of this store (F6). A token that the store never issued is
    /// refused (T10); a receiver seen for the first time starts at the lease's own token (F3).
    Raise {
        /// Which receiver.
        resource: Resource,
        /// With what.
        proof: Proof,
    },
    /// Begins a piece of work.
    Begin(Begin),
    /// Completes it.
    Complete(Complete),
    /// Gives it up.
    Abandon(Abandon),
    /// Every lease into quarantine, every later token above `above` (T6). Refused as [`NotBumped`].
    Bump {
        /// A number no smaller than any token that may have been issued and forgotten; unix time in ms is one.
        above: Token,
    },
}

/// When the store evaluates an operation: read after every wait and lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// The store's own clock: decides.
    pub now: StoreTime,
    /// The wall clock: for people, and for ages of months.
    pub wall: WallTime,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Of [`Op::Lease`].
    Lease(Answer),
    /// Of [`Op::Put`]: stored. Of [`Op::Delete`]: gone. Of [`Op::Raise`]: raised. Of [`Op::Bump`]: done.
    Done,
    /// A fence said no; nothing was changed.
    Refused(Refusal),
    /// Of the ledger's operations.
    Ledger(Verdict),
    /// Of [`Op::Bump`]: the number would not do; nothing was changed.
    NotBumped(NotBumped),
}

/// Why the number of a bump would not do (A10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NotBumped {
    /// Not larger than every token and the floor: a bump to it promises nothing.
    TooSmall {
        /// The number that came.
        above: Token,
        /// The largest token that is known.
        newest: Token,
    },
    /// More than a day ahead of the wall clock: tokens could run out by mistakes.
    TooLarge {
        /// The number that came.
        above: Token,
        /// The largest that is allowed now.
        most: u64,
    },
    /// The wall clock is behind what the history tells, so no number can be judged by it.
    ClockBehind {
        /// What the clock says.
        wall: WallTime,
        /// When the newest event happened.
        newest: WallTime,
    },
}

impl NotBumped {
    /// How far ahead of the wall clock a number may be: a day, in milliseconds (A10).
    pub const AHEAD: u64 = 24 * 60 * 60 * 1000;
}

impl fmt::Display for NotBumped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotBumped::TooSmall { above, newest } => write!(
                f,
                "{above} is not above every token: {newest} was issued; give a larger number, such as the unix time in ms"
            ),
            NotBumped::TooLarge { above, most } => write!(
                f,
                "{above} is too large: at most {most} is allowed, the unix time in ms and a day"
            ),
            NotBumped::ClockBehind { wall, newest } => write!(
                f,
                "the wall clock says {} ms, but something happened at {} ms: set the clock right first",
                wall.as_millis(),
                newest.as_millis()
            ),
        }
    }
}

impl core::error::Error for NotBumped {}
