//! What may be asked of a server, as JSON: one object for each [`Op`], told apart by `"op"`. Server and client share it.
//!
//! Durations are whole milliseconds, tokens and ids are strings. An unknown field is an error, never ignored.

use base64::{Engine, prelude::BASE64_STANDARD};
use leasehold_core::{
    self as core, AttemptId, Command, Fingerprint, Holder, Info, Key, LeaseName, LockDelay, Op,
    Proof, RenewId, RequestId, Resource, Session, Token, Ttl, Value, WallTime, Work, WorkKey,
};
use serde::{Deserialize, Serialize};

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
#[allow(
    missing_docs,
    reason = "each is the operation of the same name in the core"
)]
pub enum Ask {
    Acquire(Acquire),
    Renew(Renew),
    Release(Release),
    ForceRelease(ForceRelease),
    Quarantine(Quarantine),
    Put(Put),
    Delete(Delete),
    Raise(Raise),
    Begin(Begin),
    Complete(Complete),
    Abandon(Abandon),
    Bump(Bump),
}

macro_rules! fields {
    ($(#[$doc:meta])* $name:ident { $($(#[$attr:meta])* $field:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        #[allow(missing_docs, reason = "the fields are those of the core's command")]
        pub struct $name { $($(#[$attr])* pub $field: $type),* }
    };
}

fields! {
    /// See [`core::Acquire`].
    Acquire {
        lease: LeaseName,
        session: Session,
        request_id: RequestId,
        holder: Holder,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        info: Option<Info>,
        #[serde(default = "default_ttl")]
        ttl_ms: Ttl,
        #[serde(default)]
        lock_delay_ms: LockDelay,
    }
}
fields! {
    /// See [`core::Renew`].
    Renew {
        lease: LeaseName,
        token: Token,
        session: Session,
        #[serde(default = "default_ttl")]
        ttl_ms: Ttl,
        number: u64,
        renew_id: RenewId,
    }
}
fields! {
    /// By `token`, or by the `request_id` of the acquire whose answer never came; see [`core::Release`].
    Release {
        lease: LeaseName,
        session: Session,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<Token>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request_id: Option<RequestId>,
    }
}
fields! {
    /// See [`Command::ForceRelease`].
    ForceRelease {
        lease: LeaseName,
        #[serde(default)]
        now: bool,
    }
}
fields! {
    /// See [`Command::Quarantine`].
    Quarantine { lease: LeaseName, above: Token }
}
fields! {
    /// See [`Op::Put`]. The bytes are `value`, or `value_base64` if they are no text.
    Put {
        key: Key,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value_base64: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fence: Option<Shown>,
    }
}
fields! {
    /// See [`Op::Delete`].
    Delete {
        key: Key,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fence: Option<Shown>,
    }
}
fields! {
    /// The lease and the token that a fenced write shows.
    Shown { lease: LeaseName, token: Token }
}
fields! {
    /// See [`Op::Raise`].
    Raise { resource: Resource, lease: LeaseName, token: Token }
}
fields! {
    /// See [`core::Begin`]. `fingerprint` is 64 hex digits, `born_ms` the unix time of the request.
    Begin {
        lease: LeaseName,
        key: WorkKey,
        token: Token,
        attempt: AttemptId,
        holder: Holder,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fingerprint: Option<String>,
        #[serde(default)]
        unfinished: Unfinished,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        born_ms: Option<u64>,
    }
}
fields! {
    /// See [`core::Complete`]. The bytes to replay are `response`, or `response_base64`; neither means none.
    Complete {
        lease: LeaseName,
        key: WorkKey,
        token: Token,
        attempt: AttemptId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        response: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        response_base64: Option<String>,
    }
}
fields! {
    /// See [`core::Abandon`].
    Abandon { lease: LeaseName, key: WorkKey, token: Token, attempt: AttemptId }
}
fields! {
    /// See [`Op::Bump`].
    Bump { above: Token }
}

/// See [`core::Unfinished`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the core's words")]
pub enum Unfinished {
    #[default]
    TakeOver,
    Leave,
}

fn default_ttl() -> Ttl {
    Ttl::DEFAULT
}

/// What the core is asked. The error says what is wrong with the request.
impl TryFrom<Ask> for Op {
    type Error = String;

    fn try_from(ask: Ask) -> Result<Op, String> {
        let lease = |name, command| Ok(Op::Lease { name, command });
        match ask {
            Ask::Acquire(ask) => lease(
                ask.lease,
                Command::Acquire(core::Acquire {
                    session: ask.session,
                    request_id: ask.request_id,
                    holder: ask.holder,
                    info: ask.info,
                    ttl: ask.ttl_ms,
                    lock_delay: ask.lock_delay_ms,
                }),
            ),
            Ask::Renew(ask) => lease(
                ask.lease,
                Command::Renew(core::Renew {
                    token: ask.token,
                    session: ask.session,
                    ttl: ask.ttl_ms,
                    number: ask.number,
                    renew_id: ask.renew_id,
                }),
            ),
            Ask::Release(ask) => {
                let command = Command::Release(release(ask.session, ask.token, ask.request_id)?);
                lease(ask.lease, command)
            }
            Ask::ForceRelease(ask) => lease(ask.lease, Command::ForceRelease { now: ask.now }),
            Ask::Quarantine(ask) => lease(ask.lease, Command::Quarantine { above: ask.above }),
            Ask::Put(ask) => Ok(Op::Put {
                key: ask.key,
                value: bytes("value", ask.value, ask.value_base64)?
                    .ok_or("\"value\" is missing: give the text, or \"value_base64\"")?,
                proof: ask.fence.map(Proof::from),
            }),
            Ask::Delete(ask) => Ok(Op::Delete {
                key: ask.key,
                proof: ask.fence.map(Proof::from),
            }),
            Ask::Raise(ask) => Ok(Op::Raise {
                resource: ask.resource,
                proof: Proof {
                    lease: ask.lease,
                    token: ask.token,
                },
            }),
            ask => ledger(ask),
        }
    }
}

fn ledger(ask: Ask) -> Result<Op, String> {
    Ok(match ask {
        Ask::Begin(ask) => Op::Begin(core::Begin {
            work: Work {
                lease: ask.lease,
                key: ask.key,
            },
            token: ask.token,
            attempt: ask.attempt,
            holder: ask.holder,
            fingerprint: match ask.fingerprint {
                Some(text) => fingerprint(&text)?,
                None => Fingerprint::default(),
            },
            unfinished: match ask.unfinished {
                Unfinished::TakeOver => core::Unfinished::TakeOver,
                Unfinished::Leave => core::Unfinished::Leave,
            },
            born: ask.born_ms.map(from_millis),
        }),
        Ask::Complete(ask) => Op::Complete(core::Complete {
            work: Work {
                lease: ask.lease,
                key: ask.key,
            },
            token: ask.token,
            attempt: ask.attempt,
            response: match bytes("response", ask.response, ask.response_base64)? {
                Some(response) => response,
                None => Value::new(b"").map_err(|error| error.to_string())?,
            },
        }),
        Ask::Abandon(ask) => Op::Abandon(core::Abandon {
            work: Work {
                lease: ask.lease,
                key: ask.key,
            },
            token: ask.token,
            attempt: ask.attempt,
        }),
        Ask::Bump(ask) => Op::Bump { above: ask.above },
        _ => return Err("\"op\" is not one of the ledger's".to_owned()),
    })
}

impl From<Op> for Ask {
    fn from(op: Op) -> Ask {
        match op {
            Op::Lease { name, command } => of_command(name, command),
            Op::Put { key, value, proof } => {
                let (value, value_base64) = text(&value);
                let fence = proof.map(Shown::from);
                Ask::Put(Put {
                    key,
                    value,
                    value_base64,
                    fence,
                })
            }
            Op::Delete { key, proof } => Ask::Delete(Delete {
                key,
                fence: proof.map(Shown::from),
            }),
            Op::Raise {
                resource,
                proof: Proof { lease, token },
            } => Ask::Raise(Raise {
                resource,
                lease,
                token,
            }),
            Op::Begin(op) => Ask::Begin(Begin {
                lease: op.work.lease,
                key: op.work.key,
                token: op.token,
                attempt: op.attempt,
                holder: op.holder,
                fingerprint: Some(hex(&op.fingerprint)),
                unfinished: match op.unfinished {
                    core::Unfinished::TakeOver => Unfinished::TakeOver,
                    core::Unfinished::Leave => Unfinished::Leave,
                },
                born_ms: op.born.map(WallTime::as_millis),
            }),
            Op::Complete(op) => {
                let (response, response_base64) = text(&op.response);
                Ask::Complete(Complete {
                    lease: op.work.lease,
                    key: op.work.key,
                    token: op.token,
                    attempt: op.attempt,
                    response,
                    response_base64,
                })
            }
            Op::Abandon(op) => Ask::Abandon(Abandon {
                lease: op.work.lease,
                key: op.work.key,
                token: op.token,
                attempt: op.attempt,
            }),
            Op::Bump { above } => Ask::Bump(Bump { above }),
        }
    }
}

fn of_command(lease: LeaseName, command: Command) -> Ask {
    match command {
        Command::Acquire(command) => Ask::Acquire(Acquire {
            lease,
            session: command.session,
            request_id: command.request_id,
            holder: command.holder,
            info: command.info,
            ttl_ms: command.ttl,
            lock_delay_ms: command.lock_delay,
        }),
        Command::Renew(command) => Ask::Renew(Renew {
            lease,
            token: command.token,
            session: command.session,
            ttl_ms: command.ttl,
            number: command.number,
            renew_id: command.renew_id,
        }),
        Command::Release(command) => {
            let (session, token, request_id) = match command {
                core::Release::Tenure { token, session } => (session, Some(token), None),
                core::Release::Request {
                    session,
                    request_id,
                } => (session, None, Some(request_id)),
            };
            Ask::Release(Release {
                lease,
                session,
                token,
                request_id,
            })
        }
        Command::ForceRelease { now } => Ask::ForceRelease(ForceRelease { lease, now }),
        Command::Quarantine { above } => Ask::Quarantine(Quarantine { lease, above }),
    }
}

impl From<Shown> for Proof {
    fn from(Shown { lease, token }: Shown) -> Self {
        Proof { lease, token }
    }
}

impl From<Proof> for Shown {
    fn from(Proof { lease, token }: Proof) -> Self {
        Shown { lease, token }
    }
}

fn release(
    session: Session,
    token: Option<Token>,
    request_id: Option<RequestId>,
) -> Result<core::Release, String> {
    match (token, request_id) {
        (Some(token), None) => Ok(core::Release::Tenure { token, session }),
        (None, Some(request_id)) => Ok(core::Release::Request {
            session,
            request_id,
        }),
        _ => {
            Err("a release names either \"token\", or the \"request_id\" of its acquire".to_owned())
        }
    }
}

/// Text if the bytes are text, else base64.
pub(super) fn text(value: &Value) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(BASE64_STANDARD.encode(value.as_bytes()))),
    }
}

/// What [`text`] wrote.
pub(super) fn bytes(
    what: &str,
    text: Option<String>,
    base64: Option<String>,
) -> Result<Option<Value>, String> {
    let bytes = match (text, base64) {
        (None, None) => return Ok(None),
        (Some(text), None) => text.into_bytes(),
        (None, Some(coded)) => BASE64_STANDARD
            .decode(coded)
            .map_err(|error| format!("\"{what}_base64\" is not base64: {error}"))?,
        (Some(_), Some(_)) => {
            return Err(format!("give \"{what}\" or \"{what}_base64\", not both"));
        }
    };
    Value::new(&bytes)
        .map(Some)
        .map_err(|error| error.to_string())
}

/// A moment of the wall clock; beyond what it can hold is its end.
pub(super) fn from_millis(millis: u64) -> WallTime {
    WallTime::from_nanos(millis.saturating_mul(1_000_000))
}

pub(super) fn hex(fingerprint: &Fingerprint) -> String {
    fingerprint
        .0
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

pub(super) fn fingerprint(text: &str) -> Result<Fingerprint, String> {
    let bad = || "\"fingerprint\" is 64 hex digits".to_owned();
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(bad());
    }
    let mut bytes = [0; 32];
    for (place, byte) in bytes.iter_mut().enumerate() {
        let digits = text.get(place * 2..place * 2 + 2).ok_or_else(bad)?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_| bad())?;
    }
    Ok(Fingerprint(bytes))
}
