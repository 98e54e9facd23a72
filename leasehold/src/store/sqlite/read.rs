//! The thread that reads, on a connection of its own: readers do not wait for writers, and see all that was answered
//! (L11: a commit is visible before its reply).
//!
//! The clock is read before the record: a lease that was free at one moment and is shown as held was held then.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
    mpsc::{Receiver, SyncSender, sync_channel},
};

use leasehold_core::{LeaseName, Record, Status, StoreTime};
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::{
    clock::{Dated, HostClock},
    columns::{self, RowError},
    place::{Identity, Place},
    schema,
};
use crate::store::StoreError;

/// More requests than this do not wait; their callers are told so.
const QUEUE: usize = 10_000;

type Task = Box<dyn FnOnce(&mut Reading) + Send>;

/// Where to ask for something to be read.
#[derive(Debug)]
pub(super) struct Reader {
    tasks: SyncSender<Task>,
}

/// What the reading thread has.
pub(super) struct Reading {
    place: Place,
    host: HostClock,
    /// See `Writer::distrust`.
    distrust: Arc<AtomicU64>,
    open: Option<(Connection, Identity, u64)>,
}

impl Reader {
    pub(super) fn new(
        place: Place,
        host: HostClock,
        distrust: Arc<AtomicU64>,
    ) -> std::io::Result<Self> {
        let (tasks, queue): (_, Receiver<Task>) = sync_channel(QUEUE);
        let mut reading = Reading {
            place,
            host,
            distrust,
            open: None,
        };
        std::thread::Builder::new()
            .name("leasehold-read".to_owned())
            .spawn(move || {
                for task in queue {
                    task(&mut reading);
                }
            })?;
        Ok(Self { tasks })
    }

    /// Runs `read` on the reading thread. Reading changes nothing, so every failure is `Unavailable` or `Invalid`.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Tables<'_>) -> Result<T, RowError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let task: Task = Box::new(move |reading| {
            // A caller that has gone does not need it.
            let _ = reply.send(reading.read(read));
        });
        let unavailable = |what: &str| StoreError::Unavailable {
            what: what.to_owned(),
        };
        self.tasks
            .try_send(task)
            .map_err(|_| unavailable("too many requests wait to be read"))?;
        answer
            .await
            .map_err(|_| unavailable("the reading thread has ended"))?
    }
}

impl Reading {
    fn read<T>(
        &mut self,
        read: impl FnOnce(&Tables<'_>) -> Result<T, RowError>,
    ) -> Result<T, StoreError> {
        let now = self.host.now();
        let trust = self.distrust.load(Ordering::Relaxed);
        let open = match self.open.take() {
            Some((db, identity, then))
                if then == trust
                    && matches!(self.place.identity(), Ok(Some(now)) if now == identity) =>
            {
                (db, identity, then)
            }
            _ => self.connect(trust)?,
        };
        let result = snapshot(&open.0, |db| {
            read(&Tables {
                db,
                host: &self.host,
                now,
            })
        });
        match result {
            Ok(value) => {
                self.open = Some(open);
                Ok(value)
            }
            Err(RowError::Damaged(what)) => {
                self.open = Some(open);
                Err(schema::unavailable(
                    &self.place,
                    format!("a row is damaged: {what}"),
                ))
            }
            Err(RowError::Sqlite(error)) => Err(schema::explain(&self.place, &error)),
        }
    }

    fn connect(&self, trust: u64) -> Result<(Connection, Identity, u64), StoreError> {
        let db = schema::connect(&self.place)?;
        if !schema::is_ready(&db, &self.place)? {
            return Err(schema::unavailable(&self.place, "it is empty"));
        }
        let explain = |error| schema::explain(&self.place, &error);
        db.busy_timeout(super::READ_PATIENCE).map_err(explain)?;
        db.pragma_update(None, "query_only", "ON")
            .map_err(explain)?;
        match self.place.identity() {
            Ok(Some(identity)) => Ok((db, identity, trust)),
            _ => Err(schema::unavailable(
                &self.place,
                "it was deleted while in use",
            )),
        }
    }
}

/// All queries of one read see one moment.
fn snapshot<T>(
    db: &Connection,
    read: impl FnOnce(&Connection) -> Result<T, RowError>,
) -> Result<T, RowError> {
    db.execute_batch("BEGIN")?;
    let result = read(db);
    match db.execute_batch("COMMIT") {
        Ok(()) => result,
        Err(error) => {
            // The connection is given up with the error.
            Err(RowError::Sqlite(error))
        }
    }
}

/// The tables as a reader sees them.
pub(super) struct Tables<'a> {
    pub(super) db: &'a Connection,
    host: &'a HostClock,
    now: StoreTime,
}

impl Tables<'_> {
    pub(super) fn boot(&self) -> &str {
        self.host.boot()
    }

    pub(super) fn status(&self, name: &LeaseName) -> Result<Option<Status>, RowError> {
        let Some(dated) = columns::lease(self.db, name)? else {
            return Ok(None);
        };
        let record = self.ours(name, dated)?;
        Ok(Some(Status::of(name.clone(), &record, self.now)))
    }

    pub(super) fn list(&self, prefix: &str, limit: usize) -> Result<Vec<Status>, RowError> {
        let mut found = Vec::new();
        let mut from = prefix.to_owned();
        while found.len() < limit {
            let wanted = (limit - found.len()).min(1_000);
            let leases = columns::leases_from(self.db, &from, wanted)?;
            let more = leases.len() == wanted;
            for (name, dated) in leases {
                if !name.as_str().starts_with(prefix) {
                    return Ok(found);
                }
                from = format!("{name}\0");
                let record = self.ours(&name, dated)?;
                found.push(Status::of(name, &record, self.now));
            }
            if !more {
                break;
            }
        }
        Ok(found)
    }

    /// As the writer sees it, but without noting a first sighting: somebody must ask for the lease to begin the wait (A7).
    fn ours(&self, name: &LeaseName, dated: Dated) -> Result<Record, RowError> {
        if self.host.agrees(&dated.boot, dated.written, self.now) {
            return Ok(dated.record);
        }
        let seen = columns::first_seen(self.db, name, self.host.boot(), &dated)?;
        let first = seen.filter(|seen| *seen <= self.now).unwrap_or(self.now);
        Ok(dated.seen_at(first))
    }
}
