//! What was already done: work that must happen once is entered under its business fact (chapter 7).
//!
//! The token decides who owns an unfinished entry, never a timeout (I6). Done stays done, for whatever token asks (I5).

use core::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{AttemptId, Holder, LeaseName, Refusal, Token, Value, WallTime, WorkKey};

/// Where a piece of work is entered: the lease it is done under, and its own key (I3).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Work {
    /// The lease; also the scope of the key.
    pub lease: LeaseName,
    /// The business fact.
    pub key: WorkKey,
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.key, self.lease)
    }
}

/// A digest of what is to be done, so that one key is not used for two different things (I1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint(pub [u8; 32]);

/// One line of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Whose work: the token under which it was begun last.
    pub token: Token,
    /// Which try.
    pub attempt: AttemptId,
    /// Who, for people.
    pub holder: Holder,
    /// What was asked.
    pub fingerprint: Fingerprint,
    /// When it was begun last.
    pub begun: WallTime,
    /// When and with what result it was done; `None` while it is not.
    pub done: Option<Done>,
}

/// The end of a piece of work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// When.
    pub at: WallTime,
    /// The result to replay to whoever asks again.
    pub response: Value,
}

/// Asks to begin a piece of work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin {
    /// Which work.
    pub work: Work,
    /// The caller's token of the lease.
    pub token: Token,
    /// The same over retries of one try.
    pub attempt: AttemptId,
    /// Who asks.
    pub holder: Holder,
    /// What is to be done.
    pub fingerprint: Fingerprint,
    /// What to do about an entry that an older token left unfinished.
    pub unfinished: Unfinished,
    /// When the request was made, if its key tells; older than the ledger's memory is refused (I9).
    pub born: Option<WallTime>,
}

/// An entry begun and never completed: its holder crashed before, in the middle of, or after the effect. Nobody can
/// tell which, so the caller says what it prefers (I7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unfinished {
    /// At least once: do it again.
    TakeOver,
    /// At most once: leave it.
    Leave,
}

/// What the ledger says to [`Begin`], [`Complete`] and [`Abandon`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// Yours: do it now.
    Begun,
    /// Yours already: this attempt began it.
    Resumed,
    /// Yours now: an older token had begun it and never finished.
    TookOver {
        /// Who had.
        from: Token,
    },
    /// Done before: here is who and what (I5). Do not do it again.
    AlreadyDone(Entry),
    /// Another attempt with the same token is at it (I1: 409).
    InProgress,
    /// Nobody has begun this work, or it was given up: there is nothing to complete.
    NotBegun,
    /// An older token began it, and the caller said to leave such an entry alone.
    LeftUnfinished(Entry),
    /// The same key was used for something else (I1: 422).
    Mismatch,
    /// The request is older than the ledger's memory (I9).
    TooOld {
        /// Requests from before this are not answered any more.
        kept_from: WallTime,
    },
    /// The entry is completed.
    Completed,
    /// Nothing of this attempt is left; whoever comes next begins it.
    Abandoned,
    /// The entry or the lease has a larger token.
    Refused(Refusal),
}

/// Says that the work is done. The entry's token must be the caller's; the lease need not be valid any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Complete {
    /// Which work.
    pub work: Work,
    /// The token it was begun under.
    pub token: Token,
    /// The attempt that did it.
    pub attempt: AttemptId,
    /// What to replay.
    pub response: Value,
}

/// Says that the work failed without effect, so that the next one may begin it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Abandon {
    /// Which work.
    pub work: Work,
    /// The token it was begun under.
    pub token: Token,
    /// The attempt that failed.
    pub attempt: AttemptId,
}

/// What becomes of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It stays as it is.
    Keep,
    /// It becomes this.
    Write(Entry),
    /// It goes.
    Remove,
}

/// I5 in its order: look up, compare, then the fence, then the entry. `issued` compares the token with the lease;
/// `kept_from` is the age of the oldest entry that is still kept.
pub fn begin(
    entry: Option<Entry>,
    asked: Begin,
    issued: Result<(), Refusal>,
    kept_from: WallTime,
    now: WallTime,
) -> (Change, Verdict) {
    let fresh = || Entry {
        token: asked.token,
        attempt: asked.attempt,
        holder: asked.holder.clone(),
        fingerprint: asked.fingerprint,
        begun: now,
        done: None,
    };
    let Some(entry) = entry else {
        if asked.born.is_some_and(|born| born < kept_from) {
            return (Change::Keep, Verdict::TooOld { kept_from });
        }
        return match issued {
            Ok(()) => (Change::Write(fresh()), Verdict::Begun),
            Err(refusal) => (Change::Keep, Verdict::Refused(refusal)),
        };
    };
    let verdict = match issued {
        _ if entry.fingerprint != asked.fingerprint => Verdict::Mismatch,
        _ if entry.done.is_some() => Verdict::AlreadyDone(entry),
        _ if asked.token < entry.token => Verdict::Refused(Refusal::Stale {
            token: asked.token,
            highest: entry.token,
        }),
        Err(refusal) => Verdict::Refused(refusal),
        Ok(()) if asked.token == entry.token && asked.attempt == entry.attempt => Verdict::Resumed,
        Ok(()) if asked.token == entry.token => Verdict::InProgress,
        Ok(()) if asked.unfinished == Unfinished::Leave => Verdict::LeftUnfinished(entry),
        Ok(()) => {
            let from = entry.token;
            return (Change::Write(fresh()), Verdict::TookOver { from });
        }
    };
    (Change::Keep, verdict)
}

/// The work is done. Repeating it is fine.
pub fn complete(entry: Option<Entry>, asked: Complete, now: WallTime) -> (Change, Verdict) {
    match owned(entry, asked.token, asked.attempt) {
        Err(verdict) => (Change::Keep, verdict),
        Ok(entry) if entry.done.is_some() => (Change::Keep, Verdict::Completed),
        Ok(mut entry) => {
            entry.done = Some(Done {
                at: now,
                response: asked.response,
            });
            (Change::Write(entry), Verdict::Completed)
        }
    }
}

/// The work failed without effect.
pub fn abandon(entry: Option<Entry>, asked: &Abandon) -> (Change, Verdict) {
    match owned(entry, asked.token, asked.attempt) {
        Err(Verdict::NotBegun) => (Change::Keep, Verdict::Abandoned),
        Err(verdict) => (Change::Keep, verdict),
        Ok(entry) if entry.done.is_some() => (Change::Keep, Verdict::AlreadyDone(entry)),
        Ok(_) => (Change::Remove, Verdict::Abandoned),
    }
}

/// The entry, if this attempt under this token owns it; else who does.
fn owned(entry: Option<Entry>, token: Token, attempt: AttemptId) -> Result<Entry, Verdict> {
    match entry {
        Some(entry) if (entry.token, entry.attempt) == (token, attempt) => Ok(entry),
        Some(entry) if token < entry.token => Err(Verdict::Refused(Refusal::Stale {
            token,
            highest: entry.token,
        })),
        Some(entry) if token == entry.token && entry.done.is_some() => {
            Err(Verdict::AlreadyDone(entry))
        }
        Some(entry) if token == entry.token => Err(Verdict::InProgress),
        _ => Err(Verdict::NotBegun),
    }
}

impl Entry {
    /// How long an entry is remembered: longer than the longest retry and the longest freeze (I9).
    pub const KEPT: Duration = Duration::from_secs(400 * 24 * 60 * 60);

    /// Whether it was begun, or done, before `since`. Whoever deletes it moves `kept_from` to `since` in the same step,
    /// so that a request from before is refused by its age and not executed as new (I9).
    pub fn collectable(&self, since: WallTime) -> bool {
        self.done.as_ref().map_or(self.begun, |done| done.at) < since
    }
}
