//! Everything a store may be asked to do, and how it is done, for whatever rows a store has.
//!
//! [`apply`] is written once; a store brings its [`Rows`]: a map in memory, tables in SQLite, a replicated table. One
//! call is one atomic step: the store makes all that it wrote durable before it answers (L10), or nothing of it.

use alloc::string::{String, ToString};

use serde::{Deserialize, Serialize};

use crate::{
    Abandon, Answer, Begin, Command, Complete, Entry, Event, Fence, Holder, Key, LeaseName, Pair,
    Proof, Record, Refusal, Resource, StoreTime, Token, Value, Verdict, WallTime, What, Work,
    decide, fence,
    ledger::{self, Change},
    pair,
};

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// A command to one lease.
    Lease {
        /// Which lease.
        name: LeaseName,
        /// What.
        command: Command,
    },
    /// Writes a pair, plain or fenced.
    Put {
        /// Where.
        key: Key,
        /// What.
        value: Value,
        /// Under which lease, if fenced.
        proof: Option<Proof>,
    },
    /// Deletes a pair, plain or fenced.
    Delete {
        /// Which.
        key: Key,
        /// Under which lease, if fenced.
        proof: Option<Proof>,
    },
    /// Raises the fence of a receiver (F6); `above` it only with the store's own word that the token was issued (T10).
    Raise {
        /// Which receiver.
        resource: Resource,
        /// With what.
        proof: Proof,
    },
    /// Begins a piece of work.
    Begin(Begin),
    /// Completes it.
    Complete(Complete),
    /// Gives it up.
    Abandon(Abandon),
    /// Every lease into quarantine, every later token above `above` (T6).
    Bump {
        /// A number no smaller than any token that may have been issued and forgotten.
        above: Token,
    },
}

/// When the store evaluates an operation: read after every wait and lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// The store's own clock: decides.
    pub now: StoreTime,
    /// The wall clock: for people, and for ages of months.
    pub wall: WallTime,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Of [`Op::Lease`].
    Lease(Answer),
    /// Of [`Op::Put`]: stored. Of [`Op::Delete`]: gone. Of [`Op::Raise`]: raised. Of [`Op::Bump`]: done.
    Done,
    /// A fence said no; nothing was changed.
    Refused(Refusal),
    /// Of the ledger's operations.
    Ledger(Verdict),
}

/// What a store keeps. All calls of one [`apply`] see and make one atomic step.
pub trait Rows {
    /// Why a row could not be read or written.
    type Error;

    /// The record of a lease.
    fn lease(&mut self, name: &LeaseName) -> Result<Option<Record>, Self::Error>;
    /// Keeps it.
    fn set_lease(&mut self, name: &LeaseName, record: Record) -> Result<(), Self::Error>;
    /// The names of all records.
    fn lease_names(&mut self) -> Result<alloc::vec::Vec<LeaseName>, Self::Error>;
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
    /// Appends to the history.
    fn event(&mut self, event: Event) -> Result<(), Self::Error>;
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
    let before = match rows.lease(name)? {
        Some(record) => record,
        None => Record::new(rows.floor()?),
    };
    let previous = Previous::of(&before);
    let story = Story::of(&command);
    let (record, answer) = decide(before, command, stamp.now);
    for what in happened(story, previous, &record, &answer)
        .into_iter()
        .flatten()
    {
        rows.event(Event {
            at: stamp.wall,
            lease: name.clone(),
            what,
        })?;
    }
    if answer.changes() {
        rows.set_lease(name, record)?;
    }
    Ok(answer)
}

/// The tenure that a command found.
struct Previous {
    holder: Holder,
    token: Token,
    released: bool,
}

impl Previous {
    fn of(record: &Record) -> Option<Self> {
        let (tenure, token) = (record.tenure.as_ref()?, record.token?);
        Some(Self {
            holder: tenure.holder.clone(),
            token,
            released: tenure.released,
        })
    }
}

/// What a command is about, as far as the history tells.
enum Story {
    Grant,
    Renewal(Token),
    Release,
    Force,
    Quarantine,
}

impl Story {
    fn of(command: &Command) -> Self {
        match command {
            Command::Acquire(_) => Story::Grant,
            Command::Renew(asked) => Story::Renewal(asked.token),
            Command::Release(_) => Story::Release,
            Command::ForceRelease { .. } => Story::Force,
            Command::Quarantine { .. } => Story::Quarantine,
        }
    }
}

/// At most two events: the end of the previous tenure, and what came of the command. A replayed grant is none.
fn happened(
    story: Story,
    previous: Option<Previous>,
    record: &Record,
    answer: &Answer,
) -> [Option<What>; 2] {
    match (story, answer, &record.tenure) {
        (Story::Grant, Answer::Granted(grant), Some(tenure)) => {
            if previous
                .as_ref()
                .is_some_and(|previous| previous.token == grant.token)
            {
                return [None, None];
            }
            let ended = previous
                .filter(|previous| !previous.released)
                .map(|Previous { holder, token, .. }| What::Expired { holder, token });
            let holder = tenure.holder.clone();
            [
                ended,
                Some(What::Granted {
                    holder,
                    token: grant.token,
                    ttl: grant.ttl,
                }),
            ]
        }
        (Story::Renewal(token), Answer::Lost(why), _) => [
            Some(What::Lost {
                token,
                why: why.clone(),
            }),
            None,
        ],
        (Story::Release, Answer::Released, _) => [
            previous.map(|Previous { holder, token, .. }| What::Released { holder, token }),
            None,
        ],
        (Story::Force, Answer::Bumped { token }, _) => [Some(What::Forced { token: *token }), None],
        (Story::Quarantine, Answer::Bumped { token }, _) => {
            [Some(What::Quarantined { token: *token }), None]
        }
        _ => [None, None],
    }
}

fn is_issued<R: Rows>(
    rows: &mut R,
    lease: &LeaseName,
    token: Token,
    stamp: Stamp,
) -> Result<Result<(), Refusal>, R::Error> {
    let record = match rows.lease(lease)? {
        Some(record) => record,
        None => Record::new(rows.floor()?),
    };
    Ok(fence::issued(Some(&record), token, stamp.now))
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
    let confirmed = rows
        .lease(&lease)?
        .is_some_and(|record| record.token >= Some(token));
    let mut fence = match rows.fence(resource)? {
        Some(fence) => fence,
        None => Fence {
            lease: lease.clone(),
            highest: if confirmed { token } else { Token::FIRST },
        },
    };
    let result = match fence.raise(&lease, token) {
        Err(Refusal::TooFar { .. }) if confirmed => {
            fence.highest = token;
            Ok(())
        }
        result => result,
    };
    match result {
        Ok(()) => {
            rows.set_fence(resource, fence)?;
            Ok(Outcome::Done)
        }
        Err(refusal) => {
            refused(
                rows,
                Some(lease),
                resource.to_string(),
                refusal.clone(),
                stamp,
            )?;
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
    let floor = rows.floor()?;
    rows.set_floor(floor.map_or(above, |floor| floor.max(above)))?;
    for name in rows.lease_names()? {
        command_lease(rows, &name, Command::Quarantine { above }, stamp)?;
    }
    Ok(Outcome::Done)
}
