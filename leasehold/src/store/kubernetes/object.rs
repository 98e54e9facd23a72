//! A Lease object as a record of the rules, and back. Pure: what came from the API server and the time go in, what to
//! send comes out. Nothing in a Lease is trusted: anybody with the right to update it may have written it.
//!
//! What the rules need stands in the annotation `leasehold/record`. It counts only while it names this object and the
//! holder in `spec`: client-go keeps our annotations when it takes a Lease over (A6).

use std::time::Duration;

use aws_lc_rs::digest;
use jiff::{SignedDuration, Timestamp};
use kube::api::DynamicObject;
use leasehold_core::{
    Acquire, Command, Holder, Info, LockDelay, Record, Release, Renew, RenewId, RequestId, Session,
    StoreTime, Tenure, Token, Ttl,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{address::Source, fault};
use crate::StoreError;

/// For people, policies and fences: the token of the last grant.
pub(super) const TOKEN: &str = "leasehold/token";
/// For the rules.
pub(super) const RECORD: &str = "leasehold/record";
/// Nobody holds and nobody may yet. client-go waits for a holder of this name as for any other.
const NOBODY: &str = "leasehold:nobody";
/// A stranger's duration counts up to here (A16, FB-45).
const MOST_FOREIGN: Duration = Duration::from_secs(3600);
/// What a holder without a duration gets.
const NO_DURATION: Duration = Duration::from_secs(15);

/// The annotation.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    /// The object that it was written to; a copy of it is not it.
    uid: String,
    /// Who `spec` named then; empty after a release.
    identity: String,
    source: String,
    token: Token,
    /// The largest ttl that may still run, in seconds.
    promise: u32,
    ttl_ms: Ttl,
    tenure: Option<Held>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Held {
    /// A hash: the session is a key, and many may read a Lease (A21).
    session: Session,
    request: RequestId,
    holder: Holder,
    info: Option<Info>,
    released: bool,
    renewals: u64,
    renew: Option<RenewId>,
}

/// A Lease that came from the API server, understood.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) object: DynamicObject,
    pub(super) uid: String,
    pub(super) version: u64,
    /// Why nobody but its controller may take it (K10).
    pub(super) managed: Option<&'static str>,
    /// Somebody else's program holds it, and its token is not known.
    pub(super) foreign: bool,
    /// How long the holder may go on from the write that was seen, without the drift of clocks.
    pub(super) promise: Duration,
    note: Option<Note>,
    transitions: i64,
    holder: Option<Holder>,
}

impl Loaded {
    /// `Invalid` if its version is no number that can be a token (K4).
    pub(super) fn new(object: DynamicObject, source: Source) -> Result<Self, StoreError> {
        let text = object.metadata.resource_version.clone().unwrap_or_default();
        let version = decimal(&text).ok_or_else(|| {
            fault::invalid(format!(
                "resourceVersion {text:?} is no whole number below 2^63, so it cannot be a token: use token_source=transitions"
            ))
        })?;
        let uid = object.metadata.uid.clone().unwrap_or_default();
        let spec = object.data.get("spec").cloned().unwrap_or_default();
        let identity = spec["holderIdentity"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let annotations = object.metadata.annotations.as_ref();
        let text = annotations.and_then(|all| all.get(RECORD));
        let note = text
            .and_then(|text| serde_json::from_str::<Note>(text).ok())
            .filter(|note| note.uid == uid && note.identity == identity && !uid.is_empty());
        if let Some(note) = note.as_ref().filter(|note| note.source != word(source)) {
            return Err(fault::invalid(format!(
                "this Lease takes its tokens from {}, not from {}: never two ways for one lease (K5)",
                note.source,
                word(source)
            )));
        }
        let elected =
            annotations.is_some_and(|all| all.contains_key("coordination.k8s.io/elected-by"));
        let managed = match () {
            () if !spec["strategy"].is_null() => Some("it has a strategy"),
            () if !spec["preferredHolder"].is_null() => Some("it has a preferredHolder"),
            () if elected => Some("it is annotated coordination.k8s.io/elected-by"),
            () => None,
        };
        let foreign = note.is_none() && !identity.is_empty();
        let promise = match &note {
            Some(note) if !identity.is_empty() => Duration::from_secs(note.promise.into()),
            None if foreign => foreign_promise(&spec["leaseDurationSeconds"]),
            _ => Duration::ZERO,
        };
        let unreadable = || Holder::new("somebody with an unreadable name").ok();
        Ok(Self {
            uid,
            version,
            managed,
            foreign,
            promise: promise.min(Ttl::MAX.get()),
            transitions: spec["leaseTransitions"]
                .as_i64()
                .unwrap_or(0)
                .clamp(0, i32::MAX.into()),
            holder: foreign
                .then(|| Holder::new(&identity).ok().or_else(unreadable))
                .flatten(),
            note,
            object,
        })
    }

    /// How long it must have stood unchanged to be nobody's: two clocks may differ by a tenth (K1).
    pub(super) fn wait(&self) -> Duration {
        self.promise + self.promise / 10
    }

    /// As the rules see it, when this version of it was first seen at `since`.
    pub(super) fn record(&self, since: StoreTime, source: Source) -> Record {
        let expires = since.plus(self.wait());
        if let Some(note) = &self.note {
            let tenure = note.tenure.as_ref().map(|held| Tenure {
                session: held.session,
                request_id: held.request,
                holder: held.holder.clone(),
                info: held.info.clone(),
                granted: since,
                released: held.released,
                renewals: held.renewals,
                renew_id: held.renew,
            });
            let (token, ttl) = (Some(note.token), note.ttl_ms);
            return Record {
                token,
                expires,
                ttl,
                lock_delay: LockDelay::NONE,
                tenure,
            };
        }
        // Larger than every token issued before, smaller than the next one: good for comparing, never issued.
        let token = match source {
            Source::Version { offset } => self.version.saturating_add(offset).saturating_sub(1),
            Source::Transitions => self.transitions.unsigned_abs() + u64::from(self.foreign),
        };
        let tenure = self.holder.clone().map(|holder| Tenure {
            session: hashed(b"nobody's", 1),
            request_id: RequestId::from(std::num::NonZeroU128::MIN),
            info: Info::new("another program's: its token is not known").ok(),
            holder,
            granted: since,
            released: false,
            renewals: 0,
            renew_id: None,
        });
        let ttl = Ttl::new(self.promise).unwrap_or(Ttl::DEFAULT);
        Record {
            token: Token::new(token).ok(),
            expires,
            ttl,
            lock_delay: LockDelay::NONE,
            tenure,
        }
    }

    /// What the next token must be larger than: so that it is the version which the acquiring write replaces (K5).
    pub(super) fn below_next(&self, known: Option<Token>, source: Source) -> Option<Token> {
        let number = match source {
            Source::Version { offset } => self.version.saturating_add(offset).saturating_sub(1),
            Source::Transitions => self.transitions.unsigned_abs() + 1,
        };
        let number = Token::new(number.min(Token::MAX.get())).ok();
        known.max(number)
    }

    /// The object that says `record`, to be sent in the place of the version that was seen. `since` and `now`: that an
    /// older promise is never cut (A2).
    pub(super) fn replaced(
        &self,
        record: &Record,
        source: Source,
        granted: bool,
        times: (StoreTime, StoreTime, Timestamp),
    ) -> Option<DynamicObject> {
        let (since, now, wall) = times;
        let token = record.token?;
        let tenure = record.tenure.as_ref();
        let free = tenure.map_or(now >= record.expires, |tenure| tenure.released);
        let older = since.plus(self.promise).since(now);
        // An operator takes away what still runs; a quarantine lasts a ttl of its own (T6).
        let longer = tenure.is_some() || record.expires > since.plus(self.wait());
        let promise = seconds(if longer {
            older.max(record.ttl.get())
        } else {
            older
        });
        let identity = match tenure {
            _ if free => String::new(),
            Some(tenure) => format!("{}_{:08x}", tenure.holder, tenure.session.fingerprint()),
            None => NOBODY.to_owned(),
        };
        let note = Note {
            uid: self.uid.clone(),
            identity: identity.clone(),
            source: word(source).to_owned(),
            token,
            promise,
            ttl_ms: record.ttl,
            tenure: tenure.map(|tenure| Held {
                session: tenure.session,
                request: tenure.request_id,
                holder: tenure.holder.clone(),
                info: tenure.info.clone(),
                released: tenure.released,
                renewals: tenure.renewals,
                renew: tenure.renew_id,
            }),
        };
        let mut object = self.object.clone();
        object.metadata.managed_fields = None;
        let annotations = object.metadata.annotations.get_or_insert_default();
        annotations.insert(TOKEN.to_owned(), token.to_string());
        annotations.insert(RECORD.to_owned(), serde_json::to_string(&note).ok()?);
        if !object.data.is_object() {
            object.data = Value::Object(Map::new());
        }
        let old = self.object.data["spec"].clone();
        let spec = &mut object.data["spec"];
        if !spec.is_object() {
            *spec = json!({});
        }
        let renewed = micros(wall, old["renewTime"].as_str());
        spec["holderIdentity"] = json!(identity);
        spec["leaseDurationSeconds"] = json!(if free { 1 } else { promise });
        spec["renewTime"] = json!(renewed);
        let burnt = granted || tenure.is_none();
        spec["leaseTransitions"] =
            json!((self.transitions + i64::from(burnt)).min(i32::MAX.into()));
        if granted {
            spec["acquireTime"] = json!(renewed);
        }
        Some(object)
    }

    /// How long ago, for people: by the wall clocks of two machines, which decide nothing (C2).
    pub(super) fn ago(&self, field: &str, wall: Timestamp) -> Option<Duration> {
        let then: Timestamp = self.object.data["spec"][field].as_str()?.parse().ok()?;
        Some(Duration::try_from(wall.duration_since(then)).unwrap_or_default())
    }

    /// No more tokens from the transitions, which are 32 bits (T9).
    pub(super) fn spent(&self, source: Source) -> bool {
        source == Source::Transitions && self.transitions >= i32::MAX.into()
    }
}

fn word(source: Source) -> &'static str {
    match source {
        Source::Version { .. } => "resourceVersion",
        Source::Transitions => "transitions",
    }
}

/// Decimal, no leading zero, below 2^63 (K4, A6).
fn decimal(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    let number = text.parse().ok().filter(|_| plain)?;
    (number <= Token::MAX.get()).then_some(number)
}

/// Negative, huge, missing or no number at all (FB-11, FB-45).
fn foreign_promise(value: &Value) -> Duration {
    match value.as_i64() {
        Some(seconds) if seconds > 0 => {
            Duration::from_secs(seconds.unsigned_abs()).min(MOST_FOREIGN)
        }
        _ => NO_DURATION,
    }
}

/// Rounded up: less would end before what was promised (K11, FB-48).
fn seconds(duration: Duration) -> u32 {
    let whole = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    u32::try_from(whole.max(1)).unwrap_or(u32::MAX)
}

/// Always another one than before: to client-go a Lease with the same times is dead (A6).
fn micros(wall: Timestamp, old: Option<&str>) -> String {
    let text = |at: Timestamp| at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let new = text(wall);
    if Some(new.as_str()) != old {
        return new;
    }
    wall.checked_add(SignedDuration::from_micros(1))
        .map_or(new, text)
}

/// The command with a hash in the place of the session.
pub(super) fn veiled(command: Command) -> Command {
    let veil = |session: Session| hashed(&session.bits().to_be_bytes(), 0);
    match command {
        Command::Acquire(asked) => Command::Acquire(Acquire {
            session: veil(asked.session),
            ..asked
        }),
        Command::Renew(asked) => Command::Renew(Renew {
            session: veil(asked.session),
            ..asked
        }),
        Command::Release(Release::Tenure { token, session }) => Command::Release(Release::Tenure {
            token,
            session: veil(session),
        }),
        Command::Release(Release::Request {
            session,
            request_id,
        }) => Command::Release(Release::Request {
            session: veil(session),
            request_id,
        }),
        other => other,
    }
}

fn hashed(bytes: &[u8], salt: u8) -> Session {
    let mut hash = digest::Context::new(&digest::SHA256);
    hash.update(b"leasehold session");
    hash.update(&[salt]);
    hash.update(bytes);
    let mut half = [0; 16];
    half.copy_from_slice(&hash.finish().as_ref()[..16]);
    Session::from(
        std::num::NonZeroU128::new(u128::from_be_bytes(half)).unwrap_or(std::num::NonZeroU128::MIN),
    )
}
