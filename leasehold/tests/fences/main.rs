//! Fences and ledger in the user's own SQLite database and in the store's own pairs, against writers that froze and
//! come back (INV-20 to INV-23, INV-25).

#![allow(clippy::unwrap_used)] // Helpers of tests, which may.

mod guard;
mod kv;
mod ledger;
mod race;
mod sqlite;

use std::{
    cell::Cell,
    path::{Path, PathBuf},
    time::Duration,
};

use leasehold::{
    LeaseName, Refusal, Resource, Token,
    core::Proof,
    fence::{self, Bearer},
};
use rusqlite::{Connection, Transaction, TransactionBehavior::Immediate};
use tempfile::TempDir;

/// A database of the user with fences, and a list that is written under the lease.
fn database() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.db");
    let db = open(&path);
    fence::sqlite::prepare(&db).unwrap();
    fence::sqlite::prepare(&db).expect("twice is fine");
    db.execute_batch("CREATE TABLE list(number INTEGER PRIMARY KEY, token INTEGER, text TEXT)")
        .unwrap();
    (folder, path)
}

fn open(path: &Path) -> Connection {
    let db = Connection::open(path).unwrap();
    db.pragma_update(None, "journal_mode", "WAL").unwrap();
    // The file is a test's; what is tested is order, not power loss.
    db.pragma_update(None, "synchronous", "OFF").unwrap();
    db.busy_timeout(Duration::from_secs(30)).unwrap();
    db
}

fn begin(db: &mut Connection) -> Transaction<'_> {
    db.transaction_with_behavior(Immediate).unwrap()
}

fn reports() -> Resource {
    Resource::new("reports").unwrap()
}

fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

fn proof(number: u64) -> Proof {
    Proof {
        lease: LeaseName::new("nightly").unwrap(),
        token: token(number),
    }
}

fn append(db: &Connection, token: u64, text: &str) {
    db.execute(
        "INSERT INTO list(token, text) VALUES (?1, ?2)",
        (token as i64, text),
    )
    .unwrap();
}

/// The list as it is: tokens and texts.
fn list(db: &Connection) -> Vec<(u64, String)> {
    let mut select = db
        .prepare("SELECT token, text FROM list ORDER BY number")
        .unwrap();
    let rows = select
        .query_map([], |row| Ok((row.get::<_, i64>(0)? as u64, row.get(1)?)))
        .unwrap();
    rows.map(Result::unwrap).collect()
}

/// A bearer that remembers what it was told.
struct Told(Proof, Cell<Option<Refusal>>);

impl Bearer for Told {
    fn proof(&self) -> Proof {
        self.0.clone()
    }

    fn refused(&self, refusal: &Refusal) {
        self.1.set(Some(refusal.clone()));
    }
}
