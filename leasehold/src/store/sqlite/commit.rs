//! One transaction for a group of asks: begin, read the clock, answer each, commit, write the side file. Then reply.
//!
//! The clock is read when the write lock is held (SQ1), and a reply is given only when the commit is on the disk and the
//! side file says so (L10, A9).

use leasehold_core::{
    Answer, Command, NotBumped, Op, Outcome, Rows, Stamp, StoreTime, Token, apply,
};
use rusqlite::{Connection, ErrorCode};

use super::{
    clock::HostClock,
    collect::collect,
    columns::RowError,
    place::{Identity, Place},
    rows::Tables,
    schema::{self, About},
    side::{Side, SideFile},
};
use crate::store::{StoreError, frees};

/// What the store's thread may be asked.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    Op(Op),
    /// Forget what may be forgotten of the leases from this name on.
    Collect {
        from: String,
    },
}

/// An ask, and when it came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item<'a> {
    pub(super) ask: &'a Ask,
    pub(super) received: StoreTime,
}

#[derive(Debug)]
pub(super) enum Ack {
    Outcome(Outcome),
    /// So many rows went; the rest begins at `next`.
    Collected {
        rows: u64,
        next: Option<String>,
    },
}

pub(super) type Reply = Result<Ack, StoreError>;

/// Why a group got no answers. Nothing was changed, unless it is [`Failure::Unknown`].
#[derive(Debug)]
pub(super) enum Failure {
    /// Another program than leasehold has the write lock.
    Busy,
    /// One of the group is at fault, or the group is too large for the disk: try one by one.
    Group(StoreError),
    /// The same for everybody, and for the next ones too, until it is mended.
    All(StoreError),
    /// As `All`, and the connections are not to be trusted any more (SQ5).
    Broken(StoreError),
    /// It may have been committed; the connections are not to be trusted any more (SQ5).
    Unknown(StoreError),
}

impl Failure {
    pub(super) fn breaks(&self) -> bool {
        matches!(self, Failure::Broken(_) | Failure::Unknown(_))
    }

    pub(super) fn into_error(self) -> StoreError {
        match self {
            Failure::Busy => StoreError::Unavailable {
                what: "another program than leasehold keeps the store file locked".into(),
            },
            Failure::Group(error)
            | Failure::All(error)
            | Failure::Broken(error)
            | Failure::Unknown(error) => error,
        }
    }
}

/// What the thread has open.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) db: Connection,
    /// What the database's name led to when it was opened.
    pub(super) identity: Identity,
    pub(super) side_file: SideFile,
}

/// A turn to write, and what the side file says.
pub(super) struct Writing<'a> {
    pub(super) place: &'a Place,
    pub(super) host: &'a HostClock,
    pub(super) open: &'a Open,
    pub(super) side: Option<Side>,
    /// Whether a lease became free.
    pub(super) freed: bool,
    /// Whether the side file says no more that this process has the turn.
    pub(super) told: bool,
}

impl Writing<'_> {
    /// Answers the whole group, or none of it.
    pub(super) fn attempt(&mut self, items: &[Item<'_>]) -> Result<Vec<Reply>, Failure> {
        let db = &self.open.db;
        match run(db, "BEGIN IMMEDIATE") {
            Ok(()) => {}
            Err(error) if is_busy(&error) => return Err(Failure::Busy),
            Err(error) => return Err(Failure::Broken(schema::explain(self.place, &error))),
        }
        let stamp = self.host.stamp();
        let (replies, next) = match self.evaluate(items, stamp) {
            Ok(evaluated) => evaluated,
            Err(failure) => {
                return Err(match self.roll_back() {
                    Ok(()) => failure,
                    Err(error) => Failure::Broken(schema::explain(self.place, &error)),
                });
            }
        };
        self.commit()?;
        if let Some(side) = next {
            self.conclude(side)?;
        }
        self.freed |= replies
            .iter()
            .any(|reply| matches!(reply, Ok(Ack::Outcome(outcome)) if frees(outcome)));
        Ok(replies)
    }

    /// The answers, and what the side file must say before they are given; nothing, if nothing was written.
    fn evaluate(
        &self,
        items: &[Item<'_>],
        stamp: Stamp,
    ) -> Result<(Vec<Reply>, Option<Side>), Failure> {
        self.check_in_place().map_err(Failure::Broken)?;
        let db = &self.open.db;
        let about = About::load(db).map_err(|error| self.sort(error.into()))?;
        let Some(mut about) = about else {
            return Err(Failure::All(
                self.place.refuse("it has lost its own description"),
            ));
        };
        let mut tables = Tables::new(db, self.host, stamp);
        let inode = self.open.side_file.inode();
        if about.was_restored(self.side.as_ref(), inode) {
            self.quarantine(&mut tables, stamp)?;
        }
        let mut replies = Vec::with_capacity(items.len());
        for item in items {
            let reply = answer(&mut tables, item, stamp).map_err(|error| self.sort(error))?;
            replies.push(reply);
        }
        if !tables.written {
            return Ok((replies, None));
        }
        let side = self.side.unwrap_or_default();
        about.commits = about.commits.max(side.commits) + 1;
        about.side_inode = inode;
        about.save(db).map_err(|error| self.sort(error.into()))?;
        let newest = tables.newest.filter(|token| *token < Token::MAX);
        let side = Side {
            store: about.id,
            commits: about.commits,
            newest: newest.max(side.newest),
            ..side
        };
        Ok((replies, Some(side)))
    }

    fn commit(&self) -> Result<(), Failure> {
        let Err(error) = run(&self.open.db, "COMMIT") else {
            return Ok(());
        };
        let rolled_back = self.roll_back().is_ok();
        let explained = schema::explain(self.place, &error);
        Err(match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy) if rolled_back => Failure::Busy,
            // The last page of the log did not fit, so the log does not end in a commit.
            Some(ErrorCode::DiskFull) if rolled_back => Failure::Group(explained),
            _ => Failure::Unknown(StoreError::Unknown {
                what: explained.to_string(),
            }),
        })
    }

    /// What was committed counts only when the side file knows it and the file is still the one that everybody sees.
    fn conclude(&mut self, side: Side) -> Result<(), Failure> {
        let unknown = |what: String| Failure::Unknown(StoreError::Unknown { what });
        self.side = Some(side);
        // The turn ends here, unless more is done one by one; the kernel knows whose it is then.
        self.told = true;
        let side = Side {
            owner: None,
            ..side
        };
        self.open
            .side_file
            .write(&side)
            .map_err(|error| unknown(format!("the side file was not written: {error}")))?;
        self.check_in_place()
            .map_err(|error| unknown(error.to_string()))
    }

    fn roll_back(&self) -> rusqlite::Result<()> {
        match self.open.db.is_autocommit() {
            true => Ok(()),
            false => self.open.db.execute_batch("ROLLBACK"),
        }
    }

    /// SQ3: a commit to a file that nobody else sees any more would grant a lease twice.
    fn check_in_place(&self) -> Result<(), StoreError> {
        match self.place.identity() {
            Ok(Some(identity)) if identity == self.open.identity => Ok(()),
            Ok(Some(_)) => Err(schema::unavailable(
                self.place,
                "it was replaced while in use; nothing was changed, and the next request opens the new file",
            )),
            Ok(None) => Err(schema::unavailable(
                self.place,
                "it was deleted while in use; put it back, or restart to begin with a new one",
            )),
            Err(error) => Err(schema::unavailable(self.place, error)),
        }
    }

    /// T6: every lease waits for one ttl, and every later token is above all that may have been issued: the unix time in
    /// ms, and the largest that the side file knows. A lease that was beyond the unix time before goes beyond the latter.
    fn quarantine(&self, tables: &mut Tables<'_>, stamp: Stamp) -> Result<(), Failure> {
        let sort = |error| self.sort(error);
        let happened = tables.newest_event().map_err(sort)?;
        if stamp.wall < happened {
            let why = NotBumped::ClockBehind {
                wall: stamp.wall,
                newest: happened,
            };
            let what =
                format!("it was put back from a copy, and no safe token can be found: {why}");
            return Err(Failure::All(schema::unavailable(self.place, what)));
        }
        let forgotten = self
            .side
            .and_then(|side| side.newest)
            .unwrap_or(Token::FIRST);
        let unix_ms = Token::new(stamp.wall.as_millis()).unwrap_or(Token::FIRST);
        let plausible = forgotten.get() <= unix_ms.get() + NotBumped::AHEAD;
        let above = if plausible {
            unix_ms.max(forgotten)
        } else {
            unix_ms
        };
        tracing::warn!(
            file = %self.place.database().display(), above = above.get(),
            "the store was put back from a copy, or its side file was removed: every lease is in quarantine"
        );
        let floor = tables.floor().map_err(sort)?;
        tables
            .set_floor(floor.map_or(above, |floor| floor.max(above)))
            .map_err(sort)?;
        for name in tables.lease_names().map_err(sort)? {
            let token = tables
                .lease(&name)
                .map_err(sort)?
                .and_then(|record| record.token);
            let above = if token > Some(above) {
                forgotten.max(above)
            } else {
                above
            };
            let command = Command::Quarantine { above };
            apply(tables, Op::Lease { name, command }, stamp).map_err(sort)?;
        }
        Ok(())
    }

    fn sort(&self, error: RowError) -> Failure {
        match error {
            RowError::Damaged(what) => Failure::Group(schema::unavailable(
                self.place,
                format!("a row is damaged: {what}"),
            )),
            RowError::Sqlite(error) => {
                let explained = schema::explain(self.place, &error);
                match error.sqlite_error_code() {
                    Some(
                        ErrorCode::DiskFull
                        | ErrorCode::TooBig
                        | ErrorCode::OutOfMemory
                        | ErrorCode::ConstraintViolation,
                    ) => Failure::Group(explained),
                    _ => Failure::Broken(explained),
                }
            }
        }
    }
}

/// Without compiling it again each time.
fn run(db: &Connection, sql: &str) -> rusqlite::Result<()> {
    db.prepare_cached(sql)?.execute([]).map(drop)
}

pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}

fn answer(tables: &mut Tables<'_>, item: &Item<'_>, stamp: Stamp) -> Result<Reply, RowError> {
    match item.ask {
        Ask::Collect { from } => collect(tables, from, stamp).map(Ok),
        Ask::Op(op) => {
            let mut outcome = apply(tables, op.clone(), stamp)?;
            if let Outcome::Lease(Answer::Granted(grant)) = &mut outcome {
                grant.waited = stamp.now.since(item.received);
            }
            Ok(Ok(Ack::Outcome(outcome)))
        }
    }
}
