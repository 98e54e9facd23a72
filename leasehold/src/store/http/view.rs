//! What readers of a server see, as JSON: leases, events, pairs, fences, lines of the ledger. Server and client share it.

use std::time::Duration;

use leasehold_core::{
    AttemptId, Done, Entry, Event, Fence, Fingerprint, Holder, Info, LeaseName, State, Status,
    Token, Ttl, Value, What,
};
use serde::{Deserialize, Serialize};

use super::{
    ask::{bytes, fingerprint, from_millis, hex, text},
    reply::{LostView, RefusalView},
};
use crate::store::{Finding, Profile, Recorded};

/// Whole milliseconds, rounded down.
pub fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Whole milliseconds, rounded up: nothing but zero becomes zero.
pub fn millis_up(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// A lease; see [`Status`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the status")]
pub struct LeaseView {
    pub lease: LeaseName,
    pub state: State,
    pub token: Option<Token>,
    pub holder: Option<Holder>,
    /// Eight hex digits that tell two sessions apart and open nothing.
    pub session: Option<String>,
    pub info: Option<Info>,
    pub ttl_ms: Ttl,
    /// How long ago the token was granted.
    pub granted_ms_ago: Option<u64>,
    pub remaining_ms: u64,
    pub renewals: u64,
    pub released: bool,
    /// How many wait for it at this server.
    #[serde(default)]
    pub waiting: usize,
}

impl From<&Status> for LeaseView {
    fn from(status: &Status) -> Self {
        Self {
            lease: status.name.clone(),
            state: status.state,
            token: status.token,
            holder: status.holder.clone(),
            session: status.session_hash.map(|hash| format!("{hash:08x}")),
            info: status.info.clone(),
            ttl_ms: status.ttl,
            granted_ms_ago: status.since.map(millis),
            remaining_ms: millis_up(status.remaining),
            renewals: status.renewals,
            released: status.released,
            waiting: 0,
        }
    }
}

impl From<LeaseView> for Status {
    fn from(view: LeaseView) -> Self {
        Self {
            name: view.lease,
            state: view.state,
            token: view.token,
            holder: view.holder,
            session_hash: view
                .session
                .and_then(|text| u32::from_str_radix(&text, 16).ok()),
            released: view.released,
            info: view.info,
            ttl: view.ttl_ms,
            since: view.granted_ms_ago.map(Duration::from_millis),
            remaining: Duration::from_millis(view.remaining_ms),
            renewals: view.renewals,
        }
    }
}

/// `GET /v1/leases`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leases {
    /// By name.
    pub leases: Vec<LeaseView>,
    /// There are more than were asked for.
    pub more: bool,
}

/// `GET /v1/history`, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "see EventView")]
pub struct Events {
    pub events: Vec<EventView>,
}

/// An event; see [`Recorded`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the event")]
pub struct EventView {
    pub number: u64,
    /// Unix time, for people.
    pub at_ms: u64,
    pub lease: LeaseName,
    #[serde(flatten)]
    pub what: WhatView,
}

/// What happened; see [`What`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[allow(missing_docs, reason = "the core's words")]
pub enum WhatView {
    Granted {
        holder: Holder,
        token: Token,
        ttl_ms: Ttl,
    },
    Released {
        holder: Holder,
        token: Token,
    },
    Expired {
        holder: Holder,
        token: Token,
    },
    Lost {
        token: Token,
        why: LostView,
    },
    Refused {
        target: String,
        why: RefusalView,
    },
    Forced {
        token: Token,
    },
    Quarantined {
        token: Token,
    },
}

impl From<&Recorded> for EventView {
    fn from(recorded: &Recorded) -> Self {
        let event = &recorded.event;
        Self {
            number: recorded.number,
            at_ms: event.at.as_millis(),
            lease: event.lease.clone(),
            what: match event.what.clone() {
                What::Granted { holder, token, ttl } => WhatView::Granted {
                    holder,
                    token,
                    ttl_ms: ttl,
                },
                What::Released { holder, token } => WhatView::Released { holder, token },
                What::Expired { holder, token } => WhatView::Expired { holder, token },
                What::Lost { token, why } => WhatView::Lost {
                    token,
                    why: why.into(),
                },
                What::Refused { target, why } => WhatView::Refused {
                    target,
                    why: why.into(),
                },
                What::Forced { token } => WhatView::Forced { token },
                What::Quarantined { token } => WhatView::Quarantined { token },
            },
        }
    }
}

impl EventView {
    /// The event; `None` if a field is missing.
    pub fn into_recorded(self) -> Option<Recorded> {
        let what = match self.what {
            WhatView::Granted {
                holder,
                token,
                ttl_ms,
            } => What::Granted {
                holder,
                token,
                ttl: ttl_ms,
            },
            WhatView::Released { holder, token } => What::Released { holder, token },
            WhatView::Expired { holder, token } => What::Expired { holder, token },
            WhatView::Lost { token, why } => What::Lost {
                token,
                why: why.into_lost()?,
            },
            WhatView::Refused { target, why } => What::Refused {
                target,
                why: why.into_refusal()?,
            },
            WhatView::Forced { token } => What::Forced { token },
            WhatView::Quarantined { token } => What::Quarantined { token },
        };
        Some(Recorded {
            number: self.number,
            event: Event {
                at: from_millis(self.at_ms),
                lease: self.lease,
                what,
            },
        })
    }
}

/// A line of the ledger; see [`Entry`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the entry")]
pub struct EntryView {
    pub token: Token,
    pub attempt: AttemptId,
    pub holder: Holder,
    pub fingerprint: String,
    pub begun_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_base64: Option<String>,
}

impl From<&Entry> for EntryView {
    fn from(entry: &Entry) -> Self {
        let done = entry.done.as_ref();
        let (response, response_base64) = done.map_or((None, None), |done| text(&done.response));
        Self {
            token: entry.token,
            attempt: entry.attempt,
            holder: entry.holder.clone(),
            fingerprint: hex(&entry.fingerprint),
            begun_ms: entry.begun.as_millis(),
            done_ms: done.map(|done| done.at.as_millis()),
            response,
            response_base64,
        }
    }
}

impl EntryView {
    /// The entry; the error says what is wrong.
    pub fn into_entry(self) -> Result<Entry, String> {
        let response = bytes("response", self.response, self.response_base64)?;
        let fingerprint: Fingerprint = fingerprint(&self.fingerprint)?;
        let done = self.done_ms.map(|at| {
            let response = response.ok_or("a done entry without its response")?;
            Ok::<Done, String>(Done {
                at: from_millis(at),
                response,
            })
        });
        Ok(Entry {
            token: self.token,
            attempt: self.attempt,
            holder: self.holder,
            fingerprint,
            begun: from_millis(self.begun_ms),
            done: done.transpose()?,
        })
    }
}

/// A receiver's fence; see [`Fence`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the fence")]
pub struct FenceView {
    pub lease: LeaseName,
    pub highest: Token,
}

impl From<Fence> for FenceView {
    fn from(Fence { lease, highest }: Fence) -> Self {
        Self { lease, highest }
    }
}

impl From<FenceView> for Fence {
    fn from(FenceView { lease, highest }: FenceView) -> Self {
        Self { lease, highest }
    }
}

/// `GET /v1/store`: the store behind the server; see [`Profile`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the profile")]
pub struct ProfileView {
    pub scheme: String,
    pub clock: String,
    pub tokens: String,
    pub durability: String,
    pub min_ttl_ms: Ttl,
    pub extension_ms: u64,
    pub dense: bool,
    pub fifo: bool,
    pub lock_delay: bool,
    pub pairs: bool,
    pub fences: bool,
    pub ledger: bool,
    pub history: bool,
}

impl ProfileView {
    /// Of a store that can do nothing.
    pub(super) fn nothing() -> Self {
        Self {
            scheme: String::new(),
            clock: String::new(),
            tokens: String::new(),
            durability: String::new(),
            min_ttl_ms: Ttl::MIN,
            extension_ms: 0,
            dense: false,
            fifo: false,
            lock_delay: false,
            pairs: false,
            fences: false,
            ledger: false,
            history: false,
        }
    }
}

impl From<&Profile> for ProfileView {
    fn from(profile: &Profile) -> Self {
        Self {
            scheme: profile.scheme.to_owned(),
            clock: profile.clock.to_owned(),
            tokens: profile.tokens.to_owned(),
            durability: profile.durability.to_owned(),
            min_ttl_ms: profile.min_ttl,
            extension_ms: millis_up(profile.extension),
            dense: profile.dense,
            fifo: profile.fifo,
            lock_delay: profile.lock_delay,
            pairs: profile.pairs,
            fences: profile.fences,
            ledger: profile.ledger,
            history: profile.history,
        }
    }
}

/// `GET /v1/doctor`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "see Finding")]
pub struct Findings {
    pub findings: Vec<Finding>,
}

/// `POST /v1/batch`: many things to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Batch {
    /// Each a step of its own.
    pub ops: Vec<super::ask::Ask>,
}

/// The answers to a [`Batch`], in its order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "see Reply")]
pub struct Replies {
    pub answers: Vec<super::reply::Reply>,
}

/// How many operations a batch may have.
pub const BATCH_OPS: usize = 1000;
/// How large a request may be, in bytes: a few of the largest values.
pub const BODY_BYTES: usize = 1024 * 1024;
/// How long a server holds an acquire back, at most, in milliseconds: less than what stands between cuts as idle.
pub const WAIT_MS: u64 = 50_000;
/// How many leases or events one answer has, at most.
pub const PAGE: usize = 1000;

/// The bytes of a response or value as a [`Value`].
pub fn value(bytes: &[u8]) -> Result<Value, String> {
    Value::new(bytes).map_err(|error| error.to_string())
}
