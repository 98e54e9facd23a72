//! `sql`: what `migrate` would do to a database, to read before it runs or to run by other means.

use leasehold::store::postgres;

use crate::{
    exit::{Exit, Failure},
    out,
};

/// The databases that have a schema of ours.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Database {
    /// Everything in the schema leasehold
    Postgres,
}

/// See the module.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The script can be run again: it creates what is missing and replaces functions.

Examples:
  leasehold sql postgres | less
  leasehold sql postgres | psql -1 -v ON_ERROR_STOP=1 mydb")]
pub(crate) struct Sql {
    /// Which database
    database: Database,
}

impl Sql {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let Database::Postgres = self.database;
        out::bytes(postgres::script().as_bytes())?;
        Ok(Exit::DONE)
    }
}
