//! Leases and events as programs see them: the fields of `--json`, with units in their names. Tokens are strings, since
//! many JSON readers lose digits of large numbers. A session is shown as eight hex digits that open nothing.

use std::time::Duration;

use jiff::Timestamp;
use leasehold::{
    WallTime,
    core::{Lost, State, Status, What},
    store::Recorded,
};
use serde::Serialize;

/// A lease.
#[derive(Debug, Serialize)]
pub(crate) struct LeaseView {
    lease: String,
    state: State,
    token: Option<String>,
    holder: Option<String>,
    session: Option<String>,
    info: Option<String>,
    ttl_ms: u64,
    held_for_ms: Option<u64>,
    remaining_ms: u64,
    renewals: u64,
    released: bool,
}

impl LeaseView {
    pub(crate) fn of(status: &Status) -> Self {
        let held = status.state == State::Held;
        Self {
            lease: status.name.to_string(),
            state: status.state,
            token: status.token.map(|token| token.to_string()),
            holder: status.holder.as_ref().map(ToString::to_string),
            session: status.session_hash.map(|hash| format!("{hash:08x}")),
            info: status.info.as_ref().map(ToString::to_string),
            ttl_ms: millis(status.ttl.get()),
            held_for_ms: status.since.filter(|_| held).map(millis),
            remaining_ms: millis(status.remaining),
            renewals: status.renewals,
            released: status.released,
        }
    }
}

/// An event.
#[derive(Debug, Default, Serialize)]
pub(crate) struct EventView {
    number: u64,
    at: String,
    lease: String,
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl EventView {
    pub(crate) fn of(recorded: &Recorded) -> Self {
        let event = &recorded.event;
        let view = Self {
            number: recorded.number,
            at: timestamp(event.at).to_string(),
            lease: event.lease.to_string(),
            ..Self::default()
        };
        match &event.what {
            What::Granted { holder, token, ttl } => Self {
                event: "granted",
                holder: Some(holder.to_string()),
                token: Some(token.to_string()),
                ttl_ms: Some(millis(ttl.get())),
                ..view
            },
            What::Released { holder, token } => Self {
                event: "released",
                holder: Some(holder.to_string()),
                token: Some(token.to_string()),
                ..view
            },
            What::Expired { holder, token } => Self {
                event: "expired",
                holder: Some(holder.to_string()),
                token: Some(token.to_string()),
                ..view
            },
            What::Lost { token, why } => Self {
                event: "lost",
                token: Some(token.to_string()),
                why: Some(why_lost(why)),
                ..view
            },
            What::Refused { target, why } => Self {
                event: "refused",
                target: Some(target.clone()),
                why: Some(why.to_string()),
                ..view
            },
            What::Forced { token } => Self {
                event: "forced",
                token: Some(token.to_string()),
                ..view
            },
            What::Quarantined { token } => Self {
                event: "quarantined",
                token: Some(token.to_string()),
                ..view
            },
        }
    }
}

/// A server, once it can be reached.
#[derive(Debug, Serialize)]
pub(crate) struct Serving<'a> {
    pub(crate) url: String,
    pub(crate) store: &'a str,
}

/// What became of a command, for programs.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Done<'a> {
    pub(crate) outcome: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lease: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ttl_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remaining_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) removed: Option<u64>,
}

/// Why a renewal was refused.
pub(crate) fn why_lost(why: &Lost) -> String {
    match why {
        Lost::Expired => "expired".to_owned(),
        Lost::Released => "was released".to_owned(),
        Lost::Taken {
            by: Some(by),
            token,
        } => format!("{by} has token {token}"),
        Lost::Taken { by: None, token } => format!("token {token} was burnt"),
        Lost::SeqMismatch => "renewed by a copy of its holder".to_owned(),
        Lost::Gone => "was never issued".to_owned(),
    }
}

/// A moment of the wall clock; far outside of what a calendar knows it is the epoch.
pub(crate) fn timestamp(at: WallTime) -> Timestamp {
    Timestamp::from_nanosecond(at.as_nanos().into()).unwrap_or_default()
}

/// Whole milliseconds, rounded down.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
