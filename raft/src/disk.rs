//! The log of one member in a SQLite file: entries, vote, and who the member is (R8).
//!
//! SQLite repairs what a crash left half written at the end. A damaged middle is refused: a member that forgot what it
//! had promised could give one token to two holders, so it must come back as another member.

use std::{
    fs::{DirBuilder, File},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use leasehold::StoreError;
use rusqlite::{Connection, OptionalExtension, params};
use rustix::fs::{FlockOperation, flock};

use crate::{
    codec::{self, Ballot, Id, Item, Malformed},
    types::Entry,
};

/// Tells the file from other SQLite files: "LhRf".
const APPLICATION: i32 = 0x4c68_5266;
/// What loses no commit while it checkpoints (SQ1).
const SQLITE_NEEDED: i32 = 3_051_003;
const SCHEMA: &str = "
    CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE log (place INTEGER PRIMARY KEY, entry BLOB NOT NULL) STRICT;
";

/// The open file, and the lock that keeps other processes out of the folder.
#[derive(Debug)]
pub(crate) struct Disk {
    db: Connection,
    _lock: File,
}

/// Who this member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Identity {
    /// Never used again once it has left a cluster (R8).
    pub(crate) node: u64,
    /// The cluster it belongs to; changed by a restore (R9).
    pub(crate) cluster: Option<u128>,
}

/// What was found in the file.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) identity: Identity,
    pub(crate) vote: Option<Ballot>,
    pub(crate) purged: Option<Id>,
    /// Without a gap, from behind `purged` on.
    pub(crate) entries: Vec<Entry>,
}

/// One change to the file.
#[derive(Debug)]
pub(crate) enum Change {
    Append(Vec<Entry>),
    Vote(Ballot),
    /// Forgets this entry and all behind it.
    Truncate(u64),
    /// Forgets this entry and all before it.
    Purge(Id),
    Identity(Identity),
}

impl Disk {
    /// Opens the log in `folder`; makes folder and log if they are missing, as those of `newcomer`.
    pub(crate) fn open(folder: &Path, newcomer: Identity) -> Result<(Self, Found), StoreError> {
        if rusqlite::version_number() < SQLITE_NEEDED {
            return Err(StoreError::Invalid {
                what: format!(
                    "SQLite {} can lose commits; 3.51.3 or newer is needed",
                    rusqlite::version()
                ),
            });
        }
        // What is in the log are keys: sessions of holders.
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| unusable(folder, &error))?;
        let lock = take(folder)?;
        let path = folder.join("log.db");
        let broken = |error: rusqlite::Error| unusable(&path, &error);
        let db = Connection::open(&path).map_err(broken)?;
        db.execute_batch(
            "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;",
        )
        .map_err(broken)?;
        let mut disk = Self { db, _lock: lock };
        disk.make(newcomer).map_err(broken)?;
        disk.check(&path)?;
        File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(|error| unusable(folder, &error))?;
        let found = disk.read(&path)?;
        Ok((disk, found))
    }

    fn make(&mut self, newcomer: Identity) -> rusqlite::Result<()> {
        let made: i32 = self
            .db
            .query_row("PRAGMA application_id", [], |row| row.get(0))?;
        let tables: i64 =
            (self.db).query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        if made != 0 || tables != 0 {
            return Ok(());
        }
        let step = self.db.transaction()?;
        step.execute_batch(SCHEMA)?;
        step.pragma_update(None, "application_id", APPLICATION)?;
        step.pragma_update(None, "user_version", codec::DISK)?;
        set(&step, "identity", &newcomer)?;
        step.commit()
    }

    /// Whether the file is ours and whole.
    fn check(&self, path: &Path) -> Result<(), StoreError> {
        let broken = |error: rusqlite::Error| damaged(path, &error);
        let ask = |pragma: &str| self.db.query_row(pragma, [], |row| row.get::<_, i64>(0));
        if ask("PRAGMA application_id").map_err(broken)? != i64::from(APPLICATION) {
            return Err(unusable(path, &"it is another program's database"));
        }
        let version = ask("PRAGMA user_version").map_err(broken)?;
        if version != i64::from(codec::DISK) {
            let version = Malformed::Version(u8::try_from(version).unwrap_or(u8::MAX));
            return Err(unusable(path, &version));
        }
        let verdict: String = (self.db)
            .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
            .map_err(broken)?;
        match verdict.as_str() {
            "ok" => Ok(()),
            _ => Err(damaged(path, &verdict)),
        }
    }

    fn read(&self, path: &Path) -> Result<Found, StoreError> {
        let identity = self.meta(path, "identity")?;
        let identity = identity.ok_or_else(|| damaged(path, &"it does not say whose it is"))?;
        let purged: Option<Id> = self.meta(path, "purged")?;
        let entries = self
            .entries(0, u64::MAX)
            .map_err(|error| damaged(path, &error))?;
        let first = purged.map_or(0, |id| id.index + 1);
        for (entry, index) in entries.iter().zip(first..) {
            if entry.log_id.index != index {
                let what = format!("entry {index} is missing");
                return Err(damaged(path, &what));
            }
        }
        Ok(Found {
            identity,
            vote: self.meta(path, "vote")?,
            purged,
            entries,
        })
    }

    fn meta<T: serde::de::DeserializeOwned>(
        &self,
        path: &Path,
        name: &str,
    ) -> Result<Option<T>, StoreError> {
        let value: Option<Vec<u8>> = (self.db)
            .query_row("SELECT value FROM meta WHERE name = ?1", [name], |row| {
                row.get(0)
            })
            .optional()
            .map_err(|error| damaged(path, &error))?;
        let unsealed = value.map(|sealed| codec::unseal(&sealed)).transpose();
        unsealed.map_err(|error| damaged(path, &format!("its {name}: {error}")))
    }

    /// The entries from `from` on, without `until`.
    pub(crate) fn entries(&self, from: u64, until: u64) -> io::Result<Vec<Entry>> {
        let sql = "SELECT place, entry FROM log WHERE place >= ?1 AND place < ?2 ORDER BY place";
        let mut rows = self.db.prepare_cached(sql).map_err(io::Error::other)?;
        let mut rows = rows
            .query(params![place(from), place(until)])
            .map_err(io::Error::other)?;
        let mut entries = Vec::new();
        while let Some(row) = rows.next().map_err(io::Error::other)? {
            let (place, sealed): (i64, Vec<u8>) = row
                .get(0)
                .and_then(|place| Ok((place, row.get(1)?)))
                .map_err(io::Error::other)?;
            let odd = |error: Malformed| io::Error::other(format!("entry {place}: {error}"));
            let item: Item = codec::unseal(&sealed).map_err(odd)?;
            if i64::try_from(item.id.index) != Ok(place) {
                return Err(odd(Malformed::Bytes));
            }
            entries.push(item.entry().map_err(odd)?);
        }
        Ok(entries)
    }

    /// Makes all the changes durable, or none: one commit, one fsync.
    pub(crate) fn write<'a>(
        &mut self,
        changes: impl IntoIterator<Item = &'a Change>,
    ) -> rusqlite::Result<()> {
        let step = self.db.transaction()?;
        for change in changes {
            match change {
                Change::Append(entries) => {
                    let sql = "INSERT INTO log (place, entry) VALUES (?1, ?2)";
                    let mut insert = step.prepare_cached(sql)?;
                    for entry in entries {
                        let sealed = codec::seal(&Item::from(entry));
                        insert.execute(params![place(entry.log_id.index), sealed])?;
                    }
                }
                Change::Vote(vote) => set(&step, "vote", vote)?,
                Change::Truncate(from) => {
                    step.execute("DELETE FROM log WHERE place >= ?1", [place(*from)])?;
                }
                Change::Purge(upto) => {
                    step.execute("DELETE FROM log WHERE place <= ?1", [place(upto.index)])?;
                    set(&step, "purged", upto)?;
                }
                Change::Identity(identity) => set(&step, "identity", identity)?,
            }
        }
        step.commit()
    }
}

/// An index as SQLite counts.
fn place(index: u64) -> i64 {
    i64::try_from(index).unwrap_or(i64::MAX)
}

fn set<T: serde::Serialize>(db: &Connection, name: &str, value: &T) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO meta (name, value) VALUES (?1, ?2)";
    db.prepare_cached(sql)?
        .execute(params![name, codec::seal(value)])?;
    Ok(())
}

/// Two processes that are one member would vote twice.
fn take(folder: &Path) -> Result<File, StoreError> {
    let path: PathBuf = folder.join("lock");
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(|error| unusable(&path, &error))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(StoreError::Invalid {
            what: format!(
                "{} is in use by another process: stop it, or give this member a folder of its own",
                folder.display()
            ),
        }),
        Err(error) => Err(unusable(&path, &io::Error::from(error))),
    }
}

/// The files cannot be used as they are.
pub(crate) fn unusable(path: &Path, why: &dyn std::fmt::Display) -> StoreError {
    StoreError::Invalid {
        what: format!("{} cannot be used: {why}", path.display()),
    }
}

/// The files are not what they were.
pub(crate) fn damaged(path: &Path, why: &dyn std::fmt::Display) -> StoreError {
    StoreError::Invalid {
        what: format!(
            "{} is damaged ({why}): this member no longer knows what it promised. Remove it from \
             the cluster, delete the folder and let it join as a new member; if it was the only \
             member, restore a snapshot",
            path.display()
        ),
    }
}

#[cfg(test)]
mod tests;
