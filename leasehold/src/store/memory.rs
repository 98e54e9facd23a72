//! `memory:` for tests and the demo.
//!
//! Who judges expiry: this store, by the clock it was given. Tokens: counted here, per lease. A crash keeps nothing:
//! the store lives and dies with its process.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use leasehold_core::{
    Entry, Fence, Key, LeaseName, Op, Outcome, Pair, Resource, Stamp, Status, StoreTime, Table,
    Ttl, Work,
};
use tokio::sync::watch;

use super::{Changes, Finding, HISTORY_KEPT, Level, Profile, Recorded, Store, StoreError, frees};
use crate::clock::{BootClock, Clock};

/// A store in the memory of one process. Clones of its `Arc` share it.
#[derive(Debug)]
pub struct MemoryStore {
    profile: Profile,
    clock: Arc<dyn Clock>,
    inner: Mutex<Inner>,
    changes: watch::Sender<u64>,
}

impl MemoryStore {
    /// An empty store on the machine's clock.
    pub fn new() -> Arc<Self> {
        Self::with_clock(BootClock::new())
    }

    /// An empty store whose time is what `clock` says: a test moves it by hand.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            profile: Profile {
                scheme: "memory",
                clock: "the store, by the boot clock of its process",
                tokens: "counted per lease",
                durability: "none: it ends with its process",
                min_ttl: Ttl::MIN,
                extension: Duration::ZERO,
                dense: true,
                fifo: false,
                lock_delay: true,
                pairs: true,
                fences: true,
                ledger: true,
                history: true,
            },
            clock,
            inner: Mutex::default(),
            changes: watch::Sender::default(),
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stamp(&self) -> Stamp {
        Stamp {
            now: StoreTime::from_nanos(self.clock.now().as_nanos()),
            wall: self.clock.wall(),
        }
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    async fn apply(&self, op: Op) -> Result<Outcome, StoreError> {
        let mut inner = self.inner();
        let stamp = self.stamp();
        let outcome = inner.apply(op, stamp);
        drop(inner);
        if frees(&outcome) {
            self.changes.send_modify(|count| *count += 1);
        }
        Ok(outcome)
    }

    async fn status(&self, name: &LeaseName) -> Result<Option<Status>, StoreError> {
        let inner = self.inner();
        Ok(inner.table.status(name, self.stamp().now))
    }

    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<Status>, StoreError> {
        let inner = self.inner();
        Ok(inner.table.list(prefix, limit, self.stamp().now))
    }

    async fn pair(&self, key: &Key) -> Result<Option<Pair>, StoreError> {
        Ok(self.inner().table.pair(key).cloned())
    }

    async fn fence(&self, resource: &Resource) -> Result<Option<Fence>, StoreError> {
        Ok(self.inner().table.fence(resource).cloned())
    }

    async fn entry(&self, work: &Work) -> Result<Option<Entry>, StoreError> {
        Ok(self.inner().table.entry(work).cloned())
    }

    async fn history(
        &self,
        name: Option<&LeaseName>,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Recorded>, StoreError> {
        let inner = self.inner();
        let wanted = inner.history.iter().filter(|recorded| {
            recorded.number > after && name.is_none_or(|name| *name == recorded.event.lease)
        });
        Ok(wanted.take(limit).cloned().collect())
    }

    fn changes(&self) -> Changes {
        Changes::new(self.changes.subscribe())
    }

    async fn collect(&self) -> Result<u64, StoreError> {
        let mut inner = self.inner();
        let stamp = self.stamp();
        Ok(inner.table.collect(stamp, Entry::KEPT) as u64)
    }

    async fn examine(&self) -> Result<Vec<Finding>, StoreError> {
        Ok(vec![Finding {
            level: Level::Warning,
            what: "the leases live in the memory of this process: no other process sees them, \
                   and they end with it"
                .into(),
            fix: Some("use sqlite:PATH between the processes of one machine".into()),
        }])
    }
}

/// The rows and what happened to them.
#[derive(Debug, Default)]
struct Inner {
    table: Table,
    history: VecDeque<Recorded>,
    events_ever: u64,
}

impl Inner {
    fn apply(&mut self, op: Op, stamp: Stamp) -> Outcome {
        let mut events = Vec::new();
        let outcome = self.table.apply(op, stamp, &mut events);
        for event in events {
            self.events_ever += 1;
            if self.history.len() as u64 >= HISTORY_KEPT {
                self.history.pop_front();
            }
            self.history.push_back(Recorded {
                number: self.events_ever,
                event,
            });
        }
        outcome
    }
}
