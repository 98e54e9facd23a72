//! The rows in memory: leases, pairs, fences and ledger of one store, with a floor for the leases it has forgotten.
//!
//! The same operations with the same stamps make the same table everywhere, to the byte of its snapshot. Its time never
//! goes back (R2): whoever restores a table counts on from [`Table::now`]. It keeps no history; events are handed out.

use alloc::vec::Vec;
use core::{convert::Infallible, time::Duration};

use hashbrown::HashMap;

use crate::{
    Entry, Event, Fence, Keep, Key, LeaseName, Op, Outcome, Pair, Record, Resource, Rows, Stamp,
    Status, StoreTime, Token, WallTime, Work, apply,
};

/// Everything a store keeps, in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    pub(crate) leases: HashMap<LeaseName, Record>,
    pub(crate) pairs: HashMap<Key, Pair>,
    pub(crate) fences: HashMap<Resource, Fence>,
    pub(crate) entries: HashMap<Work, Entry>,
    pub(crate) marks: Marks,
}

/// What is remembered beside the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Marks {
    /// The latest time at which anything was evaluated.
    pub(crate) now: StoreTime,
    /// No new name gets a token up to this one (T5).
    pub(crate) floor: Option<Token>,
    /// Ledger entries from before are forgotten (I9).
    pub(crate) kept_from: WallTime,
    /// When the newest event happened, by the wall clock (A10).
    pub(crate) newest_event: WallTime,
}

impl Table {
    /// A table with nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Does one thing in one step and appends what happened to `events`. A stamp from the past counts as now.
    pub fn apply(&mut self, op: Op, stamp: Stamp, events: &mut Vec<Event>) -> Outcome {
        let stamp = self.at(stamp);
        let step = &mut Step {
            table: self,
            events,
        };
        match apply(step, op, stamp) {
            Ok(outcome) => outcome,
        }
    }

    /// The time of this table; the clock of a store that restores it goes on from here.
    pub fn now(&self) -> StoreTime {
        self.marks.now
    }

    /// Lets time pass, so that a snapshot tells how late it is. Time never goes back.
    pub fn advance(&mut self, now: StoreTime) {
        self.marks.now = self.marks.now.max(now);
    }

    fn at(&mut self, stamp: Stamp) -> Stamp {
        self.advance(stamp.now);
        Stamp {
            now: self.marks.now,
            ..stamp
        }
    }

    /// The lease as it is at `now`. `None`: never heard of, or forgotten.
    pub fn status(&self, name: &LeaseName, now: StoreTime) -> Option<Status> {
        let record = self.leases.get(name)?;
        Some(Status::of(name.clone(), record, self.marks.now.max(now)))
    }

    /// Up to `limit` leases whose names start with `prefix`, by name.
    pub fn list(&self, prefix: &str, limit: usize, now: StoreTime) -> Vec<Status> {
        let mut found: Vec<(&LeaseName, &Record)> = self
            .leases
            .iter()
            .filter(|(name, _)| name.as_str().starts_with(prefix))
            .collect();
        found.sort_unstable_by_key(|(name, _)| *name);
        found.truncate(limit);
        let now = self.marks.now.max(now);
        found
            .into_iter()
            .map(|(name, record)| Status::of(name.clone(), record, now))
            .collect()
    }

    /// What is kept of a lease.
    pub fn record(&self, name: &LeaseName) -> Option<&Record> {
        self.leases.get(name)
    }

    /// A pair.
    pub fn pair(&self, key: &Key) -> Option<&Pair> {
        self.pairs.get(key)
    }

    /// The fence of a receiver.
    pub fn fence(&self, resource: &Resource) -> Option<&Fence> {
        self.fences.get(resource)
    }

    /// A line of the ledger.
    pub fn entry(&self, work: &Work) -> Option<&Entry> {
        self.entries.get(work)
    }

    /// No new name gets a token up to this one.
    pub fn floor(&self) -> Option<Token> {
        self.marks.floor
    }

    /// How many rows there are, of all kinds.
    pub fn len(&self) -> usize {
        self.leases.len() + self.pairs.len() + self.fences.len() + self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets leases that were free for [`Record::KEPT`] and ledger entries older than `age`, usually [`Entry::KEPT`].
    /// Answers how many rows went.
    ///
    /// The floor rises to the largest token that is forgotten, so tokens still grow (T5, FB-12). Fences stay: they are
    /// what refuses the old tokens (F3).
    pub fn collect(&mut self, stamp: Stamp, age: Duration) -> usize {
        let Stamp { now, wall } = self.at(stamp);
        let before = self.len();
        let floor = &mut self.marks.floor;
        self.leases.retain(|_, record| {
            let forget = record.collectable(now);
            if forget {
                *floor = record.token.max(*floor);
            }
            !forget
        });
        let since = wall.minus(age);
        self.entries.retain(|_, entry| !entry.collectable(since));
        self.marks.kept_from = self.marks.kept_from.max(since);
        if self.len() < before {
            self.leases.shrink_to_fit();
            self.entries.shrink_to_fit();
        }
        before - self.len()
    }
}

/// One operation on a table.
struct Step<'a> {
    table: &'a mut Table,
    events: &'a mut Vec<Event>,
}

impl Rows for Step<'_> {
    type Error = Infallible;

    fn lease(&mut self, name: &LeaseName) -> Result<Option<Record>, Infallible> {
        Ok(self.table.leases.get(name).cloned())
    }

    fn set_lease(&mut self, name: &LeaseName, record: Record) -> Result<(), Infallible> {
        self.table.leases.insert(name.clone(), record);
        Ok(())
    }

    fn with_lease<T>(
        &mut self,
        name: &LeaseName,
        step: impl FnOnce(&mut Record, &mut Vec<Event>) -> (T, Keep),
    ) -> Result<T, Infallible> {
        let before = self.events.len();
        let result = match self.table.leases.get_mut(name) {
            Some(record) => step(record, self.events).0,
            None => {
                let mut record = Record::new(self.table.marks.floor);
                let (result, keep) = step(&mut record, self.events);
                if keep == Keep::Changed {
                    self.table.leases.insert(name.clone(), record);
                }
                result
            }
        };
        for event in &self.events[before..] {
            self.table.marks.newest_event = self.table.marks.newest_event.max(event.at);
        }
        Ok(result)
    }

    fn lease_names(&mut self) -> Result<Vec<LeaseName>, Infallible> {
        let mut names: Vec<LeaseName> = self.table.leases.keys().cloned().collect();
        names.sort_unstable();
        Ok(names)
    }

    fn floor(&mut self) -> Result<Option<Token>, Infallible> {
        Ok(self.table.marks.floor)
    }

    fn set_floor(&mut self, floor: Token) -> Result<(), Infallible> {
        self.table.marks.floor = Some(floor);
        Ok(())
    }

    fn pair(&mut self, key: &Key) -> Result<Option<Pair>, Infallible> {
        Ok(self.table.pairs.get(key).cloned())
    }

    fn set_pair(&mut self, key: &Key, pair: Option<Pair>) -> Result<(), Infallible> {
        set(&mut self.table.pairs, key, pair);
        Ok(())
    }

    fn fence(&mut self, resource: &Resource) -> Result<Option<Fence>, Infallible> {
        Ok(self.table.fences.get(resource).cloned())
    }

    fn set_fence(&mut self, resource: &Resource, fence: Fence) -> Result<(), Infallible> {
        set(&mut self.table.fences, resource, Some(fence));
        Ok(())
    }

    fn entry(&mut self, work: &Work) -> Result<Option<Entry>, Infallible> {
        Ok(self.table.entries.get(work).cloned())
    }

    fn set_entry(&mut self, work: &Work, entry: Option<Entry>) -> Result<(), Infallible> {
        set(&mut self.table.entries, work, entry);
        Ok(())
    }

    fn kept_from(&mut self) -> Result<WallTime, Infallible> {
        Ok(self.table.marks.kept_from)
    }

    fn newest_event(&mut self) -> Result<WallTime, Infallible> {
        Ok(self.table.marks.newest_event)
    }

    fn event(&mut self, event: Event) -> Result<(), Infallible> {
        self.table.marks.newest_event = self.table.marks.newest_event.max(event.at);
        self.events.push(event);
        Ok(())
    }
}

fn set<K: Clone + Eq + core::hash::Hash, V>(rows: &mut HashMap<K, V>, key: &K, row: Option<V>) {
    match row {
        Some(row) => rows.insert(key.clone(), row),
        None => rows.remove(key),
    };
}
