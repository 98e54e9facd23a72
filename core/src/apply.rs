//! How everything is done, for whatever rows a store has.
//!
//! [`apply`] is written once; a store brings its [`Rows`]: a map in memory, tables in SQLite, a replicated table. One
//! call is one atomic step: the store makes all that it wrote durable before it answers (L10), or nothing of it.

use alloc::{
    string::{String, ToString},
    vec::Vec,
};

use crate::{
    Answer, Command, Entry, Event, Fence, Key, LeaseName, NotBumped, Op, Outcome, Pair, Proof,
    Record, Refusal, Resource, Stamp, Token, Verdict, WallTime, What, Work,
    event::Before,
    fence,
    ledger::{self, Change},
    pair,
};

/// What a store keeps. All calls of one [`apply`] see and make one atomic step.
pub trait Rows {
    /// Why a row could not be read or written.
    type Error;

    /// The record of a lease.
    fn lease(&mut self, name: &LeaseName) -> Result<Option<Record>, Self::Error>;
    /// Keeps it.
    fn set_lease(&mut self, name: &LeaseName, record: Record) -> Result<(), Self::Error>;
    /// Lets `step` look at the record, a new one above the floor if there is none (T5), keeps what it made of it if it
    /// says so, and appends its events. Rows in memory do it with one look-up and no copy.
    fn with_lease<T>(
        &mut self,
        name: &LeaseName,
        step: impl FnOnce(&mut Record, &mut Vec<Event>) -> (T, Keep),
    ) -> Result<T, Self::Error> {
        let mut record = match self.lease(name)? {
            Some(record) => record,
            None => Record::new(self.floor()?),
        };
        let mut events = Vec::new();
        let (result, keep) = step(&mut record, &mut events);
        if keep == Keep::Changed {
            self.set_lease(name, record)?;
        }
        for event in events {
            self.event(event)?;
        }
        Ok(result)
    }
    /// The names of all records, sorted.
    fn lease_names(&mut self) -> Result<Vec<LeaseName>, Self::Error>;
    /// The largest token of any record that was collected, or of a bump (T5).
    fn floor(&mut self) -> Result<Option<Token>, Self::Error>;
    /// Keeps it.
    fn set_floor(&mut self, floor: Token) -> Result<(), Self::Error>;
    /// A pair.
    fn pair(&mut self, key: &Key) -> Result<Option<Pair>, Self::Error>;
    /// Keeps it, or removes it.
    fn set_pair(&mut self, key: &Key, pair: Option<Pair>) -> Result<(), Self::Error>;
    /// A receiver's fence.
    fn fence(&mut self, resource: &Resource) -> Result<Option<Fence>, Self::Error>;
    /// Keeps it.
    fn set_fence(&mut self, resource: &Resource, fence: Fence) -> Result<(), Self::Error>;
    /// A line of the ledger.
    fn entry(&mut self, work: &Work) -> Result<Option<Entry>, Self::Error>;
    /// Keeps it, or removes it.
    fn set_entry(&mut self, work: &Work, entry: Option<Entry>) -> Result<(), Self::Error>;
    /// Lines of the ledger older than this were pruned (I9).
    fn kept_from(&mut self) -> Result<WallTime, Self::Error>;
    /// When the newest event of the history happened; [`WallTime::ZERO`] if none did.
    fn newest_event(&mut self) -> Result<WallTime, Self::Error>;
    /// Appends to the history.
    fn event(&mut self, event: Event) -> Result<(), Self::Error>;
}

/// Whether a step made a record another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Keep the new one.
    Changed,
    /// It is as it was.
    Same,
}

/// Does one thing to the rows, at the time of `stamp`.
pub fn apply<R: Rows>(rows: &mut R, op: Op, stamp: Stamp) -> Result<Outcome, R::Error> {
    match op {
        Op::Lease { name, command } => {
            command_lease(rows, &name, command, stamp).map(Outcome::Lease)
        }
        Op::Put { key, value, proof } => {
            let pair = Pair {
                value,
                fence: proof.clone(),
            };
            write_pair(rows, &key, Some(pair), proof.as_ref(), stamp)
        }
        Op::Delete { key, proof } => write_pair(rows, &key, None, proof.as_ref(), stamp),
        Op::Raise { resource, proof } => raise(rows, &resource, proof, stamp),
        Op::Begin(asked) => {
            let issued = is_issued(rows, &asked.work.lease, asked.token, stamp)?;
            let (entry, kept_from) = (rows.entry(&asked.work)?, rows.kept_from()?);
            let work = asked.work.clone();
            let result = ledger::begin(entry, asked, issued, kept_from, stamp.wall);
            enter(rows, &work, result, stamp)
        }
        Op::Complete(asked) => {
            let (work, entry) = (asked.work.clone(), rows.entry(&asked.work)?);
            enter(
                rows,
                &work,
                ledger::complete(entry, asked, stamp.wall),
                stamp,
            )
        }
        Op::Abandon(asked) => {
            let entry = rows.entry(&asked.work)?;
            enter(rows, &asked.work, ledger::abandon(entry, &asked), stamp)
        }
        Op::Bump { above } => bump(rows, above, stamp),
    }
}

fn command_lease<R: Rows>(
    rows: &mut R,
    name: &LeaseName,
    command: Command,
    stamp: Stamp,
) -> Result<Answer, R::Error> {
    rows.with_lease(name, |record, events| {
        let before = Before::of(record, &command, stamp.now);
        let answer = record.decide(command, stamp.now);
        before.tell(record, &answer, |what| {
            events.push(Event {
                at: stamp.wall,
                lease: name.clone(),
                what,
            });
        });
        let keep = if answer.changes() {
            Keep::Changed
        } else {
            Keep::Same
        };
        (answer, keep)
    })
}

fn is_issued<R: Rows>(
    rows: &mut R,
    lease: &LeaseName,
    token: Token,
    stamp: Stamp,
) -> Result<Result<(), Refusal>, R::Error> {
    rows.with_lease(lease, |record, _| {
        (fence::issued(Some(record), token, stamp.now), Keep::Same)
    })
}

fn write_pair<R: Rows>(
    rows: &mut R,
    key: &Key,
    pair: Option<Pair>,
    shown: Option<&Proof>,
    stamp: Stamp,
) -> Result<Outcome, R::Error> {
    let issued = match shown {
        Some(shown) => is_issued(rows, &shown.lease, shown.token, stamp)?,
        None => Ok(()),
    };
    match pair::admit(key, rows.pair(key)?.as_ref(), shown, issued) {
        Ok(()) => {
            rows.set_pair(key, pair)?;
            Ok(Outcome::Done)
        }
        Err(refusal) => {
            let lease = match (&refusal, shown) {
                (Refusal::Fenced { by, .. }, _) => Some(by.clone()),
                (_, shown) => shown.map(|shown| shown.lease.clone()),
            };
            refused(rows, lease, key.to_string(), refusal.clone(), stamp)?;
            Ok(Outcome::Refused(refusal))
        }
    }
}

fn raise<R: Rows>(
    rows: &mut R,
    resource: &Resource,
    shown: Proof,
    stamp: Stamp,
) -> Result<Outcome, R::Error> {
    let Proof { lease, token } = shown;
    let issued = rows.with_lease(&lease, |record, _| (record.token, Keep::Same))?;
    let result = match (rows.fence(resource)?, issued) {
        (Some(fence), issued) => fence.raised(&lease, token, issued),
        (None, Some(highest)) => Fence {
            lease: lease.clone(),
            highest,
        }
        .raised(&lease, token, issued),
        (None, None) => Err(Refusal::NeverIssued { token }),
    };
    match result {
        Ok(fence) => {
            rows.set_fence(resource, fence)?;
            Ok(Outcome::Done)
        }
        Err(refusal) => {
            let target = resource.to_string();
            refused(rows, Some(lease), target, refusal.clone(), stamp)?;
            Ok(Outcome::Refused(refusal))
        }
    }
}

fn enter<R: Rows>(
    rows: &mut R,
    work: &Work,
    (change, verdict): (Change, Verdict),
    stamp: Stamp,
) -> Result<Outcome, R::Error> {
    match change {
        Change::Keep => {}
        Change::Write(entry) => rows.set_entry(work, Some(entry))?,
        Change::Remove => rows.set_entry(work, None)?,
    }
    if let Verdict::Refused(refusal) = &verdict {
        refused(
            rows,
            Some(work.lease.clone()),
            work.key.to_string(),
            refusal.clone(),
            stamp,
        )?;
    }
    Ok(Outcome::Ledger(verdict))
}

fn refused<R: Rows>(
    rows: &mut R,
    lease: Option<LeaseName>,
    target: String,
    why: Refusal,
    stamp: Stamp,
) -> Result<(), R::Error> {
    match lease {
        Some(lease) => rows.event(Event {
            at: stamp.wall,
            lease,
            what: What::Refused { target, why },
        }),
        None => Ok(()),
    }
}

fn bump<R: Rows>(rows: &mut R, above: Token, stamp: Stamp) -> Result<Outcome, R::Error> {
    if let Some(why) = may_not_bump(rows, above, stamp)? {
        return Ok(Outcome::NotBumped(why));
    }
    rows.set_floor(above)?;
    for name in rows.lease_names()? {
        command_lease(rows, &name, Command::Quarantine { above }, stamp)?;
    }
    Ok(Outcome::Done)
}

/// A10: what a number is judged by are the tokens, the history, and a clock that is not behind it.
fn may_not_bump<R: Rows>(
    rows: &mut R,
    above: Token,
    stamp: Stamp,
) -> Result<Option<NotBumped>, R::Error> {
    let happened = rows.newest_event()?;
    if stamp.wall < happened {
        let (wall, newest) = (stamp.wall, happened);
        return Ok(Some(NotBumped::ClockBehind { wall, newest }));
    }
    let most = stamp.wall.as_millis() + NotBumped::AHEAD;
    if most < above.get() {
        return Ok(Some(NotBumped::TooLarge { above, most }));
    }
    let mut newest = rows.floor()?;
    for name in rows.lease_names()? {
        // A name whose tokens have run out is out of danger: it is never granted again.
        let token = rows.lease(&name)?.and_then(|record| record.token);
        newest = newest.max(token.filter(|token| *token < Token::MAX));
    }
    Ok(newest
        .filter(|newest| above <= *newest)
        .map(|newest| NotBumped::TooSmall { above, newest }))
}
