//! What a server answers, as JSON: one object for each [`Outcome`], told apart by `"answer"`. Server and client share it.
//!
//! A time that a store held back is rounded down and a hint up, so that neither promises more than was meant.

use std::time::Duration;

use leasehold_core::{
    Answer, Grant, Held, Holder, Info, Key, LeaseName, Lost, NotBumped, Op, Outcome, Refusal,
    Token, Ttl, Verdict,
};
use serde::{Deserialize, Serialize};

use super::{
    ask::from_millis,
    view::{EntryView, millis, millis_up},
};
use crate::StoreError;

/// What came of one [`Ask`](super::ask::Ask).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
#[allow(
    missing_docs,
    reason = "each is the core's answer of the same name, with its fields"
)]
pub enum Reply {
    Granted {
        token: Token,
        ttl_ms: Ttl,
        waited_ms: u64,
    },
    Renewed {
        ttl_ms: Ttl,
    },
    Released,
    Bumped {
        token: Token,
    },
    AlreadyOver,
    Held {
        holder: Holder,
        info: Option<Info>,
        token: Token,
        hint_ms: u64,
        yours: bool,
    },
    Delayed {
        hint_ms: u64,
    },
    Quarantined {
        hint_ms: u64,
    },
    AlreadyUsed,
    Lost(LostView),
    TokenExhausted,
    Done,
    Refused(RefusalView),
    NotBumped(NotBumpedView),
    Begun,
    Resumed,
    TookOver {
        from: Token,
    },
    AlreadyDone {
        entry: EntryView,
    },
    InProgress,
    NotBegun,
    LeftUnfinished {
        entry: EntryView,
    },
    Mismatch,
    TooOld {
        kept_from_ms: u64,
    },
    Completed,
    Abandoned,
    /// No answer of the store; see [`StoreError`].
    Error {
        kind: ErrorKind,
        detail: String,
    },
}

/// Which [`StoreError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names of the errors")]
pub enum ErrorKind {
    Unavailable,
    Unknown,
    Blocked,
    Invalid,
}

/// A [`Lost`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the core's words")]
pub struct LostView {
    pub reason: LostReason,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Holder>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub highest: Option<Token>,
}

/// Which [`Lost`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the core's words")]
pub enum LostReason {
    Expired,
    Taken,
    Released,
    SeqMismatch,
    Gone,
}

/// A [`Refusal`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the core's words")]
pub struct RefusalView {
    pub reason: RefusalReason,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub highest: Option<Token>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
    /// The lease that fences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<LeaseName>,
}

/// Which [`Refusal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the core's words")]
pub enum RefusalReason {
    Stale,
    Expired,
    Released,
    NeverIssued,
    NotRaised,
    TooFar,
    Fenced,
    OtherLease,
}

/// A [`NotBumped`]. The numbers are strings, as tokens are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[allow(missing_docs, reason = "the core's words")]
pub enum NotBumpedView {
    TooSmall { above: Token, newest: Token },
    TooLarge { above: Token, most: String },
    ClockBehind { wall_ms: u64, newest_ms: u64 },
}

impl From<Result<Outcome, StoreError>> for Reply {
    fn from(result: Result<Outcome, StoreError>) -> Reply {
        match result {
            Ok(outcome) => outcome.into(),
            Err(error) => {
                let (kind, detail) = match error {
                    StoreError::Unavailable { what } => (ErrorKind::Unavailable, what),
                    StoreError::Unknown { what } => (ErrorKind::Unknown, what),
                    StoreError::BlockedBy { who } => (ErrorKind::Blocked, who),
                    StoreError::Invalid { what } => (ErrorKind::Invalid, what),
                };
                Reply::Error { kind, detail }
            }
        }
    }
}

impl From<Outcome> for Reply {
    fn from(outcome: Outcome) -> Reply {
        match outcome {
            Outcome::Lease(answer) => of_answer(answer),
            Outcome::Done => Reply::Done,
            Outcome::Refused(refusal) => Reply::Refused(refusal.into()),
            Outcome::Ledger(verdict) => of_verdict(verdict),
            Outcome::NotBumped(why) => Reply::NotBumped(match why {
                NotBumped::TooSmall { above, newest } => NotBumpedView::TooSmall { above, newest },
                NotBumped::TooLarge { above, most } => NotBumpedView::TooLarge {
                    above,
                    most: most.to_string(),
                },
                NotBumped::ClockBehind { wall, newest } => NotBumpedView::ClockBehind {
                    wall_ms: wall.as_millis(),
                    newest_ms: newest.as_millis(),
                },
            }),
        }
    }
}

fn of_answer(answer: Answer) -> Reply {
    match answer {
        Answer::Granted(grant) => Reply::Granted {
            token: grant.token,
            ttl_ms: grant.ttl,
            waited_ms: millis(grant.waited),
        },
        Answer::Renewed { ttl } => Reply::Renewed { ttl_ms: ttl },
        Answer::Released => Reply::Released,
        Answer::Bumped { token } => Reply::Bumped { token },
        Answer::AlreadyOver => Reply::AlreadyOver,
        Answer::Held(held) => Reply::Held {
            holder: held.holder,
            info: held.info,
            token: held.token,
            hint_ms: millis_up(held.hint),
            yours: held.yours,
        },
        Answer::Delayed { hint } => Reply::Delayed {
            hint_ms: millis_up(hint),
        },
        Answer::Quarantined { hint } => Reply::Quarantined {
            hint_ms: millis_up(hint),
        },
        Answer::AlreadyUsed => Reply::AlreadyUsed,
        Answer::Lost(lost) => Reply::Lost(lost.into()),
        Answer::TokenExhausted => Reply::TokenExhausted,
    }
}

fn of_verdict(verdict: Verdict) -> Reply {
    match verdict {
        Verdict::Begun => Reply::Begun,
        Verdict::Resumed => Reply::Resumed,
        Verdict::TookOver { from } => Reply::TookOver { from },
        Verdict::AlreadyDone(entry) => Reply::AlreadyDone {
            entry: EntryView::from(&entry),
        },
        Verdict::InProgress => Reply::InProgress,
        Verdict::NotBegun => Reply::NotBegun,
        Verdict::LeftUnfinished(entry) => Reply::LeftUnfinished {
            entry: EntryView::from(&entry),
        },
        Verdict::Mismatch => Reply::Mismatch,
        Verdict::TooOld { kept_from } => Reply::TooOld {
            kept_from_ms: kept_from.as_millis(),
        },
        Verdict::Completed => Reply::Completed,
        Verdict::Abandoned => Reply::Abandoned,
        Verdict::Refused(refusal) => Reply::Refused(refusal.into()),
    }
}

impl Reply {
    /// What the store said, as the answer to `op`. The error is [`StoreError::Unknown`] if it makes no sense as one.
    pub fn into_outcome(self, op: &Op) -> Result<Outcome, StoreError> {
        if let Reply::Error { kind, detail } = self {
            return Err(kind.with(detail));
        }
        let senseless = StoreError::Unknown {
            what: format!("the server answered an operation with {self:?}"),
        };
        let outcome = match op {
            Op::Lease { .. } => self.into_answer().map(Outcome::Lease),
            Op::Begin(_) | Op::Complete(_) | Op::Abandon(_) => {
                self.into_verdict().map(Outcome::Ledger)
            }
            Op::Put { .. } | Op::Delete { .. } | Op::Raise { .. } | Op::Bump { .. } => match self {
                Reply::Done => Some(Outcome::Done),
                Reply::Refused(view) => view.into_refusal().map(Outcome::Refused),
                Reply::NotBumped(view) => view.into_not_bumped().map(Outcome::NotBumped),
                _ => None,
            },
        };
        outcome.ok_or(senseless)
    }

    fn into_answer(self) -> Option<Answer> {
        let span = Duration::from_millis;
        Some(match self {
            Reply::Granted {
                token,
                ttl_ms,
                waited_ms,
            } => Answer::Granted(Grant {
                token,
                ttl: ttl_ms,
                waited: span(waited_ms),
            }),
            Reply::Renewed { ttl_ms } => Answer::Renewed { ttl: ttl_ms },
            Reply::Released => Answer::Released,
            Reply::Bumped { token } => Answer::Bumped { token },
            Reply::AlreadyOver => Answer::AlreadyOver,
            Reply::Held {
                holder,
                info,
                token,
                hint_ms,
                yours,
            } => Answer::Held(Held {
                holder,
                info,
                token,
                hint: span(hint_ms),
                yours,
            }),
            Reply::Delayed { hint_ms } => Answer::Delayed {
                hint: span(hint_ms),
            },
            Reply::Quarantined { hint_ms } => Answer::Quarantined {
                hint: span(hint_ms),
            },
            Reply::AlreadyUsed => Answer::AlreadyUsed,
            Reply::Lost(view) => Answer::Lost(view.into_lost()?),
            Reply::TokenExhausted => Answer::TokenExhausted,
            _ => return None,
        })
    }

    fn into_verdict(self) -> Option<Verdict> {
        Some(match self {
            Reply::Begun => Verdict::Begun,
            Reply::Resumed => Verdict::Resumed,
            Reply::TookOver { from } => Verdict::TookOver { from },
            Reply::AlreadyDone { entry } => Verdict::AlreadyDone(entry.into_entry().ok()?),
            Reply::InProgress => Verdict::InProgress,
            Reply::NotBegun => Verdict::NotBegun,
            Reply::LeftUnfinished { entry } => Verdict::LeftUnfinished(entry.into_entry().ok()?),
            Reply::Mismatch => Verdict::Mismatch,
            Reply::TooOld { kept_from_ms } => Verdict::TooOld {
                kept_from: from_millis(kept_from_ms),
            },
            Reply::Completed => Verdict::Completed,
            Reply::Abandoned => Verdict::Abandoned,
            Reply::Refused(view) => Verdict::Refused(view.into_refusal()?),
            _ => return None,
        })
    }
}

impl ErrorKind {
    /// The error of this kind.
    pub fn with(self, what: String) -> StoreError {
        match self {
            ErrorKind::Unavailable => StoreError::Unavailable { what },
            ErrorKind::Unknown => StoreError::Unknown { what },
            ErrorKind::Blocked => StoreError::BlockedBy { who: what },
            ErrorKind::Invalid => StoreError::Invalid { what },
        }
    }
}

impl From<Lost> for LostView {
    fn from(lost: Lost) -> Self {
        let (reason, by, highest) = match lost {
            Lost::Expired => (LostReason::Expired, None, None),
            Lost::Taken { by, token } => (LostReason::Taken, by, Some(token)),
            Lost::Released => (LostReason::Released, None, None),
            Lost::SeqMismatch => (LostReason::SeqMismatch, None, None),
            Lost::Gone => (LostReason::Gone, None, None),
        };
        Self {
            reason,
            by,
            highest,
        }
    }
}

impl LostView {
    /// The core's word; `None` if a field is missing.
    pub fn into_lost(self) -> Option<Lost> {
        Some(match self.reason {
            LostReason::Expired => Lost::Expired,
            LostReason::Taken => Lost::Taken {
                by: self.by,
                token: self.highest?,
            },
            LostReason::Released => Lost::Released,
            LostReason::SeqMismatch => Lost::SeqMismatch,
            LostReason::Gone => Lost::Gone,
        })
    }
}

impl From<Refusal> for RefusalView {
    fn from(refusal: Refusal) -> Self {
        use RefusalReason as Reason;
        let of = |reason, token, highest| Self {
            reason,
            token: Some(token),
            highest,
            key: None,
            by: None,
        };
        match refusal {
            Refusal::Stale { token, highest } => of(Reason::Stale, token, Some(highest)),
            Refusal::Expired { token } => of(Reason::Expired, token, None),
            Refusal::Released { token } => of(Reason::Released, token, None),
            Refusal::NeverIssued { token } => of(Reason::NeverIssued, token, None),
            Refusal::NotRaised { token, highest } => of(Reason::NotRaised, token, Some(highest)),
            Refusal::TooFar { token, highest } => of(Reason::TooFar, token, Some(highest)),
            Refusal::Fenced { key, by } => Self {
                reason: Reason::Fenced,
                token: None,
                highest: None,
                key: Some(key),
                by: Some(by),
            },
            Refusal::OtherLease { by } => Self {
                reason: Reason::OtherLease,
                token: None,
                highest: None,
                key: None,
                by: Some(by),
            },
        }
    }
}

impl RefusalView {
    /// The core's word; `None` if a field is missing.
    pub fn into_refusal(self) -> Option<Refusal> {
        use RefusalReason as Reason;
        let (token, highest) = (self.token, self.highest);
        Some(match self.reason {
            Reason::Stale => Refusal::Stale {
                token: token?,
                highest: highest?,
            },
            Reason::Expired => Refusal::Expired { token: token? },
            Reason::Released => Refusal::Released { token: token? },
            Reason::NeverIssued => Refusal::NeverIssued { token: token? },
            Reason::NotRaised => Refusal::NotRaised {
                token: token?,
                highest: highest?,
            },
            Reason::TooFar => Refusal::TooFar {
                token: token?,
                highest: highest?,
            },
            Reason::Fenced => Refusal::Fenced {
                key: self.key?,
                by: self.by?,
            },
            Reason::OtherLease => Refusal::OtherLease { by: self.by? },
        })
    }
}

impl NotBumpedView {
    /// The core's word; `None` if a number is none.
    pub fn into_not_bumped(self) -> Option<NotBumped> {
        Some(match self {
            NotBumpedView::TooSmall { above, newest } => NotBumped::TooSmall { above, newest },
            NotBumpedView::TooLarge { above, most } => NotBumped::TooLarge {
                above,
                most: most.parse().ok()?,
            },
            NotBumpedView::ClockBehind { wall_ms, newest_ms } => NotBumped::ClockBehind {
                wall: from_millis(wall_ms),
                newest: from_millis(newest_ms),
            },
        })
    }
}
