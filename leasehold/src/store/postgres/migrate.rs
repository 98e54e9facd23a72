//! Creates and updates the schema `leasehold`: in one transaction, as often as one likes, beside running holders.

use super::{SCHEMA_VERSION, address::Address, fault, link::Links};
use crate::StoreError;

/// The tables and functions.
pub const SCHEMA: &str = concat!(
    include_str!("tables.sql"),
    "\n",
    include_str!("common.sql"),
    "\n",
    include_str!("lease.sql"),
    "\n",
    include_str!("fence.sql"),
    "\n",
    include_str!("protect.sql"),
    "\n",
    include_str!("ledger.sql"),
    "\n",
    include_str!("operate.sql"),
);

/// [`SCHEMA`] and the line that notes its version: all that [`migrate`] does.
pub fn script() -> String {
    format!(
        "{SCHEMA}\nINSERT INTO leasehold.meta (version) VALUES ({SCHEMA_VERSION}) \
         ON CONFLICT (one) DO UPDATE SET version = excluded.version;\n"
    )
}

/// Brings the database at `url` to [`SCHEMA_VERSION`] and answers the version that was there before, if any. Refuses
/// to go back to an older one.
pub async fn migrate(url: &str) -> Result<Option<i32>, StoreError> {
    let mut link = Links::new(Address::parse(url)?).connect(None).await?;
    let client = link.client();
    let step = client
        .transaction()
        .await
        .map_err(|error| fault::of_connect(&error))?;
    // One migration at a time; the others wait and then find nothing to do.
    let was = async {
        step.batch_execute(
            "SET LOCAL lock_timeout = '10s'; SELECT pg_advisory_xact_lock(1279611219)",
        )
        .await?;
        let there = step
            .query_one("SELECT to_regclass('leasehold.meta') IS NOT NULL", &[])
            .await?;
        match there.get::<_, bool>(0) {
            true => Ok(step
                .query_opt("SELECT version FROM leasehold.meta", &[])
                .await?
                .map(|row| row.get(0))),
            false => Ok(None),
        }
    };
    let was: Option<i32> = was.await.map_err(|error| fault::of_statement(&error))?;
    if was.is_some_and(|was| was > SCHEMA_VERSION) {
        return Err(fault::wrong_schema(was));
    }
    let done = async {
        step.batch_execute(SCHEMA).await?;
        step.execute(
            "INSERT INTO leasehold.meta (version) VALUES ($1) ON CONFLICT (one) DO UPDATE SET version = excluded.version",
            &[&SCHEMA_VERSION],
        )
        .await?;
        step.commit().await
    };
    done.await.map_err(|error| fault::of_statement(&error))?;
    Ok(was)
}
