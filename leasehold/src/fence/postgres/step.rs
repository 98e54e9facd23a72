//! A transaction of the user's, over whatever driver: one statement, one answer. Statements go with the types of their
//! values and are never prepared by name, so that a pooler may stand between (CRATES 4.4).

use leasehold_core::Token;
use tokio_postgres::types::{ToSql, Type};

use super::super::FenceError;

/// Your own transaction: a `&Transaction` of tokio-postgres or, with the feature `sqlx`, a `&mut Transaction` of sqlx.
/// Nothing else, since a check outside of a transaction is none (F2).
pub trait Step: sealed::Step {}

impl<S: sealed::Step> Step for S {}

/// A value on its way to the server.
#[derive(Clone, Copy, Debug)]
pub enum Arg<'a> {
    /// Text.
    Text(&'a str),
    /// A token.
    Token(Token),
    /// Microseconds since 1970, or NULL.
    Micros(Option<i64>),
    /// Bytes, or NULL.
    Bytes(Option<&'a [u8]>),
    /// True or false.
    Flag(bool),
}

pub(super) mod sealed {
    use super::{Arg, FenceError};

    pub trait Step: Send {
        /// The first column of the first row, which is text.
        fn ask(
            &mut self,
            sql: &'static str,
            values: &[Arg<'_>],
        ) -> impl Future<Output = Result<Option<String>, FenceError>> + Send;
    }
}

impl sealed::Step for &tokio_postgres::Transaction<'_> {
    async fn ask(
        &mut self,
        sql: &'static str,
        values: &[Arg<'_>],
    ) -> Result<Option<String>, FenceError> {
        let values: Vec<(Box<dyn ToSql + Sync + Send + '_>, Type)> =
            values.iter().map(|value| typed(*value)).collect();
        let params: Vec<(&(dyn ToSql + Sync), Type)> = values
            .iter()
            .map(|(value, r#type)| (&**value as &(dyn ToSql + Sync), r#type.clone()))
            .collect();
        let rows = self.query_typed(sql, &params).await.map_err(of_tokio)?;
        match rows.first() {
            Some(row) => Ok(row.try_get(0)?),
            None => Ok(None),
        }
    }
}

fn typed<'a>(value: Arg<'a>) -> (Box<dyn ToSql + Sync + Send + 'a>, Type) {
    match value {
        Arg::Text(text) => (Box::new(text), Type::TEXT),
        Arg::Token(token) => (Box::new(token.get().cast_signed()), Type::INT8),
        Arg::Micros(micros) => (Box::new(micros), Type::INT8),
        Arg::Bytes(bytes) => (Box::new(bytes), Type::BYTEA),
        Arg::Flag(flag) => (Box::new(flag), Type::BOOL),
    }
}

/// A refusal, or what else went wrong.
pub(super) fn of_tokio(error: tokio_postgres::Error) -> FenceError {
    let refused = error
        .as_db_error()
        .and_then(|db| super::refusal(db.code().code(), db.constraint(), db.detail()));
    match refused {
        Some(refusal) => FenceError::Refused(refusal),
        None => FenceError::Postgres(error),
    }
}

#[cfg(feature = "sqlx")]
impl sealed::Step for &mut sqlx::Transaction<'_, sqlx::Postgres> {
    async fn ask(
        &mut self,
        sql: &'static str,
        values: &[Arg<'_>],
    ) -> Result<Option<String>, FenceError> {
        let mut query = sqlx::query_scalar::<_, Option<String>>(sql).persistent(false);
        for value in values {
            query = match *value {
                Arg::Text(text) => query.bind(text.to_owned()),
                Arg::Token(token) => query.bind(token.get().cast_signed()),
                Arg::Micros(micros) => query.bind(micros),
                Arg::Bytes(bytes) => query.bind(bytes.map(<[u8]>::to_vec)),
                Arg::Flag(flag) => query.bind(flag),
            };
        }
        let row = query.fetch_optional(&mut ***self).await.map_err(of_sqlx)?;
        Ok(row.flatten())
    }
}

#[cfg(feature = "sqlx")]
fn of_sqlx(error: sqlx::Error) -> FenceError {
    let refused = error
        .as_database_error()
        .and_then(|db| db.try_downcast_ref::<sqlx::postgres::PgDatabaseError>())
        .and_then(|db| super::refusal(db.code(), db.constraint(), db.detail()));
    match refused {
        Some(refusal) => FenceError::Refused(refusal),
        None => FenceError::Sqlx(error),
    }
}
