//! What happened: one stream that history, watch, metrics and audit all read.

use serde::{Deserialize, Serialize};

use crate::{Holder, LeaseName, Lost, Refusal, Token, Ttl, WallTime};

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
