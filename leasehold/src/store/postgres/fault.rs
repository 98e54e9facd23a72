//! What a PostgreSQL error means for the caller (L14): certainly not applied, perhaps applied, or never.

use tokio_postgres::{Error, error::SqlState};

use super::SCHEMA_VERSION;
pub(super) use crate::store::remote::{unavailable, unknown};
use crate::{StoreError, store::remote::with_causes};

fn invalid(what: String) -> StoreError {
    StoreError::Invalid { what }
}

pub(super) fn no_schema() -> StoreError {
    invalid(
        "this database has no schema leasehold: create it with `leasehold migrate --store URL`"
            .into(),
    )
}

pub(super) fn wrong_schema(found: Option<i32>) -> StoreError {
    invalid(match found {
        Some(found) if found > SCHEMA_VERSION => format!(
            "the schema leasehold has version {found}, this program knows {SCHEMA_VERSION}: use a newer program"
        ),
        Some(found) => format!(
            "the schema leasehold has version {found}, this program needs {SCHEMA_VERSION}: run `leasehold migrate --store URL`"
        ),
        None => "the schema leasehold is not complete: run `leasehold migrate --store URL`".into(),
    })
}

/// Nothing was sent yet but the password, so nothing was applied. Messages of the server never hold the password.
pub(super) fn of_connect(error: &Error) -> StoreError {
    let what = words(error);
    match error.code() {
        Some(code) if is_set_up(code) => invalid(what),
        // The driver's own word for what the URL lacks, such as a password.
        None if what.starts_with("invalid configuration") => invalid(what),
        _ => StoreError::Unavailable { what },
    }
}

/// An error the server reports rolled the statement back; a connection that broke under it tells nothing. A backend
/// that was ended while it waited for the standby had committed (PG6).
pub(super) fn of_statement(error: &Error) -> StoreError {
    let what = words(error);
    match error.code() {
        None => StoreError::Unknown { what },
        Some(code) if is_shutdown(code) || code.code().starts_with("08") => {
            StoreError::Unknown { what }
        }
        Some(code) if is_set_up(code) => invalid(what),
        Some(_) => StoreError::Unavailable { what },
    }
}

fn is_shutdown(code: &SqlState) -> bool {
    [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN].contains(code)
}

/// What no retry mends: passwords, names, rights, the schema, a value that is not allowed.
fn is_set_up(code: &SqlState) -> bool {
    let classes = ["0A", "22", "28", "3D", "3F", "42"];
    classes.iter().any(|class| code.code().starts_with(class))
}

fn words(error: &Error) -> String {
    match error.as_db_error() {
        Some(db) => match db.code().code() {
            "42883" | "42P01" | "3F000" => {
                format!("{} (run `leasehold migrate --store URL`)", db.message())
            }
            "42501" => format!(
                "{} (GRANT USAGE ON SCHEMA leasehold TO this role)",
                db.message()
            ),
            code => format!("{} (SQLSTATE {code})", db.message()),
        },
        None => with_causes(error),
    }
}
