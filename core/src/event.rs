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
    /// A release, and whose tenure it found.
    Release(Option<(Holder, Token)>),
    ForceRelease,
    Quarantine,
}

impl Before {
    pub(crate) fn of(record: &Record, command: &Command, now: StoreTime) -> Self {
        let unreleased = || {
            let tenure = record.tenure.as_ref().filter(|tenure| !tenure.released)?;
            Some((tenure.holder.clone(), record.token?))
        };
        match command {
            Command::Acquire(_) if record.at(now) == State::Free => Before::Acquire(unreleased()),
            Command::Acquire(_) => Before::Poll,
            Command::Renew(asked) => Before::Renew(asked.token),
            Command::Release(_) => Before::Release(unreleased()),
            Command::ForceRelease { .. } => Before::ForceRelease,
            Command::Quarantine { .. } => Before::Quarantine,
        }
    }

    /// At most two events: the end of the previous tenure, and what came of the command.
    pub(crate) fn tell(self, record: &Record, answer: &Answer) -> [Option<What>; 2] {
        let expired = |(holder, token)| What::Expired { holder, token };
        let released = |(holder, token)| What::Released { holder, token };
        match (self, answer) {
            (Before::Acquire(previous), Answer::Granted(grant)) => {
                let granted = record.tenure.as_ref().map(|tenure| What::Granted {
                    holder: tenure.holder.clone(),
                    token: grant.token,
                    ttl: grant.ttl,
                });
                [previous.map(expired), granted]
            }
            (Before::Renew(token), Answer::Lost(why)) => {
                let why = why.clone();
                [None, Some(What::Lost { token, why })]
            }
            (Before::Release(previous), Answer::Released) => [None, previous.map(released)],
            (Before::ForceRelease, Answer::Bumped { token }) => {
                [None, Some(What::Forced { token: *token })]
            }
            (Before::Quarantine, Answer::Bumped { token }) => {
                [None, Some(What::Quarantined { token: *token })]
            }
            _ => [None, None],
        }
    }
}
