//! `migrate`: brings the schema of a database store to this program's version, in one transaction, beside running holders.

use leasehold::store::postgres;

use crate::{
    app::App,
    exit::{Exit, Failure},
    out,
};

/// See the module.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
It can be run again, and refuses to go back to an older version. The role needs the right to create a schema; roles \
that only hold leases need: GRANT USAGE ON SCHEMA leasehold TO role.

Examples:
  leasehold --store postgres://admin@db.example/app migrate")]
pub(crate) struct Migrate {}

impl Migrate {
    pub(crate) async fn run(self, app: &App) -> Result<Exit, Failure> {
        let (url, place) = (app.url()?, app.place()?);
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(Failure::usage(format!(
                "store \"{place}\" has nothing to migrate: only a postgres:// store has tables to create first"
            )));
        }
        let was = postgres::migrate(&url).await.map_err(Failure::from)?;
        let now = postgres::SCHEMA_VERSION;
        match (app.json, was) {
            (true, was) => out::json(&serde_json::json!({"was": was, "version": now}))?,
            (false, None) => out::line(&format!("created the schema leasehold, version {now}"))?,
            (false, Some(was)) => out::line(&format!(
                "the schema leasehold was version {was}, is version {now}"
            ))?,
        }
        Ok(Exit::DONE)
    }
}
