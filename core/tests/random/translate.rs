//! From plain data to the types of the rules, and from their answers back to plain data.

use std::time::Duration;

use leasehold_core::{
    Abandon, Acquire, Answer, AttemptId, Begin, Command, Complete, Entry, Fingerprint, Holder, Key,
    LeaseName, LockDelay, Lost, NotBumped, Op, Outcome, Proof, Refusal, Release, Renew, RenewId,
    RequestId, Resource, Session, Token, Ttl, Unfinished, Value, Verdict, WallTime, WorkKey,
};

use super::{Ask, Said};

pub(crate) fn name(lease: u8) -> LeaseName {
    LeaseName::new(&format!("lease-{lease}")).unwrap()
}

pub(crate) fn key(key: u8) -> Key {
    Key::new(&format!("key-{key}")).unwrap()
}

pub(crate) fn place(place: u8) -> Resource {
    Resource::new(&format!("place-{place}")).unwrap()
}

pub(crate) fn work((lease, work): super::Work) -> leasehold_core::Work {
    leasehold_core::Work {
        lease: name(lease),
        key: WorkKey::new(&format!("work-{work}")).unwrap(),
    }
}

/// Two sessions share each holder name.
fn holder(session: u64) -> Holder {
    Holder::new(&format!("holder-{}", session % 2)).unwrap()
}

fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

fn ttl(ms: u64) -> Ttl {
    Ttl::from_millis(ms).unwrap()
}

fn proof(proof: Option<(u8, u64)>) -> Option<Proof> {
    proof.map(|(lease, number)| Proof {
        lease: name(lease),
        token: token(number),
    })
}

macro_rules! id {
    ($kind:ident, $number:expr) => {
        $kind::from_bits(u128::from($number)).unwrap()
    };
}

pub(crate) fn op(ask: &Ask) -> Op {
    match *ask {
        Ask::Put {
            key: k,
            value,
            proof: p,
        } => Op::Put {
            key: key(k),
            value: Value::new(&[value]).unwrap(),
            proof: proof(p),
        },
        Ask::Delete { key: k, proof: p } => Op::Delete {
            key: key(k),
            proof: proof(p),
        },
        Ask::Raise {
            place: p,
            lease,
            token: number,
        } => Op::Raise {
            resource: place(p),
            proof: Proof {
                lease: name(lease),
                token: token(number),
            },
        },
        Ask::Begin {
            work: w,
            token: number,
            attempt,
            session,
            what,
            leave,
            born,
        } => Op::Begin(Begin {
            work: work(w),
            token: token(number),
            attempt: id!(AttemptId, attempt),
            holder: holder(session),
            fingerprint: Fingerprint([what; 32]),
            unfinished: if leave {
                Unfinished::Leave
            } else {
                Unfinished::TakeOver
            },
            born: born.map(|ms| WallTime::from_nanos(ms * 1_000_000)),
        }),
        Ask::Complete {
            work: w,
            token: number,
            attempt,
            value,
        } => Op::Complete(Complete {
            work: work(w),
            token: token(number),
            attempt: id!(AttemptId, attempt),
            response: Value::new(&[value]).unwrap(),
        }),
        Ask::Abandon {
            work: w,
            token: number,
            attempt,
        } => Op::Abandon(Abandon {
            work: work(w),
            token: token(number),
            attempt: id!(AttemptId, attempt),
        }),
        Ask::Bump { above } => Op::Bump {
            above: token(above),
        },
        Ask::Acquire { lease, .. }
        | Ask::Renew { lease, .. }
        | Ask::Release { lease, .. }
        | Ask::Cancel { lease, .. }
        | Ask::Force { lease, .. }
        | Ask::Quarantine { lease, .. } => Op::Lease {
            name: name(lease),
            command: command(ask),
        },
    }
}

fn command(ask: &Ask) -> Command {
    match *ask {
        Ask::Acquire {
            session,
            request,
            ttl: ms,
            delay,
            ..
        } => Command::Acquire(Acquire {
            session: id!(Session, session),
            request_id: id!(RequestId, request),
            holder: holder(session),
            info: None,
            ttl: ttl(ms),
            lock_delay: LockDelay::new(Duration::from_millis(delay)).unwrap(),
        }),
        Ask::Renew {
            token: of,
            session,
            number,
            id,
            ttl: ms,
            ..
        } => Command::Renew(Renew {
            token: token(of),
            session: id!(Session, session),
            ttl: ttl(ms),
            number,
            renew_id: id!(RenewId, id),
        }),
        Ask::Release {
            token: of, session, ..
        } => Command::Release(Release::Tenure {
            token: token(of),
            session: id!(Session, session),
        }),
        Ask::Cancel {
            session, request, ..
        } => Command::Release(Release::Request {
            session: id!(Session, session),
            request_id: id!(RequestId, request),
        }),
        Ask::Force { now, .. } => Command::ForceRelease { now },
        Ask::Quarantine { above, .. } => Command::Quarantine {
            above: token(above),
        },
        _ => unreachable!("only commands to one lease come here"),
    }
}

pub(crate) fn said(outcome: &Outcome) -> Said {
    match outcome {
        Outcome::Lease(answer) => answered(answer),
        Outcome::Done => Said::Done,
        Outcome::Refused(refusal) => refused(refusal),
        Outcome::Ledger(verdict) => judged(verdict),
        Outcome::NotBumped(NotBumped::TooSmall { newest, .. }) => Said::TooSmall(newest.get()),
        Outcome::NotBumped(NotBumped::TooLarge { most, .. }) => Said::TooLarge(*most),
        Outcome::NotBumped(NotBumped::ClockBehind { .. }) => {
            unreachable!("the wall clock of these histories never steps back")
        }
    }
}

fn answered(answer: &Answer) -> Said {
    match answer {
        Answer::Granted(grant) => Said::Granted(grant.token.get()),
        Answer::Renewed { .. } => Said::Renewed,
        Answer::Released => Said::Released,
        Answer::Bumped { token } => Said::Bumped(token.get()),
        Answer::AlreadyOver => Said::Over,
        Answer::Held(held) => Said::Held {
            by: number(held.holder.as_str()),
            token: held.token.get(),
            hint: held.hint.as_millis() as u64,
            yours: held.yours,
        },
        Answer::Delayed { hint } => Said::Delayed(hint.as_millis() as u64),
        Answer::Quarantined { hint } => Said::Quarantined(hint.as_millis() as u64),
        Answer::AlreadyUsed => Said::Used,
        Answer::TokenExhausted => Said::Exhausted,
        Answer::Lost(Lost::Expired) => Said::LostExpired,
        Answer::Lost(Lost::Taken { by, token }) => Said::LostTaken {
            by: by.as_ref().map(|by| number(by.as_str())),
            token: token.get(),
        },
        Answer::Lost(Lost::Released) => Said::LostReleased,
        Answer::Lost(Lost::SeqMismatch) => Said::LostSequence,
        Answer::Lost(Lost::Gone) => Said::LostGone,
    }
}

fn refused(refusal: &Refusal) -> Said {
    match refusal {
        Refusal::Stale { token, highest } => Said::Stale {
            token: token.get(),
            highest: highest.get(),
        },
        Refusal::Expired { token } => Said::Expired(token.get()),
        Refusal::Released { token } => Said::WasReleased(token.get()),
        Refusal::NeverIssued { token } => Said::NeverIssued(token.get()),
        Refusal::Fenced { by, .. } => Said::Fenced(number(by.as_str()) as u8),
        Refusal::OtherLease { by } => Said::OtherLease(number(by.as_str()) as u8),
        Refusal::NotRaised { .. } | Refusal::TooFar { .. } => {
            unreachable!("only a receiver outside the store says {refusal}")
        }
    }
}

fn judged(verdict: &Verdict) -> Said {
    let by = |entry: &Entry| (entry.token.get(), number(entry.holder.as_str()));
    match verdict {
        Verdict::Begun => Said::Begun,
        Verdict::Resumed => Said::Resumed,
        Verdict::TookOver { from } => Said::TookOver(from.get()),
        Verdict::AlreadyDone(entry) => {
            let (token, by) = by(entry);
            let value = entry.done.as_ref().unwrap().response.as_bytes()[0];
            Said::AlreadyDone { token, by, value }
        }
        Verdict::InProgress => Said::InProgress,
        Verdict::NotBegun => Said::NotBegun,
        Verdict::LeftUnfinished(entry) => {
            let (token, by) = by(entry);
            Said::LeftUnfinished { token, by }
        }
        Verdict::Mismatch => Said::Mismatch,
        Verdict::TooOld { kept_from } => Said::TooOld(kept_from.as_millis()),
        Verdict::Completed => Said::Completed,
        Verdict::Abandoned => Said::Abandoned,
        Verdict::Refused(refusal) => refused(refusal),
    }
}

/// `lease-7` is 7.
fn number(text: &str) -> u64 {
    text.rsplit_once('-').unwrap().1.parse().unwrap()
}
