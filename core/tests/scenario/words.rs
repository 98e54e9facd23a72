//! Answers of the store in words for people.

use std::time::Duration;

use leasehold_core::{
    Answer, Entry, Event, Lost, Outcome, Pair, State, Status, StoreTime, Verdict, What,
};

pub(crate) fn outcome(outcome: &Outcome, until: Option<StoreTime>) -> String {
    match outcome {
        Outcome::Lease(answer) => self::answer(answer, until.unwrap_or_default()),
        Outcome::Done => "ok".into(),
        Outcome::Refused(refusal) => format!("refused: {refusal}"),
        Outcome::Ledger(verdict) => self::verdict(verdict),
        Outcome::NotBumped(why) => format!("not bumped: {why}"),
    }
}

fn answer(answer: &Answer, until: StoreTime) -> String {
    let until = span(until.since(StoreTime::ZERO));
    match answer {
        Answer::Granted(grant) => format!("granted token={} until={until}", grant.token),
        Answer::Renewed { .. } => format!("renewed until={until}"),
        Answer::Released => "released".into(),
        Answer::Bumped { token } => format!("taken away, token={token} is burnt"),
        Answer::AlreadyOver => "already over".into(),
        Answer::Held(held) => {
            let yours = if held.yours {
                ", by yourself under another request"
            } else {
                ""
            };
            let info = held
                .info
                .as_ref()
                .map_or(String::new(), |info| format!(" ({info})"));
            let (holder, token, hint) = (&held.holder, held.token, span(held.hint));
            format!("held by {holder}{info} token={token} for={hint}{yours}")
        }
        Answer::Delayed { hint } => format!("delayed for={}", span(*hint)),
        Answer::Quarantined { hint } => format!("quarantined for={}", span(*hint)),
        Answer::AlreadyUsed => "already used: ask with a new request".into(),
        Answer::Lost(why) => format!("lost: {}", lost(why)),
        Answer::TokenExhausted => "token exhausted".into(),
    }
}

fn lost(why: &Lost) -> String {
    match why {
        Lost::Expired => "expired".into(),
        Lost::Taken {
            by: Some(by),
            token,
        } => format!("taken by {by} token={token}"),
        Lost::Taken { by: None, token } => format!("taken by nobody token={token}"),
        Lost::Released => "released".into(),
        Lost::SeqMismatch => "somebody else renews".into(),
        Lost::Gone => "no such token is known".into(),
    }
}

fn verdict(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Begun => "begun".into(),
        Verdict::Resumed => "resumed".into(),
        Verdict::TookOver { from } => format!("took over from token={from}"),
        Verdict::AlreadyDone(entry) => format!("already done {}", self::entry(entry)),
        Verdict::InProgress => "in progress".into(),
        Verdict::NotBegun => "not begun".into(),
        Verdict::LeftUnfinished(entry) => format!("left unfinished {}", self::entry(entry)),
        Verdict::Mismatch => "mismatch: the key was used for something else".into(),
        Verdict::TooOld { .. } => "too old: the ledger does not remember so far back".into(),
        Verdict::Completed => "completed".into(),
        Verdict::Abandoned => "abandoned".into(),
        Verdict::Refused(refusal) => format!("refused: {refusal}"),
    }
}

fn entry(entry: &Entry) -> String {
    let done = entry.done.as_ref().map_or(String::new(), |done| {
        format!(": {}", String::from_utf8_lossy(done.response.as_bytes()))
    });
    format!("by {} token={}{done}", entry.holder, entry.token)
}

pub(crate) fn status(status: &Status) -> String {
    let state = match status.state {
        State::Free => "free".to_owned(),
        State::Held => format!("held for={}", span(status.remaining)),
        State::Delayed => format!("delayed for={}", span(status.remaining)),
        State::Quarantined => format!("quarantined for={}", span(status.remaining)),
    };
    let token = status
        .token
        .map_or(String::new(), |token| format!(" token={token}"));
    let holder = status
        .holder
        .as_ref()
        .map_or(String::new(), |by| format!(" by={by}"));
    format!("{}: {state}{token}{holder}", status.name)
}

pub(crate) fn pair(pair: &Pair) -> String {
    let value = String::from_utf8_lossy(pair.value.as_bytes());
    match &pair.fence {
        Some(proof) => format!("{value} (fenced by {} token={})", proof.lease, proof.token),
        None => value.into_owned(),
    }
}

pub(crate) fn event(event: &Event) -> String {
    let what = match &event.what {
        What::Granted { holder, token, ttl } => {
            format!("granted to {holder} token={token} ttl={}", span(ttl.get()))
        }
        What::Released { holder, token } => format!("released by {holder} token={token}"),
        What::Expired { holder, token } => format!("expired under {holder} token={token}"),
        What::Lost { token, why } => format!("lost token={token}: {}", lost(why)),
        What::Refused { target, why } => format!("refused to write {target}: {why}"),
        What::Forced { token } => format!("taken away by an operator, token={token} is burnt"),
        What::Quarantined { token } => format!("quarantined, token={token} is burnt"),
    };
    format!("{}: {what}", event.lease)
}

/// The largest unit that fits without a rest.
fn span(duration: Duration) -> String {
    let millis = duration.as_millis();
    let units = [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1_000, "s"),
    ];
    match units
        .into_iter()
        .find(|(unit, _)| millis > 0 && millis.is_multiple_of(*unit))
    {
        Some((unit, name)) => format!("{}{name}", millis / unit),
        None if millis == 0 => "0s".into(),
        None => format!("{millis}ms"),
    }
}
