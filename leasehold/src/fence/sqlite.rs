//! Fences and ledger in your own SQLite database, inside your own transaction.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use leasehold::{LeaseName, Resource, core::Proof, fence};
//! use rusqlite::{Connection, TransactionBehavior::Immediate};
//!
//! let mut db = Connection::open_in_memory()?;
//! fence::sqlite::prepare(&db)?;
//! db.execute_batch("CREATE TABLE report(text TEXT)")?;
//!
//! let reports = Resource::new("reports")?;
//! let mine = Proof { lease: LeaseName::new("nightly")?, token: "2".parse()? };
//! // Once per tenure, before the first read:
//! fence::sqlite::barrier(&mut db, &reports, &mine)?;
//! // In every transaction that writes:
//! let tx = db.transaction_with_behavior(Immediate)?;
//! fence::sqlite::check(&tx, &reports, &mine)?;
//! tx.execute("INSERT INTO report VALUES ('by 2')", [])?;
//! tx.commit()?;
//!
//! let stale = Proof { token: "1".parse()?, ..mine };
//! let tx = db.transaction_with_behavior(Immediate)?;
//! let refused = fence::sqlite::check(&tx, &reports, &stale).unwrap_err();
//! assert_eq!(refused.to_string(), "refused: token 1 is older than 2");
//! # Ok(()) }
//! ```
//!
//! SQLite has one writer at a time, so whoever has the write lock sees every token that was raised before, and nobody
//! raises another one until it commits (F23). That is why every function here wants a transaction that has the lock.

use leasehold_core::{
    Abandon, Begin, Complete, Entry, Fence, Proof, Resource, Token, Value, Verdict, WallTime, Work,
    ledger::{self, Change},
};
use rusqlite::{Connection, TransactionBehavior, TransactionState};

use super::{Bearer, FenceError, settle, unsettled};
use crate::{
    clock::{BootClock, Clock},
    store::sqlite::{
        columns::{self, RowError},
        contents, schema,
    },
};

const FENCES: &str = "leasehold_fence";
const LEDGER: &str = "leasehold_ledger";

/// In front of the names of the tables in a user's database.
const PREFIX: &str = "leasehold_";

/// What came of [`once`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Once {
    /// The effect ran; this is what it returned.
    Done(Value),
    /// It had been done before, and did not run again: who, when, and with what result.
    Before(Entry),
}

/// Makes the tables for fences and ledger, if they are missing. Their names begin with `leasehold_`.
pub fn prepare(db: &Connection) -> Result<(), FenceError> {
    let application: i32 = db.pragma_query_value(None, "application_id", |row| row.get(0))?;
    if application == schema::APPLICATION {
        return Err(FenceError::IsStore);
    }
    Ok(db.execute_batch(&script())?)
}

/// All that [`prepare`] does, for programs in other languages. It can be run again.
pub fn script() -> String {
    contents::tables(PREFIX)
        + "\
-- Requests for work from before this are refused by their age.
CREATE TABLE IF NOT EXISTS leasehold_kept(
  one       INTEGER PRIMARY KEY CHECK (one = 1),
  kept_from INTEGER NOT NULL
) STRICT;
INSERT OR IGNORE INTO leasehold_kept VALUES (1, 0);
"
}

/// Raises the fence of `resource` in a transaction of its own, which is committed when this returns: the barrier of a new
/// holder, before its first read (F10). Waits for a writer in flight as long as the connection's busy timeout allows
/// (F11). Repeat it after anything that may have put the database back from a copy (T8).
pub fn barrier(
    db: &mut Connection,
    resource: &Resource,
    bearer: &impl Bearer,
) -> Result<(), FenceError> {
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    raise(&tx, resource, bearer)?;
    Ok(tx.commit()?)
}

/// Raises the fence of `resource` within the caller's transaction: after its commit no smaller token of the lease passes.
/// Raising it again is fine.
pub fn raise(db: &Connection, resource: &Resource, bearer: &impl Bearer) -> Result<(), FenceError> {
    is_writing(db)?;
    let Proof { lease, token } = bearer.proof();
    let mut fence = match contents::fence(db, FENCES, resource)? {
        Some(fence) => fence,
        None => Fence {
            lease: lease.clone(),
            highest: Token::FIRST,
        },
    };
    settle(bearer, fence.raise(&lease, token))?;
    Ok(contents::set_fence(db, FENCES, resource, &fence)?)
}

/// Whether the rest of this transaction may be written: exactly the token passes with which the fence was raised (F6).
/// After an error, roll back.
pub fn check(db: &Connection, resource: &Resource, bearer: &impl Bearer) -> Result<(), FenceError> {
    is_writing(db)?;
    let Proof { lease, token } = bearer.proof();
    let Some(fence) = contents::fence(db, FENCES, resource)? else {
        return Err(FenceError::NotRaised(resource.clone()));
    };
    settle(bearer, fence.check(&lease, token))
}

/// Runs `effect` if the work was never done, and remembers its result with it, in the caller's transaction: both commit
/// or neither does (I4). What was done is answered again for whatever token asks; a stale token begins nothing (I5).
///
/// If `effect` fails, all that it wrote is taken back and the work counts as not begun.
pub fn once<E: From<FenceError>>(
    db: &Connection,
    resource: &Resource,
    asked: Begin,
    effect: impl FnOnce(&Connection) -> Result<Value, E>,
) -> Result<Once, E> {
    let Begin {
        work,
        token,
        attempt,
        ..
    } = asked.clone();
    match begin(db, resource, asked)? {
        Verdict::Begun | Verdict::Resumed | Verdict::TookOver { .. } => {}
        Verdict::AlreadyDone(entry) => return Ok(Once::Before(entry)),
        verdict => return Err(unsettled(verdict).into()),
    }
    let sql = |text: &str| db.execute_batch(text).map_err(FenceError::from);
    sql("SAVEPOINT leasehold_once")?;
    let response = match effect(db) {
        Ok(response) => response,
        Err(error) => {
            sql("ROLLBACK TO leasehold_once; RELEASE leasehold_once")?;
            abandon(
                db,
                Abandon {
                    work,
                    token,
                    attempt,
                },
            )?;
            return Err(error);
        }
    };
    sql("RELEASE leasehold_once")?;
    let done = Complete {
        work,
        token,
        attempt,
        response: response.clone(),
    };
    match complete(db, done)? {
        Verdict::Completed => Ok(Once::Done(response)),
        verdict => Err(unsettled(verdict).into()),
    }
}

/// Begins work whose effect is elsewhere (I7): commit this, have the effect with the same key, then [`complete`] it. The
/// fence of `resource` decides who may.
pub fn begin(db: &Connection, resource: &Resource, asked: Begin) -> Result<Verdict, FenceError> {
    let bearer = Proof {
        lease: asked.work.lease.clone(),
        token: asked.token,
    };
    let issued = match check(db, resource, &bearer) {
        Ok(()) => Ok(()),
        Err(FenceError::Refused(refusal)) => Err(refusal),
        Err(error) => return Err(error),
    };
    let work = asked.work.clone();
    let entry = contents::entry(db, LEDGER, &work)?;
    let sql = "SELECT kept_from FROM leasehold_kept";
    let kept_from = columns::wall(db.query_row(sql, [], |row| row.get(0))?);
    let (change, verdict) = ledger::begin(entry, asked, issued, kept_from, now());
    write(db, &work, change)?;
    Ok(verdict)
}

/// The work is done; the entry's token must be the caller's own, and the lease need not be valid any more.
pub fn complete(db: &Connection, asked: Complete) -> Result<Verdict, FenceError> {
    is_writing(db)?;
    let work = asked.work.clone();
    let entry = contents::entry(db, LEDGER, &work)?;
    let (change, verdict) = ledger::complete(entry, asked, now());
    write(db, &work, change)?;
    Ok(verdict)
}

/// The work failed without effect; whoever comes next begins it.
pub fn abandon(db: &Connection, asked: Abandon) -> Result<Verdict, FenceError> {
    is_writing(db)?;
    let entry = contents::entry(db, LEDGER, &asked.work)?;
    let (change, verdict) = ledger::abandon(entry, &asked);
    write(db, &asked.work, change)?;
    Ok(verdict)
}

/// Forgets lines of the ledger from before `from`; requests born before it are refused from then on (I9). Answers how
/// many went.
pub fn forget(db: &Connection, from: WallTime) -> Result<u64, FenceError> {
    is_writing(db)?;
    let from = columns::nanos(from.as_nanos());
    db.execute(
        "UPDATE leasehold_kept SET kept_from = max(kept_from, ?1)",
        [from],
    )?;
    let sql = "DELETE FROM leasehold_ledger WHERE coalesce(done, begun) < ?1";
    Ok(db.execute(sql, [from])? as u64)
}

fn write(db: &Connection, work: &Work, change: Change) -> Result<(), FenceError> {
    match change {
        Change::Keep => Ok(()),
        Change::Write(entry) => Ok(contents::set_entry(db, LEDGER, work, Some(&entry))?),
        Change::Remove => Ok(contents::set_entry(db, LEDGER, work, None)?),
    }
}

/// F2: the check must be in the transaction that writes, and that must have the write lock.
fn is_writing(db: &Connection) -> Result<(), FenceError> {
    match db.transaction_state(Some("main"))? {
        TransactionState::Write => Ok(()),
        _ if db.is_autocommit() => Err(FenceError::NotInTransaction),
        _ => Err(FenceError::NotImmediate),
    }
}

fn now() -> WallTime {
    BootClock::new().wall()
}

impl From<RowError> for FenceError {
    fn from(error: RowError) -> Self {
        match error {
            RowError::Sqlite(error) => FenceError::Sqlite(error),
            RowError::Damaged(what) => FenceError::Damaged(what),
        }
    }
}
