//! The rows of [`leasehold_core::apply`] as tables, inside one transaction.

use leasehold_core::{
    Entry, Event, Fence, Key, LeaseName, Pair, Record, Resource, Rows, Stamp, StoreTime, Token,
    WallTime, Work,
};
use rusqlite::{Connection, OptionalExtension, ToSql};

use super::{
    clock::{Dated, HostClock},
    columns::{self, RowError},
    contents,
};
use crate::store::HISTORY_KEPT;

/// The event log is cut back this many events at a time.
const CUT: u64 = 1_000;

/// The tables, at one moment of the store's clock.
#[derive(Debug)]
pub(super) struct Tables<'a> {
    db: &'a Connection,
    host: &'a HostClock,
    stamp: Stamp,
    /// Whether anything was written.
    pub(super) written: bool,
    /// The largest token that was written.
    pub(super) newest: Option<Token>,
}

impl<'a> Tables<'a> {
    pub(super) fn new(db: &'a Connection, host: &'a HostClock, stamp: Stamp) -> Self {
        Self {
            db,
            host,
            stamp,
            written: false,
            newest: None,
        }
    }

    fn write(&mut self, sql: &str, values: &[&dyn ToSql]) -> Result<(), RowError> {
        self.written = true;
        self.db.prepare_cached(sql)?.execute(values)?;
        Ok(())
    }

    /// When this state of a foreign record was first seen by our clock: now, if it was not (A7).
    fn first_sighting(&mut self, name: &LeaseName, dated: &Dated) -> Result<StoreTime, RowError> {
        let (now, boot) = (self.stamp.now, self.host.boot());
        let seen = columns::first_seen(self.db, name, boot, dated)?;
        if let Some(seen) = seen.filter(|seen| *seen <= now) {
            return Ok(seen);
        }
        self.written = true;
        columns::set_first_seen(self.db, name, boot, dated, now)?;
        Ok(now)
    }

    /// The row's record, on our clock.
    fn ours(&mut self, name: &LeaseName, dated: Dated) -> Result<Record, RowError> {
        if self.host.agrees(&dated.boot, dated.written, self.stamp.now) {
            return Ok(dated.record);
        }
        let first = self.first_sighting(name, &dated)?;
        Ok(dated.seen_at(first))
    }

    /// Up to `limit` leases whose names are not before `from`, by name.
    pub(super) fn leases_from(
        &mut self,
        from: &str,
        limit: usize,
    ) -> Result<Vec<(LeaseName, Record)>, RowError> {
        let rows = columns::leases_from(self.db, from, limit)?;
        let ours = rows.into_iter().map(|(name, dated)| {
            let record = self.ours(&name, dated)?;
            Ok((name, record))
        });
        ours.collect()
    }

    pub(super) fn forget_lease(&mut self, name: &LeaseName) -> Result<(), RowError> {
        self.write("DELETE FROM lease WHERE name = ?1", &[&name.as_str()])
    }

    /// Forgets what was seen of states that are over.
    pub(super) fn forget_sightings(&mut self) -> Result<(), RowError> {
        self.write(
            "DELETE FROM sighting WHERE NOT EXISTS (SELECT 1 FROM lease \
             WHERE lease.name = sighting.name AND lease.boot = sighting.of_boot \
             AND lease.token IS sighting.token AND lease.expires = sighting.expires)",
            &[],
        )
    }

    /// Forgets up to `limit` lines of the ledger from before `from`, and remembers that it did (`Entry::collectable`, I9).
    pub(super) fn forget_work(&mut self, from: WallTime, limit: usize) -> Result<u64, RowError> {
        let from = columns::nanos(from.as_nanos());
        self.write("UPDATE store SET kept_from = max(kept_from, ?1)", &[&from])?;
        let sql = "DELETE FROM ledger WHERE rowid IN \
                   (SELECT rowid FROM ledger WHERE coalesce(done, begun) < ?1 LIMIT ?2)";
        let gone = self.db.prepare_cached(sql)?.execute((from, limit as i64))?;
        Ok(gone as u64)
    }
}

impl Rows for Tables<'_> {
    type Error = RowError;

    fn lease(&mut self, name: &LeaseName) -> Result<Option<Record>, RowError> {
        match columns::lease(self.db, name)? {
            Some(dated) => self.ours(name, dated).map(Some),
            None => Ok(None),
        }
    }

    fn set_lease(&mut self, name: &LeaseName, record: Record) -> Result<(), RowError> {
        self.written = true;
        self.newest = self.newest.max(record.token);
        columns::set_lease(self.db, name, &record, self.host.boot(), self.stamp.now)
    }

    fn lease_names(&mut self) -> Result<Vec<LeaseName>, RowError> {
        columns::lease_names(self.db)
    }

    fn floor(&mut self) -> Result<Option<Token>, RowError> {
        let mut select = self.db.prepare_cached("SELECT floor FROM store")?;
        let floor: Option<i64> = select.query_row([], |row| row.get(0))?;
        floor.map(columns::stored_token).transpose()
    }

    fn set_floor(&mut self, floor: Token) -> Result<(), RowError> {
        self.newest = self.newest.max(Some(floor));
        self.write(
            "UPDATE store SET floor = ?1",
            &[&columns::token(Some(floor))],
        )
    }

    fn pair(&mut self, key: &Key) -> Result<Option<Pair>, RowError> {
        contents::pair(self.db, key)
    }

    fn set_pair(&mut self, key: &Key, pair: Option<Pair>) -> Result<(), RowError> {
        let Some(pair) = pair else {
            return self.write("DELETE FROM pair WHERE key = ?1", &[&key.as_str()]);
        };
        let lease = pair.fence.as_ref().map(|proof| proof.lease.as_str());
        let token = columns::token(pair.fence.as_ref().map(|proof| proof.token));
        self.write(
            "INSERT OR REPLACE INTO pair VALUES (?1, ?2, ?3, ?4)",
            &[&key.as_str(), &pair.value.as_bytes(), &lease, &token],
        )
    }

    fn fence(&mut self, resource: &Resource) -> Result<Option<Fence>, RowError> {
        contents::fence(self.db, "fence", resource)
    }

    fn set_fence(&mut self, resource: &Resource, fence: Fence) -> Result<(), RowError> {
        self.written = true;
        contents::set_fence(self.db, "fence", resource, &fence)
    }

    fn entry(&mut self, work: &Work) -> Result<Option<Entry>, RowError> {
        contents::entry(self.db, "ledger", work)
    }

    fn set_entry(&mut self, work: &Work, entry: Option<Entry>) -> Result<(), RowError> {
        self.written = true;
        contents::set_entry(self.db, "ledger", work, entry.as_ref())
    }

    fn kept_from(&mut self) -> Result<WallTime, RowError> {
        let mut select = self.db.prepare_cached("SELECT kept_from FROM store")?;
        let from: i64 = select.query_row([], |row| row.get(0))?;
        Ok(columns::wall(from))
    }

    fn newest_event(&mut self) -> Result<WallTime, RowError> {
        let mut select = self
            .db
            .prepare_cached("SELECT at FROM event ORDER BY number DESC LIMIT 1")?;
        let at: Option<i64> = select.query_row([], |row| row.get(0)).optional()?;
        Ok(columns::wall(at.unwrap_or(0)))
    }

    fn event(&mut self, event: Event) -> Result<(), RowError> {
        let what = contents::encode(&event.what)?;
        self.write(
            "INSERT INTO event VALUES ((SELECT coalesce(max(number), 0) + 1 FROM event), ?1, ?2, ?3)",
            &[&columns::nanos(event.at.as_nanos()), &event.lease.as_str(), &what],
        )?;
        let number = self.db.last_insert_rowid() as u64;
        if number > HISTORY_KEPT && number.is_multiple_of(CUT) {
            let last = columns::nanos(number - HISTORY_KEPT);
            self.write("DELETE FROM event WHERE number <= ?1", &[&last])?;
        }
        Ok(())
    }
}
