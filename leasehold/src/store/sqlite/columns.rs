//! Rows of the tables to values and back, for writers and readers. A row that holds what no type allows is damaged, and
//! said so; it never panics and is never taken for something else.

use leasehold_core::{
    AttemptId, Done, Entry, Fence, Fingerprint, Holder, Info, Invalid, Key, LeaseName, LockDelay,
    Pair, Proof, Record, RenewId, RequestId, Resource, Session, StoreTime, Tenure, Token, Ttl,
    Value, WallTime, What, Work,
};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::clock::Dated;
use crate::store::Recorded;

/// Why a row could not be read or written.
#[derive(Debug)]
pub(super) enum RowError {
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

type Result<T> = std::result::Result<T, RowError>;

fn damaged<T>(what: &str) -> Result<T> {
    Err(RowError::Damaged(what.to_owned()))
}

/// Nanoseconds as a column holds them; no time of a machine's life is above 2^63.
pub(super) fn nanos(nanos: u64) -> i64 {
    i64::try_from(nanos).unwrap_or(i64::MAX)
}

fn time(nanos: i64) -> StoreTime {
    StoreTime::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

pub(super) fn wall(nanos: i64) -> WallTime {
    WallTime::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

pub(super) fn token(token: Option<Token>) -> Option<i64> {
    token.map(|token| nanos(token.get()))
}

pub(super) fn stored_token(number: i64) -> Result<Token> {
    Ok(Token::new(u64::try_from(number).unwrap_or(0))?)
}

/// Postcard: the history is for this program; `leasehold history --json` is for others.
pub(super) fn encode(what: &What) -> Result<Vec<u8>> {
    postcard::to_allocvec(what).or_else(|error| damaged(&error.to_string()))
}

fn id<T>(row: &Row<'_>, column: usize, from_bits: fn(u128) -> Option<T>) -> Result<T> {
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
        "INSERT OR REPLACE INTO lease VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15)",
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

pub(super) fn pair(db: &Connection, key: &Key) -> Result<Option<Pair>> {
    let mut select = db.prepare_cached("SELECT value, lease, token FROM pair WHERE key = ?1")?;
    let mut rows = select.query([key.as_str()])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let fence = match row.get::<_, Option<String>>(1)? {
        Some(lease) => Some(Proof {
            lease: LeaseName::new(&lease)?,
            token: stored_token(row.get(2)?)?,
        }),
        None => None,
    };
    let value = Value::new(&row.get::<_, Vec<u8>>(0)?)?;
    Ok(Some(Pair { value, fence }))
}

pub(super) fn fence(db: &Connection, resource: &Resource) -> Result<Option<Fence>> {
    let mut select = db.prepare_cached("SELECT lease, token FROM fence WHERE resource = ?1")?;
    let mut rows = select.query([resource.as_str()])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let lease = LeaseName::new(&row.get::<_, String>(0)?)?;
    Ok(Some(Fence {
        lease,
        highest: stored_token(row.get(1)?)?,
    }))
}

pub(super) fn entry(db: &Connection, work: &Work) -> Result<Option<Entry>> {
    let mut select = db.prepare_cached(
        "SELECT token, attempt, holder, fingerprint, begun, done, response \
         FROM ledger WHERE lease = ?1 AND key = ?2",
    )?;
    let mut rows = select.query([work.lease.as_str(), work.key.as_str()])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let done = match row.get::<_, Option<i64>>(5)? {
        Some(at) => Some(Done {
            at: wall(at),
            response: Value::new(&row.get::<_, Vec<u8>>(6)?)?,
        }),
        None => None,
    };
    Ok(Some(Entry {
        token: stored_token(row.get(0)?)?,
        attempt: id(row, 1, AttemptId::from_bits)?,
        holder: Holder::new(&row.get::<_, String>(2)?)?,
        fingerprint: Fingerprint(row.get(3)?),
        begun: wall(row.get(4)?),
        done,
    }))
}

pub(super) fn set_entry(db: &Connection, work: &Work, entry: Option<&Entry>) -> Result<()> {
    let (lease, key) = (work.lease.as_str(), work.key.as_str());
    let Some(entry) = entry else {
        db.prepare_cached("DELETE FROM ledger WHERE lease = ?1 AND key = ?2")?
            .execute([lease, key])?;
        return Ok(());
    };
    db.prepare_cached(
        "INSERT OR REPLACE INTO ledger(lease, key, token, attempt, holder, fingerprint, begun, done, response) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?
    .execute(params![
        lease,
        key,
        token(Some(entry.token)),
        entry.attempt.bits().to_be_bytes(),
        entry.holder.as_str(),
        entry.fingerprint.0,
        nanos(entry.begun.as_nanos()),
        entry.done.as_ref().map(|done| nanos(done.at.as_nanos())),
        entry.done.as_ref().map(|done| done.response.as_bytes()),
    ])?;
    Ok(())
}

pub(super) fn history(
    db: &Connection,
    name: Option<&LeaseName>,
    after: u64,
    limit: usize,
) -> Result<Vec<Recorded>> {
    let sql = match name {
        Some(_) => {
            "SELECT number, at, lease, what FROM event \
             WHERE number > ?1 AND lease = ?3 ORDER BY number LIMIT ?2"
        }
        None => {
            "SELECT number, at, lease, what FROM event \
             WHERE number > ?1 AND ?3 IS NULL ORDER BY number LIMIT ?2"
        }
    };
    let mut select = db.prepare_cached(sql)?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut rows = select.query(params![nanos(after), limit, name.map(LeaseName::as_str)])?;
    let mut events = Vec::new();
    while let Some(row) = rows.next()? {
        let what: Vec<u8> = row.get(3)?;
        let what = match postcard::from_bytes::<What>(&what) {
            Ok(what) => what,
            Err(error) => return damaged(&format!("an event: {error}")),
        };
        events.push(Recorded {
            number: row.get::<_, i64>(0)?.unsigned_abs(),
            event: leasehold_core::Event {
                at: wall(row.get(1)?),
                lease: LeaseName::new(&row.get::<_, String>(2)?)?,
                what,
            },
        });
    }
    Ok(events)
}
