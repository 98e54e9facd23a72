//! Pairs, fences, lines of the ledger and events: rows to values and back. What is damaged is said so, as in `columns`.

use leasehold_core::{
    AttemptId, Done, Entry, Event, Fence, Fingerprint, Holder, Key, LeaseName, Pair, Proof,
    Resource, Value, What, Work,
};
use rusqlite::{Connection, params};

use super::columns::{Result, damaged, id, nanos, stored_token, token, wall};
use crate::store::Recorded;

/// The tables of fences and ledger, with this in front of their names: the store's own, and those in a user's database.
pub(crate) fn tables(prefix: &str) -> String {
    format!(
        "\
-- The largest token seen, for each receiver.
CREATE TABLE IF NOT EXISTS {prefix}fence(
  resource TEXT    PRIMARY KEY,
  lease    TEXT    NOT NULL,
  token    INTEGER NOT NULL CHECK (token > 0)
) STRICT, WITHOUT ROWID;
-- Work that is done once, under its business fact. Times are nanoseconds since 1970; done is null while it is not.
CREATE TABLE IF NOT EXISTS {prefix}ledger(
  lease       TEXT    NOT NULL,
  key         TEXT    NOT NULL,
  token       INTEGER NOT NULL CHECK (token > 0),
  attempt     BLOB    NOT NULL,
  holder      TEXT    NOT NULL,
  fingerprint BLOB    NOT NULL,
  begun       INTEGER NOT NULL,
  done        INTEGER,
  response    BLOB,
  PRIMARY KEY (lease, key)
) STRICT;
"
    )
}

/// Postcard: the history is for this program; `leasehold history --json` is for others.
pub(super) fn encode(what: &What) -> Result<Vec<u8>> {
    postcard::to_allocvec(what).or_else(|error| damaged(&error.to_string()))
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

/// The fence of a receiver, from a table like the store's own.
pub(crate) fn fence(db: &Connection, table: &str, resource: &Resource) -> Result<Option<Fence>> {
    let sql = format!("SELECT lease, token FROM {table} WHERE resource = ?1");
    let mut select = db.prepare_cached(&sql)?;
    let mut rows = select.query([resource.as_str()])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let lease = LeaseName::new(&row.get::<_, String>(0)?)?;
    let highest = stored_token(row.get(1)?)?;
    Ok(Some(Fence { lease, highest }))
}

pub(crate) fn set_fence(
    db: &Connection,
    table: &str,
    resource: &Resource,
    fence: &Fence,
) -> Result<()> {
    let sql = format!("INSERT OR REPLACE INTO {table}(resource, lease, token) VALUES (?1, ?2, ?3)");
    db.prepare_cached(&sql)?.execute(params![
        resource.as_str(),
        fence.lease.as_str(),
        token(Some(fence.highest))
    ])?;
    Ok(())
}

/// A line of a ledger, from a table like the store's own.
pub(crate) fn entry(db: &Connection, table: &str, work: &Work) -> Result<Option<Entry>> {
    let sql = format!(
        "SELECT token, attempt, holder, fingerprint, begun, done, response \
         FROM {table} WHERE lease = ?1 AND key = ?2"
    );
    let mut select = db.prepare_cached(&sql)?;
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

pub(crate) fn set_entry(
    db: &Connection,
    table: &str,
    work: &Work,
    entry: Option<&Entry>,
) -> Result<()> {
    let (lease, key) = (work.lease.as_str(), work.key.as_str());
    let Some(entry) = entry else {
        let sql = format!("DELETE FROM {table} WHERE lease = ?1 AND key = ?2");
        db.prepare_cached(&sql)?.execute([lease, key])?;
        return Ok(());
    };
    let sql = format!(
        "INSERT OR REPLACE INTO {table}\
         (lease, key, token, attempt, holder, fingerprint, begun, done, response) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)"
    );
    db.prepare_cached(&sql)?.execute(params![
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
            event: Event {
                at: wall(row.get(1)?),
                lease: LeaseName::new(&row.get::<_, String>(2)?)?,
                what,
            },
        });
    }
    Ok(events)
}
