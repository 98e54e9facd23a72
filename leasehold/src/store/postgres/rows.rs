//! From rows of the server to the words of the core. What cannot be read is never taken for a grant.

use std::time::Duration;

use leasehold_core::{
    Answer, AttemptId, Done, Entry, Event, Fence, Fingerprint, Grant, Held, Holder, Info,
    LeaseName, Lost, NotBumped, Outcome, Refusal, State, Status, Token, Ttl, Value, Verdict,
    WallTime, What,
};
use serde_json::Value as Json;
use tokio_postgres::Row;

use super::{fault, sighting::Seen};
use crate::{StoreError, store::Recorded};

/// A row of the type `leasehold.answer`.
pub(super) fn answer(row: &Row) -> Result<Answer, StoreError> {
    let kind: Option<&str> = column(row, "answer")?;
    let hint = Duration::from_micros(number(row, "hint_us")?.unwrap_or(0));
    let ttl = || -> Result<Ttl, StoreError> { from_number(row, "ttl_ms", Ttl::from_millis) };
    let token = || -> Result<Token, StoreError> { from_number(row, "token", Token::new) };
    let holder = text(row, "holder", Holder::new)?;
    Ok(match kind.unwrap_or_default() {
        "granted" => Answer::Granted(Grant {
            token: token()?,
            ttl: ttl()?,
            waited: Duration::ZERO,
        }),
        "renewed" => Answer::Renewed { ttl: ttl()? },
        "released" => Answer::Released,
        "already_over" => Answer::AlreadyOver,
        "bumped" => Answer::Bumped { token: token()? },
        "held" => Answer::Held(Held {
            holder: holder.ok_or_else(|| unreadable("holder"))?,
            info: text(row, "info", Info::new)?,
            token: token()?,
            hint,
            yours: column::<Option<bool>>(row, "yours")?.unwrap_or(false),
        }),
        "delayed" => Answer::Delayed { hint },
        "quarantined" => Answer::Quarantined { hint },
        "already_used" => Answer::AlreadyUsed,
        "exhausted" => Answer::TokenExhausted,
        "expired" => Answer::Lost(Lost::Expired),
        "was_released" => Answer::Lost(Lost::Released),
        "seq_mismatch" => Answer::Lost(Lost::SeqMismatch),
        "gone" => Answer::Lost(Lost::Gone),
        "taken" => Answer::Lost(Lost::Taken {
            by: holder,
            token: token()?,
        }),
        "blocked" => {
            let who: Option<&str> = column(row, "holder")?;
            return Err(StoreError::BlockedBy {
                who: format!(
                    "a fenced transaction of the old holder, backend {}; it ends by its own timeout, or by \
                     SELECT pg_terminate_backend(pid)",
                    who.unwrap_or("unknown")
                ),
            });
        }
        "locked" => return Err(fault::unavailable("somebody has the lease's row locked")),
        other => return Err(unreadable(other)),
    })
}

/// How a lease that was not granted stood, if the answer tells.
pub(super) fn seen(row: &Row) -> Result<Option<(Seen, Duration)>, StoreError> {
    let (Some(token), Some(touches)) = (column(row, "token")?, column(row, "touches")?) else {
        return Ok(None);
    };
    let wait = Duration::from_millis(number(row, "wait_ms")?.unwrap_or(0));
    Ok(Some((Seen { token, touches }, wait)))
}

/// A row of `leasehold.try_bump`.
pub(super) fn bumped(row: &Row, above: Token) -> Result<Outcome, StoreError> {
    let time =
        |name| -> Result<WallTime, StoreError> { Ok(wall(row, name)?.unwrap_or(WallTime::ZERO)) };
    Ok(match column::<Option<&str>>(row, "why")? {
        None => Outcome::Done,
        Some("clock_behind") => Outcome::NotBumped(NotBumped::ClockBehind {
            wall: time("wall")?,
            newest: time("event")?,
        }),
        Some("too_large") => Outcome::NotBumped(NotBumped::TooLarge {
            above,
            most: number(row, "most")?.unwrap_or(0),
        }),
        Some("too_small") => Outcome::NotBumped(NotBumped::TooSmall {
            above,
            newest: from_number(row, "newest", Token::new)?,
        }),
        Some(other) => return Err(unreadable(other)),
    })
}

/// A row of the view `leasehold.status`.
pub(super) fn status(row: &Row) -> Result<Status, StoreError> {
    let state = match column::<&str>(row, "state")? {
        "free" => State::Free,
        "held" => State::Held,
        "delayed" => State::Delayed,
        "quarantined" => State::Quarantined,
        other => return Err(unreadable(other)),
    };
    Ok(Status {
        name: LeaseName::new(column(row, "name")?)?,
        state,
        token: number(row, "token")?.and_then(|number| Token::new(number).ok()),
        holder: text(row, "holder", Holder::new)?,
        session_hash: number(row, "session_hash")?.and_then(|hash| u32::try_from(hash).ok()),
        released: column(row, "released")?,
        info: text(row, "info", Info::new)?,
        ttl: from_number(row, "ttl_ms", Ttl::from_millis)?,
        since: number(row, "since_us")?.map(Duration::from_micros),
        remaining: match state {
            State::Free => Duration::ZERO,
            _ => Duration::from_micros(number(row, "remaining_us")?.unwrap_or(0)),
        },
        renewals: number(row, "renewals")?.unwrap_or(0),
    })
}

/// A row of `leasehold.verdict`, flattened by [`VERDICT`].
pub(super) fn verdict(row: &Row) -> Result<Verdict, StoreError> {
    let entry = || -> Result<Entry, StoreError> { entry(row)?.ok_or_else(|| unreadable("entry")) };
    Ok(
        match column::<Option<&str>>(row, "verdict")?.unwrap_or_default() {
            "begun" => Verdict::Begun,
            "resumed" => Verdict::Resumed,
            "took_over" => Verdict::TookOver {
                from: entry()?.token,
            },
            "already_done" => Verdict::AlreadyDone(entry()?),
            "in_progress" => Verdict::InProgress,
            "not_begun" => Verdict::NotBegun,
            "left_unfinished" => Verdict::LeftUnfinished(entry()?),
            "mismatch" => Verdict::Mismatch,
            "too_old" => Verdict::TooOld {
                kept_from: wall(row, "kept_from")?.unwrap_or(WallTime::ZERO),
            },
            "completed" => Verdict::Completed,
            "abandoned" => Verdict::Abandoned,
            "refused" => Verdict::Refused(refusal(row)?),
            other => return Err(unreadable(other)),
        },
    )
}

/// The columns that [`verdict`] and [`entry`] read; times as microseconds since 1970.
pub(super) const VERDICT: &str = "v.verdict, (v.refusal).kind AS kind, (v.refusal).token AS refused, \
     (v.refusal).highest AS highest, (v.refusal).lease AS lease, leasehold.micros(v.kept_from) AS kept_from, \
     (v.entry).token AS token, (v.entry).attempt::text AS attempt, (v.entry).holder AS holder, \
     (v.entry).fingerprint AS fingerprint, leasehold.micros((v.entry).begun_at) AS begun_at, \
     leasehold.micros((v.entry).done_at) AS done_at, (v.entry).response AS response";

/// The columns of a ledger line, for [`entry`].
pub(super) const ENTRY: &str = "token, attempt::text AS attempt, holder, fingerprint, \
     leasehold.micros(begun_at) AS begun_at, leasehold.micros(done_at) AS done_at, response";

pub(super) fn entry(row: &Row) -> Result<Option<Entry>, StoreError> {
    let Some(token) = number(row, "token")? else {
        return Ok(None);
    };
    let attempt: &str = column(row, "attempt")?;
    let fingerprint: &[u8] = column(row, "fingerprint")?;
    let response: Option<&[u8]> = column(row, "response")?;
    Ok(Some(Entry {
        token: Token::new(token)?,
        attempt: attempt.replace('-', "").parse::<AttemptId>()?,
        holder: Holder::new(column(row, "holder")?)?,
        fingerprint: Fingerprint(
            fingerprint
                .try_into()
                .map_err(|_| unreadable("fingerprint"))?,
        ),
        begun: wall(row, "begun_at")?.unwrap_or(WallTime::ZERO),
        done: match (wall(row, "done_at")?, response) {
            (Some(at), response) => Some(Done {
                at,
                response: Value::new(response.unwrap_or_default())?,
            }),
            (None, _) => None,
        },
    }))
}

pub(super) fn fence(row: &Row) -> Result<Fence, StoreError> {
    Ok(Fence {
        lease: LeaseName::new(column(row, "lease")?)?,
        highest: from_number(row, "token", Token::new)?,
    })
}

/// The columns of a `leasehold.refusal`, with its token as `refused`.
pub(super) fn refusal(row: &Row) -> Result<Refusal, StoreError> {
    let token = || from_number(row, "refused", Token::new);
    let highest = || from_number(row, "highest", Token::new);
    Ok(
        match column::<Option<&str>>(row, "kind")?.unwrap_or_default() {
            "stale" => Refusal::Stale {
                token: token()?,
                highest: highest()?,
            },
            "expired" => Refusal::Expired { token: token()? },
            "released" => Refusal::Released { token: token()? },
            // A token from before a failover that nobody has confirmed is none yet (F14b).
            "never_issued" | "not_confirmed" => Refusal::NeverIssued { token: token()? },
            "not_raised" => Refusal::NotRaised {
                token: token()?,
                highest: highest()?,
            },
            "too_far" => Refusal::TooFar {
                token: token()?,
                highest: highest()?,
            },
            "other_lease" => Refusal::OtherLease {
                by: LeaseName::new(column(row, "lease")?)?,
            },
            other => return Err(unreadable(other)),
        },
    )
}

/// An event; `what` is the JSON that the core's own events have.
pub(super) fn recorded(row: &Row) -> Result<Recorded, StoreError> {
    let what: &str = column(row, "what")?;
    let json: Json = serde_json::from_str(what).map_err(|_| unreadable("event"))?;
    Ok(Recorded {
        number: number(row, "number")?.unwrap_or(0),
        event: Event {
            at: wall(row, "at")?.unwrap_or(WallTime::ZERO),
            lease: LeaseName::new(column(row, "name")?)?,
            what: serde_json::from_value::<What>(json)
                .map_err(|error| unreadable(&error.to_string()))?,
        },
    })
}

/// One column, or an error: never a default for what is not there.
pub(super) fn column<'a, T: tokio_postgres::types::FromSql<'a>>(
    row: &'a Row,
    name: &str,
) -> Result<T, StoreError> {
    row.try_get(name)
        .map_err(|error| unreadable(&format!("{name}: {error}")))
}

fn number(row: &Row, name: &str) -> Result<Option<u64>, StoreError> {
    let number: Option<i64> = column(row, name)?;
    Ok(number.map(|number| u64::try_from(number).unwrap_or(0)))
}

fn wall(row: &Row, name: &str) -> Result<Option<WallTime>, StoreError> {
    Ok(number(row, name)?.map(|micros| WallTime::from_nanos(micros.saturating_mul(1000))))
}

fn from_number<T>(
    row: &Row,
    name: &str,
    make: impl Fn(u64) -> Result<T, leasehold_core::Invalid>,
) -> Result<T, StoreError> {
    number(row, name)?
        .and_then(|number| make(number).ok())
        .ok_or_else(|| unreadable(name))
}

fn text<T>(
    row: &Row,
    name: &str,
    make: impl Fn(&str) -> Result<T, leasehold_core::Invalid>,
) -> Result<Option<T>, StoreError> {
    Ok(column::<Option<&str>>(row, name)?.map(make).transpose()?)
}

/// The server did something, but we cannot tell what.
fn unreadable(what: &str) -> StoreError {
    fault::unknown(format!("the server's answer cannot be read ({what})"))
}
