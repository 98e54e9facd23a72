//! Why was my write refused? The comparisons of chapter 5, for every receiver.
//!
//! A check counts only if it is one atomic step with the effect it protects (F2): same transaction, same lock, same
//! log entry. These functions are the comparison; the caller brings the atomic step.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::{Key, LeaseName, Record, State, StoreTime, Token};

/// The largest token of one lease that one receiver has seen (F1). It never falls and is never forgotten (F3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fence {
    /// Whose tokens are compared; a token of another lease means nothing here (T2).
    pub lease: LeaseName,
    /// The largest so far.
    pub highest: Token,
}

/// Why a fence let nothing through. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// A larger token was seen: the lease has a new holder (F9).
    Stale {
        /// The token that came.
        token: Token,
        /// The largest one.
        highest: Token,
    },
    /// The token is the lease's last one, and its time is over.
    Expired {
        /// The token that came.
        token: Token,
    },
    /// The token is the lease's last one, and was given back.
    Released {
        /// The token that came.
        token: Token,
    },
    /// The lease never had such a token, or has none.
    NeverIssued {
        /// The token that came.
        token: Token,
    },
    /// The token is larger than the fence; raise the fence with it before the first read (F6, F10).
    NotRaised {
        /// The token that came.
        token: Token,
        /// The fence.
        highest: Token,
    },
    /// The token is implausibly far above the fence: a mistake would shut everybody out (T10).
    TooFar {
        /// The token that came.
        token: Token,
        /// The fence.
        highest: Token,
    },
    /// The key belongs to a lease; the write must come under it.
    Fenced {
        /// The key.
        key: Key,
        /// The lease.
        by: LeaseName,
    },
    /// The fence compares the tokens of another lease (T2).
    OtherLease {
        /// Which.
        by: LeaseName,
    },
}

impl Fence {
    /// How far a token may jump above the fence without the store's word: above any unix time in ms (A10).
    pub const MAX_JUMP: u64 = 1 << 43;

    /// The barrier of a new holder: after it, no smaller token passes (F6, F10). Repeating it is fine.
    pub fn raise(&mut self, lease: &LeaseName, token: Token) -> Result<(), Refusal> {
        self.compare(lease, token)?;
        if token.get() - self.highest.get() > Self::MAX_JUMP {
            return Err(Refusal::TooFar {
                token,
                highest: self.highest,
            });
        }
        self.highest = token;
        Ok(())
    }

    /// The fence after [`Self::raise`], if the store itself keeps it: `issued` is the lease's largest token, so however
    /// far one jumped, it is known to be true or not (T10).
    pub(crate) fn raised(
        self,
        lease: &LeaseName,
        token: Token,
        issued: Option<Token>,
    ) -> Result<Self, Refusal> {
        self.compare(lease, token)?;
        if Some(token) > issued {
            return Err(Refusal::NeverIssued { token });
        }
        Ok(Self {
            highest: token,
            ..self
        })
    }

    /// A write after the barrier: exactly the raised token passes (F6).
    pub fn check(&self, lease: &LeaseName, token: Token) -> Result<(), Refusal> {
        self.compare(lease, token)?;
        if token > self.highest {
            return Err(Refusal::NotRaised {
                token,
                highest: self.highest,
            });
        }
        Ok(())
    }

    /// A write that raises the fence by itself: the largest token so far, or a larger one (F4).
    pub fn admit(&mut self, lease: &LeaseName, token: Token) -> Result<(), Refusal> {
        self.raise(lease, token)
    }

    fn compare(&self, lease: &LeaseName, token: Token) -> Result<(), Refusal> {
        if *lease != self.lease {
            return Err(Refusal::OtherLease {
                by: self.lease.clone(),
            });
        }
        if token < self.highest {
            return Err(Refusal::Stale {
                token,
                highest: self.highest,
            });
        }
        Ok(())
    }
}

/// The fence where lease and data live in one store: only the token that is issued and valid now passes (F7).
///
/// Stale writers are refused from the moment of the takeover, before the new holder does anything.
pub fn issued(record: Option<&Record>, token: Token, now: StoreTime) -> Result<(), Refusal> {
    let Some((record, stored)) = record.and_then(|record| Some((record, record.token?))) else {
        return Err(Refusal::NeverIssued { token });
    };
    match &record.tenure {
        _ if token < stored => Err(Refusal::Stale {
            token,
            highest: stored,
        }),
        Some(tenure) if token == stored => match record.at(now) {
            State::Held => Ok(()),
            _ if tenure.released => Err(Refusal::Released { token }),
            _ => Err(Refusal::Expired { token }),
        },
        _ => Err(Refusal::NeverIssued { token }),
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Stale { token, highest } => write!(f, "token {token} is older than {highest}"),
            Refusal::Expired { token } => write!(f, "token {token} expired"),
            Refusal::Released { token } => write!(f, "token {token} was released"),
            Refusal::NeverIssued { token } => write!(f, "token {token} was never issued"),
            Refusal::NotRaised { token, highest } => {
                write!(
                    f,
                    "token {token} is newer than the fence {highest}: raise it first"
                )
            }
            Refusal::TooFar { token, highest } => {
                write!(
                    f,
                    "token {token} is too far above the fence {highest} to be true"
                )
            }
            Refusal::Fenced { key, by } => write!(f, "{key} is fenced by {by}"),
            Refusal::OtherLease { by } => write!(f, "the fence belongs to the lease {by}"),
        }
    }
}

impl core::error::Error for Refusal {}
