//! What is in the database file, and whether a file is one of ours.

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension};

use super::{
    contents,
    place::{self, Place},
    side::Side,
};
use crate::store::StoreError;

/// Marks the file as ours: "leas".
pub(crate) const APPLICATION: i32 = 0x6c65_6173;
/// Grows with every change of the tables.
const VERSION: i32 = 1;
/// Earlier ones can lose a commit when one process writes while another checkpoints (SQ1).
const SQLITE: i32 = 3_051_003;

const TABLES: &str = "
CREATE TABLE store(
  one        INTEGER PRIMARY KEY CHECK (one = 1),
  id         BLOB    NOT NULL,
  commits    INTEGER NOT NULL,
  side_inode INTEGER NOT NULL,
  floor      INTEGER,
  kept_from  INTEGER NOT NULL
) STRICT;
CREATE TABLE lease(
  name       TEXT    PRIMARY KEY,
  token      INTEGER CHECK (token > 0),
  expires    INTEGER NOT NULL,
  written    INTEGER NOT NULL,
  boot       TEXT    NOT NULL,
  ttl_ms     INTEGER NOT NULL,
  delay_ms   INTEGER NOT NULL,
  session    BLOB,
  request_id BLOB,
  holder     TEXT,
  info       TEXT,
  granted    INTEGER,
  released   INTEGER,
  renewals   INTEGER,
  renew_id   BLOB
) STRICT, WITHOUT ROWID;
CREATE TABLE sighting(
  name    TEXT    NOT NULL,
  boot    TEXT    NOT NULL,
  of_boot TEXT    NOT NULL,
  token   INTEGER,
  expires INTEGER NOT NULL,
  seen    INTEGER NOT NULL,
  PRIMARY KEY (name, boot)
) STRICT, WITHOUT ROWID;
CREATE TABLE pair(
  key   TEXT PRIMARY KEY,
  value BLOB NOT NULL,
  lease TEXT,
  token INTEGER
) STRICT;
CREATE TABLE event(
  number INTEGER PRIMARY KEY,
  at     INTEGER NOT NULL,
  lease  TEXT    NOT NULL,
  what   BLOB    NOT NULL
) STRICT;
CREATE INDEX event_of ON event(lease, number);
";

/// Opens a connection to the file of `place`, which must be there. Checks what can be checked without a transaction.
pub(super) fn connect(place: &Place) -> Result<Connection, StoreError> {
    check_library(rusqlite::version_number())?;
    let before = place.identity();
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let opened = {
        let _one = place::opening();
        Connection::open_with_flags(place.database(), flags)
    };
    let db = opened.map_err(|error| explain(place, &error))?;
    let same = matches!((before, place.identity()), (Ok(one), Ok(two)) if one == two);
    if !same {
        return Err(unavailable(place, "it was replaced while it was opened"));
    }
    settle(&db).map_err(|error| explain(place, &error))?;
    Ok(db)
}

fn settle(db: &Connection) -> rusqlite::Result<()> {
    // Short, so that a wait for another program's lock is seen, and the turn is not kept for it.
    db.busy_timeout(super::BUSY_SLICE)?;
    db.set_prepared_statement_cache_capacity(64);
    db.pragma_update(None, "trusted_schema", "OFF")?;
    db.pragma_update(None, "temp_store", "MEMORY")?;
    db.pragma_update(None, "journal_size_limit", 16 << 20)?;
    // NORMAL may forget the last commits in a power loss, and with them tokens that were issued (T4).
    db.pragma_update(None, "synchronous", "FULL")
}

/// Whether the file is ours, new, or neither. A file of an older version would be brought up to date here.
pub(super) fn is_ready(db: &Connection, place: &Place) -> Result<bool, StoreError> {
    let look = || -> rusqlite::Result<(i32, i32, u32)> {
        let application = db.pragma_query_value(None, "application_id", |row| row.get(0))?;
        let version = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
        let tables = db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        Ok((application, version, tables))
    };
    match look().map_err(|error| explain(place, &error))? {
        (0, 0, 0) => Ok(false),
        (APPLICATION, VERSION, _) => Ok(true),
        (APPLICATION, version, _) if version > VERSION => Err(place.refuse(format!(
            "it has version {version}, and this leasehold knows versions up to {VERSION}; use a newer leasehold"
        ))),
        _ => Err(place.refuse("it is the database of another program; name a file for leases alone")),
    }
}

/// Makes the tables. The caller has the turn.
pub(super) fn create(db: &Connection, place: &Place, id: u128) -> Result<(), StoreError> {
    let make = || -> rusqlite::Result<()> {
        db.execute_batch("BEGIN IMMEDIATE")?;
        db.execute_batch(TABLES)?;
        db.execute_batch(&contents::tables(""))?;
        db.execute_batch("CREATE INDEX ledger_age ON ledger(coalesce(done, begun))")?;
        db.execute(
            "INSERT INTO store VALUES (1, ?1, 0, 0, NULL, 0)",
            [id.to_be_bytes()],
        )?;
        db.pragma_update(None, "application_id", APPLICATION)?;
        db.pragma_update(None, "user_version", VERSION)?;
        db.execute_batch("COMMIT")
    };
    make().map_err(|error| {
        // If even this fails, closing the connection does it.
        let _ = db.execute_batch("ROLLBACK");
        explain(place, &error)
    })
}

/// Switches to the write-ahead log, once in the life of a file.
pub(super) fn use_wal(db: &Connection, place: &Place) -> Result<(), StoreError> {
    let mode: String = db
        .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))
        .map_err(|error| explain(place, &error))?;
    match &*mode {
        "wal" => Ok(()),
        other => Err(place.refuse(format!(
            "its file system has no shared memory for SQLite's write-ahead log (it stays in mode {other})"
        ))),
    }
}

/// The one row about the store itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct About {
    pub(super) id: u128,
    pub(super) commits: u64,
    pub(super) side_inode: u64,
}

impl About {
    pub(super) fn load(db: &Connection) -> rusqlite::Result<Option<Self>> {
        db.prepare_cached("SELECT id, commits, side_inode FROM store")?
            .query_row([], |row| {
                Ok(Self {
                    id: u128::from_be_bytes(row.get(0)?),
                    commits: row.get::<_, i64>(1)? as u64,
                    side_inode: row.get::<_, i64>(2)? as u64,
                })
            })
            .optional()
    }

    pub(super) fn save(&self, db: &Connection) -> rusqlite::Result<()> {
        db.prepare_cached("UPDATE store SET commits = ?1, side_inode = ?2")?
            .execute([self.commits as i64, self.side_inode as i64])
            .map(drop)
    }

    /// Whether the database was put back from a copy (A9): it is behind what was answered, or beside a side file that is
    /// not its own, which is what is seen when all files were put back, or the side file was removed.
    pub(super) fn was_restored(&self, side: Option<&Side>, side_inode: u64) -> bool {
        match side {
            None => self.commits > 0,
            // Its first turn was not over.
            Some(side) if side.store == 0 => self.commits > 0,
            Some(side) => {
                side.store != self.id
                    || side.commits > self.commits
                    || (self.commits > 0 && side_inode != self.side_inode)
            }
        }
    }
}

fn check_library(version: i32) -> Result<(), StoreError> {
    if version >= SQLITE {
        return Ok(());
    }
    let spell = |number: i32| {
        format!(
            "{}.{}.{}",
            number / 1_000_000,
            number / 1_000 % 1_000,
            number % 1_000
        )
    };
    Err(StoreError::Invalid {
        what: format!(
            "SQLite {} cannot be used: versions before {} can lose commits when several processes write; \
             build with rusqlite's feature \"bundled\"",
            spell(version),
            spell(SQLITE)
        ),
    })
}

/// What an error of SQLite outside of a commit means to the user. Nothing was changed.
pub(super) fn explain(place: &Place, error: &rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => {
            place.refuse("it is not a SQLite database; name another file, or move this one away")
        }
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            place.refuse(format!("it must be writable, and so must its folder: {error}"))
        }
        Some(ErrorCode::DatabaseCorrupt) => place.refuse(format!(
            "it is damaged ({error}); put back a copy, and tokens will go on above all that were issued"
        )),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            unavailable(place, "another program than leasehold has locked it")
        }
        Some(ErrorCode::DiskFull) => unavailable(place, "the disk is full"),
        Some(ErrorCode::SystemIoFailure) if place.is_full() => {
            unavailable(place, format!("the disk is full ({error})"))
        }
        _ => unavailable(place, error),
    }
}

pub(super) fn unavailable(place: &Place, why: impl std::fmt::Display) -> StoreError {
    StoreError::Unavailable {
        what: format!("store file \"{}\": {why}", place.database().display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SQ1.
    #[test]
    fn a_library_that_can_lose_commits_is_refused() {
        let error = check_library(3_051_002).unwrap_err().to_string();
        assert!(
            error.contains("SQLite 3.51.2") && error.contains("3.51.3"),
            "{error}"
        );
        assert!(check_library(3_051_003).is_ok());
        assert!(check_library(rusqlite::version_number()).is_ok());
    }

    /// A9.
    #[test]
    fn what_counts_as_restored() {
        let about = About {
            id: 1,
            commits: 10,
            side_inode: 5,
        };
        let side = |store, commits| {
            Some(Side {
                store,
                commits,
                ..Side::default()
            })
        };
        let restored = |side: Option<Side>, inode| about.was_restored(side.as_ref(), inode);
        assert!(!restored(side(1, 10), 5), "as it was left");
        assert!(
            !restored(side(1, 9), 5),
            "it died between commit and side file"
        );
        assert!(restored(side(1, 11), 5), "the database is behind");
        assert!(restored(side(2, 3), 5), "another database");
        assert!(restored(side(1, 10), 6), "another side file");
        assert!(restored(None, 5), "no side file");
        let new = About {
            commits: 0,
            side_inode: 0,
            ..about
        };
        assert!(!new.was_restored(None, 5));
        assert!(
            new.was_restored(side(2, 3).as_ref(), 5),
            "the database was deleted"
        );
    }
}
