//! Lease rows to records and back, for writers and readers. A row that holds what no type allows is damaged, and
//! said so; it never panics and is never taken for something else.

use leasehold_core::{
    Holder, Info, Invalid, LeaseName, LockDelay, Record, RenewId, RequestId, Session, StoreTime,
    Tenure, Token, Ttl, WallTime,
};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::clock::Dated;

/// Why a row could not be read or written.
#[derive(Debug)]
pub(crate) enum RowError {
    Sqlite(rusqlite::Error),
    /// It holds something that was never stored.
    Damaged(String),
}

impl From<rusqlite::Error> for RowError {
    fn from(error: rusqlite::Error) -> Self {
        match error {
            rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::Utf8Error(..) => Self::Damaged(error.to_string()),
            error => Self::Sqlite(error),
        }
    }
}

impl From<Invalid> for RowError {
    fn from(invalid: Invalid) -> Self {
        Self::Damaged(invalid.to_string())
    }
}

pub(crate) type Result<T> = std::result::Result<T, RowError>;

pub(super) fn damaged<T>(what: &str) -> Result<T> {
    Err(RowError::Damaged(what.to_owned()))
}

/// Nanoseconds as a column holds them; no time of a machine's life is above 2^63.
pub(crate) fn nanos(nanos: u64) -> i64 {
    i64::try_from(nanos).unwrap_or(i64::MAX)
}

fn time(nanos: i64) -> StoreTime {
    StoreTime::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

pub(crate) fn wall(nanos: i64) -> WallTime {
    WallTime::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

pub(super) fn token(token: Option<Token>) -> Option<i64> {
    token.map(|token| nanos(token.get()))
}

pub(super) fn stored_token(number: i64) -> Result<Token> {
    Ok(Token::new(u64::try_from(number).unwrap_or(0))?)
}

pub(super) fn id<T>(row: &Row<'_>, column: usize, from_bits: fn(u128) -> Option<T>) -> Result<T> {
    match from_bits(u128::from_be_bytes(row.get(column)?)) {
        Some(id) => Ok(id),
        None => damaged("an id of zero"),
    }
}

macro_rules! select_lease {
    ($rest:literal) => {
        concat!(
            "SELECT name, token, expires, written, boot, ttl_ms, delay_ms, session, request_id, ",
            "holder, info, granted, released, renewals, renew_id FROM lease ",
            $rest
        )
    };
}

pub(super) fn lease(db: &Connection, name: &LeaseName) -> Result<Option<Dated>> {
    let mut select = db.prepare_cached(select_lease!("WHERE name = ?1"))?;
    let mut rows = select.query([name.as_str()])?;
    rows.next()?.map(dated).transpose()
}

/// Up to `limit` leases whose names are not before `from`, by name.
pub(super) fn leases_from(
    db: &Connection,
    from: &str,
    limit: usize,
) -> Result<Vec<(LeaseName, Dated)>> {
    let mut select = db.prepare_cached(select_lease!("WHERE name >= ?1 ORDER BY name LIMIT ?2"))?;
    let mut rows = select.query(params![from, i64::try_from(limit).unwrap_or(i64::MAX)])?;
    let mut leases = Vec::new();
    while let Some(row) = rows.next()? {
        let name: String = row.get(0)?;
        leases.push((LeaseName::new(&name)?, dated(row)?));
    }
    Ok(leases)
}

pub(super) fn lease_names(db: &Connection) -> Result<Vec<LeaseName>> {
    let mut select = db.prepare_cached("SELECT name FROM lease ORDER BY name")?;
    let mut rows = select.query([])?;
    let mut names = Vec::new();
    while let Some(row) = rows.next()? {
        names.push(LeaseName::new(&row.get::<_, String>(0)?)?);
    }
    Ok(names)
}

fn dated(row: &Row<'_>) -> Result<Dated> {
    let token: Option<i64> = row.get(1)?;
    let delay: u32 = row.get(6)?;
    let record = Record {
        token: token.map(stored_token).transpose()?,
        expires: time(row.get(2)?),
        ttl: Ttl::from_millis(row.get::<_, u32>(5)?.into())?,
        lock_delay: LockDelay::try_from(delay)?,
        tenure: match row.get::<_, Option<String>>(9)? {
            Some(holder) => Some(tenure(row, &holder)?),
            None => None,
        },
    };
    Ok(Dated {
        record,
        written: time(row.get(3)?),
        boot: row.get(4)?,
    })
}

fn tenure(row: &Row<'_>, holder: &str) -> Result<Tenure> {
    let info: Option<String> = row.get(10)?;
    let renew_id: Option<[u8; 16]> = row.get(14)?;
    Ok(Tenure {
        session: id(row, 7, Session::from_bits)?,
        request_id: id(row, 8, RequestId::from_bits)?,
        holder: Holder::new(holder)?,
        info: info.as_deref().map(Info::new).transpose()?,
        granted: time(row.get(11)?),
        released: row.get(12)?,
        renewals: row.get::<_, i64>(13)?.unsigned_abs(),
        renew_id: match renew_id {
            Some(_) => Some(id(row, 14, RenewId::from_bits)?),
            None => None,
        },
    })
}

/// Stores a record whose times are on the clock of `boot`.
pub(super) fn set_lease(
    db: &Connection,
    name: &LeaseName,
    record: &Record,
    boot: &str,
    now: StoreTime,
) -> Result<()> {
    let tenure = record.tenure.as_ref();
    db.prepare_cached(
        // In place: to replace the row would write a new one and two pages of the index with it.
        "INSERT INTO lease VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15) \
         ON CONFLICT (name) DO UPDATE SET \
         (token, expires, written, boot, ttl_ms, delay_ms, session, request_id, \
          holder, info, granted, released, renewals, renew_id) \
         = (?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15)",
    )?
    .execute(params![
        name.as_str(),
        token(record.token),
        nanos(record.expires.as_nanos()),
        nanos(now.as_nanos()),
        boot,
        record.ttl.as_millis(),
        record.lock_delay.as_millis(),
        tenure.map(|tenure| tenure.session.bits().to_be_bytes()),
        tenure.map(|tenure| tenure.request_id.bits().to_be_bytes()),
        tenure.map(|tenure| tenure.holder.as_str()),
        tenure
            .and_then(|tenure| tenure.info.as_ref())
            .map(Info::as_str),
        tenure.map(|tenure| nanos(tenure.granted.as_nanos())),
        tenure.map(|tenure| tenure.released),
        tenure.map(|tenure| nanos(tenure.renewals)),
        tenure
            .and_then(|tenure| tenure.renew_id)
            .map(|id| id.bits().to_be_bytes()),
    ])?;
    Ok(())
}

/// When the clock of `boot` first saw this state of a lease of another clock.
pub(super) fn first_seen(
    db: &Connection,
    name: &LeaseName,
    boot: &str,
    dated: &Dated,
) -> Result<Option<StoreTime>> {
    let mut select = db.prepare_cached(
        "SELECT seen FROM sighting \
         WHERE name = ?1 AND boot = ?2 AND of_boot = ?3 AND token IS ?4 AND expires = ?5",
    )?;
    let (token, expires) = (
        token(dated.record.token),
        nanos(dated.record.expires.as_nanos()),
    );
    let seen: Option<i64> = select
        .query_row(
            params![name.as_str(), boot, dated.boot, token, expires],
            |row| row.get(0),
        )
        .optional()?;
    Ok(seen.map(time))
}

/// Notes that it saw it now.
pub(super) fn set_first_seen(
    db: &Connection,
    name: &LeaseName,
    boot: &str,
    dated: &Dated,
    now: StoreTime,
) -> Result<()> {
    let (token, expires) = (
        token(dated.record.token),
        nanos(dated.record.expires.as_nanos()),
    );
    db.prepare_cached("INSERT OR REPLACE INTO sighting VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
        .execute(params![
            name.as_str(),
            boot,
            dated.boot,
            token,
            expires,
            nanos(now.as_nanos())
        ])?;
    Ok(())
}
