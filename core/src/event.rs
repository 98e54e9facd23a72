//! What happened: one stream that history, watch, metrics and audit all read.

use serde::{Deserialize, Serialize};

use crate::{
    Answer, Command, Holder, LeaseName, Lost, Record, Refusal, State, StoreTime, Token, Ttl,
    WallTime,
};

/// One thing that happened to one lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When, for people.
    pub at: WallTime,
    /// To which lease.
    pub lease: LeaseName,
    /// What.
    pub what: What,
}

/// The kinds of event. Renewals and polls are not events: they would drown the rest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A holder got it.
    Granted {
        /// Who.
        holder: Holder,
        /// With which token.
        token: Token,
        /// For how long.
        ttl: Ttl,
    },
    /// Its holder gave it back.
    Released {
        /// Who.
        holder: Holder,
        /// With which token.
        token: Token,
    },
    /// It ran out under its holder; seen when the next one took it.
    Expired {
        /// Who.
        holder: Holder,
        /// With which token.
        token: Token,
    },
    /// A holder asked to renew and learnt that it had lost.
    Lost {
        /// With which token.
        token: Token,
        /// Why.
        why: Lost,
    },
    /// A fence refused a write.
    Refused {
        /// What was to be written.
        target: alloc::string::String,
        /// Why.
        why: Refusal,
    },
    /// An operator took it away.
    Forced {
        /// The token that was burnt.
        token: Token,
    },
    /// The store's past is in doubt; nobody holds for one ttl.
    Quarantined {
        /// The token that was burnt.
        token: Token,
    },
}

/// What must be remembered from before a command to tell what it did.
pub(crate) enum Before {
    /// An acquire that finds the lease free; the tenure that ran out before it, if one did.
    Acquire(Option<(Holder, Token)>),
    /// An acquire that gets nothing, or what it was granted before.
    Poll,
    Renew(Token),
    Release,
    ForceRelease,
    Quarantine,
}

impl Before {
    pub(crate) fn of(record: &Record, command: &Command, now: StoreTime) -> Self {
        match command {
            Command::Acquire(_) if record.at(now) == State::Free => {
                let ended = record.tenure.as_ref().filter(|tenure| !tenure.released);
                let ended = ended.zip(record.token);
                Before::Acquire(ended.map(|(tenure, token)| (tenure.holder.clone(), token)))
            }
            Command::Acquire(_) => Before::Poll,
            Command::Renew(asked) => Before::Renew(asked.token),
            Command::Release(_) => Before::Release,
            Command::ForceRelease { .. } => Before::ForceRelease,
            Command::Quarantine { .. } => Before::Quarantine,
        }
    }

    /// At most two events: the end of the previous tenure, and what came of the command. Most commands tell nothing.
    pub(crate) fn tell(self, record: &Record, answer: &Answer, mut tell: impl FnMut(What)) {
        match (self, answer, &record.tenure) {
            (Before::Acquire(ended), Answer::Granted(grant), Some(tenure)) => {
                if let Some((holder, token)) = ended {
                    tell(What::Expired { holder, token });
                }
                tell(What::Granted {
                    holder: tenure.holder.clone(),
                    token: grant.token,
                    ttl: grant.ttl,
                });
            }
            (Before::Renew(token), Answer::Lost(why), _) => {
                let why = why.clone();
                tell(What::Lost { token, why });
            }
            (Before::Release, Answer::Released, Some(tenure)) => {
                let holder = tenure.holder.clone();
                if let Some(token) = record.token {
                    tell(What::Released { holder, token });
                }
            }
            (Before::ForceRelease, &Answer::Bumped { token }, _) => tell(What::Forced { token }),
            (Before::Quarantine, &Answer::Bumped { token }, _) => tell(What::Quarantined { token }),
            _ => {}
        }
    }
}
