//! `sql`: what Leasehold wants in a database, to read before it is run or to run by other means.

use leasehold::{fence::sqlite, store::postgres};

use crate::{
    exit::{Exit, Failure},
    out,
};

/// The databases that have a schema of ours.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Database {
    /// The store, its fences and its ledger: the schema leasehold, as `migrate` makes it
    Postgres,
    /// The tables for fences and ledger in a database of your own; a store's own file needs nothing
    Sqlite,
}

/// See the module.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The scripts can be run again: they create what is missing and replace functions.

In SQLite a write is fenced if its transaction is BEGIN IMMEDIATE, and first of all finds the row
  SELECT 1 FROM leasehold_fence
    WHERE resource = 'reports' AND lease = 'nightly' AND token = 2;
A new holder raises the fence in a transaction of its own before it reads:
  INSERT INTO leasehold_fence VALUES ('reports', 'nightly', 2)
    ON CONFLICT (resource) DO UPDATE SET token = excluded.token
    WHERE lease = excluded.lease AND token <= excluded.token RETURNING token;
No row: somebody else has a larger token. Roll back and stop.

Examples:
  leasehold sql postgres | less
  leasehold sql postgres | psql -1 -v ON_ERROR_STOP=1 mydb
  leasehold sql sqlite | sqlite3 mydata.db")]
pub(crate) struct Sql {
    /// Which database
    database: Database,
}

impl Sql {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let script = match self.database {
            Database::Postgres => postgres::script(),
            Database::Sqlite => sqlite::script(),
        };
        out::bytes(script.as_bytes())?;
        Ok(Exit::DONE)
    }
}
