//! `memory:` for tests and the demo.
//!
//! Who judges expiry: this store, by the clock it was given. Tokens: counted here, per lease. A crash keeps nothing:
//! the store lives and dies with its process.

use std::{
    collections::{BTreeMap, VecDeque},
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use leasehold_core::{
    Entry, Event, Fence, Key, LeaseName, Op, Outcome, Pair, Record, Resource, Rows, Stamp, State,
    Status, StoreTime, Token, Ttl, WallTime, Work, apply,
};
use tokio::sync::watch;

use super::{
    Changes, FREE_BEFORE_FORGOTTEN, Finding, HISTORY_KEPT, LEDGER_KEPT, Level, Profile, Recorded,
    Store, StoreError, bump, frees,
};
use crate::clock::{BootClock, Clock};

/// A store in the memory of one process. Clones of its `Arc` share it.
#[derive(Debug)]
pub struct MemoryStore {
    profile: Profile,
    clock: Arc<dyn Clock>,
    tables: Mutex<Tables>,
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
            tables: Mutex::default(),
            changes: watch::Sender::default(),
        })
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
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
        let mut tables = self.tables();
        let stamp = self.stamp();
        if let Op::Bump { above } = op {
            bump::check(above, tables.newest(), tables.last_event(), stamp.wall)?;
        }
        let Ok(outcome) = apply(&mut *tables, op, stamp);
        drop(tables);
        if frees(&outcome) {
            self.changes.send_modify(|count| *count += 1);
        }
        Ok(outcome)
    }

    async fn status(&self, name: &LeaseName) -> Result<Option<Status>, StoreError> {
        let tables = self.tables();
        let now = self.stamp().now;
        let record = tables.leases.get(name);
        Ok(record.map(|record| Status::of(name.clone(), record, now)))
    }

    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<Status>, StoreError> {
        let tables = self.tables();
        let now = self.stamp().now;
        let wanted = tables
            .leases
            .iter()
            .filter(|(name, _)| name.as_str().starts_with(prefix));
        Ok(wanted
            .take(limit)
            .map(|(name, record)| Status::of(name.clone(), record, now))
            .collect())
    }

    async fn pair(&self, key: &Key) -> Result<Option<Pair>, StoreError> {
        Ok(self.tables().pairs.get(key).cloned())
    }

    async fn fence(&self, resource: &Resource) -> Result<Option<Fence>, StoreError> {
        Ok(self.tables().fences.get(resource).cloned())
    }

    async fn entry(&self, work: &Work) -> Result<Option<Entry>, StoreError> {
        Ok(self.tables().ledger.get(work).cloned())
    }

    async fn history(
        &self,
        name: Option<&LeaseName>,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Recorded>, StoreError> {
        let tables = self.tables();
        let wanted = tables.events.iter().filter(|recorded| {
            recorded.number > after && name.is_none_or(|name| *name == recorded.event.lease)
        });
        Ok(wanted.take(limit).cloned().collect())
    }

    fn changes(&self) -> Changes {
        Changes::new(self.changes.subscribe())
    }

    async fn collect(&self) -> Result<u64, StoreError> {
        let mut tables = self.tables();
        let stamp = self.stamp();
        Ok(tables.collect(stamp))
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

#[derive(Debug, Default)]
struct Tables {
    leases: BTreeMap<LeaseName, Record>,
    floor: Option<Token>,
    pairs: BTreeMap<Key, Pair>,
    fences: BTreeMap<Resource, Fence>,
    ledger: BTreeMap<Work, Entry>,
    kept_from: WallTime,
    events: VecDeque<Recorded>,
    events_ever: u64,
}

impl Tables {
    /// The largest token of any lease, and of those that were forgotten. A lease that has no token left does not count.
    fn newest(&self) -> Option<Token> {
        let tokens = self.leases.values().map(|record| record.token);
        let tokens = tokens.chain([self.floor]).flatten();
        tokens.filter(|token| *token < Token::MAX).max()
    }

    fn last_event(&self) -> Option<WallTime> {
        self.events.back().map(|recorded| recorded.event.at)
    }

    fn collect(&mut self, stamp: Stamp) -> u64 {
        let before = self.leases.len() + self.ledger.len();
        let floor = &mut self.floor;
        self.leases.retain(|_, record| {
            let gone = record.at(stamp.now) == State::Free
                && stamp.now.since(record.free_from()) >= FREE_BEFORE_FORGOTTEN
                && record
                    .token
                    .is_none_or(|token| bump::may_be_floor(token, stamp.wall));
            if gone {
                *floor = (*floor).max(record.token);
            }
            !gone
        });
        self.kept_from = self.kept_from.max(stamp.wall.minus(LEDGER_KEPT));
        let kept_from = self.kept_from;
        self.ledger.retain(|_, entry| entry.begun >= kept_from);
        (before - self.leases.len() - self.ledger.len()) as u64
    }
}

impl Rows for Tables {
    type Error = Infallible;

    fn lease(&mut self, name: &LeaseName) -> Result<Option<Record>, Infallible> {
        Ok(self.leases.get(name).cloned())
    }

    fn set_lease(&mut self, name: &LeaseName, record: Record) -> Result<(), Infallible> {
        self.leases.insert(name.clone(), record);
        Ok(())
    }

    fn lease_names(&mut self) -> Result<Vec<LeaseName>, Infallible> {
        Ok(self.leases.keys().cloned().collect())
    }

    fn floor(&mut self) -> Result<Option<Token>, Infallible> {
        Ok(self.floor)
    }

    fn set_floor(&mut self, floor: Token) -> Result<(), Infallible> {
        self.floor = Some(floor);
        Ok(())
    }

    fn pair(&mut self, key: &Key) -> Result<Option<Pair>, Infallible> {
        Ok(self.pairs.get(key).cloned())
    }

    fn set_pair(&mut self, key: &Key, pair: Option<Pair>) -> Result<(), Infallible> {
        match pair {
            Some(pair) => self.pairs.insert(key.clone(), pair),
            None => self.pairs.remove(key),
        };
        Ok(())
    }

    fn fence(&mut self, resource: &Resource) -> Result<Option<Fence>, Infallible> {
        Ok(self.fences.get(resource).cloned())
    }

    fn set_fence(&mut self, resource: &Resource, fence: Fence) -> Result<(), Infallible> {
        self.fences.insert(resource.clone(), fence);
        Ok(())
    }

    fn entry(&mut self, work: &Work) -> Result<Option<Entry>, Infallible> {
        Ok(self.ledger.get(work).cloned())
    }

    fn set_entry(&mut self, work: &Work, entry: Option<Entry>) -> Result<(), Infallible> {
        match entry {
            Some(entry) => self.ledger.insert(work.clone(), entry),
            None => self.ledger.remove(work),
        };
        Ok(())
    }

    fn kept_from(&mut self) -> Result<WallTime, Infallible> {
        Ok(self.kept_from)
    }

    fn newest_event(&mut self) -> Result<WallTime, Infallible> {
        Ok(self.last_event().unwrap_or_default())
    }

    fn event(&mut self, event: Event) -> Result<(), Infallible> {
        self.events_ever += 1;
        if self.events.len() as u64 >= HISTORY_KEPT {
            self.events.pop_front();
        }
        self.events.push_back(Recorded {
            number: self.events_ever,
            event,
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use leasehold_core::BootTime;

    use super::{super::contract, *};

    /// A clock that stands still until it is moved.
    #[derive(Debug, Default)]
    struct HandClock(AtomicU64);

    impl HandClock {
        fn advance(&self, by: Duration) {
            self.0.fetch_add(by.as_nanos() as u64, Ordering::Relaxed);
        }
    }

    impl Clock for HandClock {
        fn now(&self) -> BootTime {
            BootTime::from_nanos(self.0.load(Ordering::Relaxed))
        }

        fn wall(&self) -> WallTime {
            WallTime::from_nanos(1_796_000_000_000_000_000 + self.0.load(Ordering::Relaxed))
        }
    }

    #[tokio::test]
    async fn it_keeps_the_contract() {
        let clock = Arc::new(HandClock::default());
        let store = MemoryStore::with_clock(clock.clone());
        let advance = |by| clock.advance(by);
        let report = contract::all(&*store, contract::Time::Virtual(&advance)).await;
        assert_eq!(report.skipped, []);
    }

    #[tokio::test]
    async fn the_history_is_bounded() {
        let mut tables = Tables::default();
        for number in 0..HISTORY_KEPT + 10 {
            let event = Event {
                at: WallTime::from_nanos(number),
                lease: LeaseName::new("a").unwrap(),
                what: leasehold_core::What::Forced {
                    token: Token::FIRST,
                },
            };
            let Ok(()) = tables.event(event);
        }
        assert_eq!(tables.events.len() as u64, HISTORY_KEPT);
        assert_eq!(tables.events[0].number, 11);
    }
}
