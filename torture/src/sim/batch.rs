//! Many seeds: each run alone, several at a time, and what the whole set must show.
//!
//! The one rule: the summary depends on the seeds only, not on how many ran at a time.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    panic::catch_unwind,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use super::{REQUIRED, judge, run};
use crate::check::{Counts, control};
use crate::history::{History, What};

/// The name of what a run broke that did not come to its end.
pub const PANIC: &str = "PANIC";

/// What came of a set of seeds.
#[derive(Debug, Default, PartialEq)]
pub struct Summary {
    /// How many ran.
    pub runs: u64,
    /// The seeds that broke a promise, with the names of the promises.
    pub failed: BTreeMap<u64, BTreeSet<&'static str>>,
    /// The seeds whose unfenced effects were seen to be violated: the control.
    pub violated: u64,
    /// In how many runs each kind of fault happened.
    pub faults: BTreeMap<String, u64>,
    /// What was judged, all together.
    pub counts: Counts,
}

impl Summary {
    /// The kinds of fault that never happened.
    pub fn missing(&self) -> Vec<&'static str> {
        let missing = REQUIRED.iter().copied();
        missing
            .filter(|kind| !self.faults.contains_key(*kind))
            .collect()
    }

    fn of(seed: u64, history: &History) -> Self {
        let verdict = judge(history);
        let kinds: BTreeSet<&str> = history
            .events
            .iter()
            .filter_map(|event| match &event.what {
                What::Fault { kind, .. } => Some(kind.as_str()),
                What::Store { change, .. } => Some(change.name()),
                _ => None,
            })
            .collect();
        Self {
            runs: 1,
            violated: u64::from(!control(history).is_empty()),
            faults: kinds.into_iter().map(|kind| (kind.into(), 1)).collect(),
            counts: verdict.counts,
            failed: match verdict.is_ok() {
                true => BTreeMap::new(),
                false => BTreeMap::from([(seed, verdict.broken())]),
            },
        }
    }

    fn panicked(seed: u64) -> Self {
        Self {
            runs: 1,
            failed: BTreeMap::from([(seed, BTreeSet::from([PANIC]))]),
            ..Self::default()
        }
    }

    fn merge(&mut self, part: Summary) {
        self.runs += part.runs;
        self.failed.extend(part.failed);
        self.violated += part.violated;
        for (kind, count) in part.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        let (all, one) = (&mut self.counts, part.counts);
        all.ops += one.ops;
        all.grants += one.grants;
        all.unknown += one.unknown;
        all.fenced += one.fenced;
        all.refused += one.refused;
        all.tenures += one.tenures;
        all.faults += one.faults;
    }
}

/// Runs all `seeds` with `jobs` threads; `progress` hears after each run how many are done and how many have failed.
pub fn batch(seeds: Range<u64>, jobs: usize, progress: &(dyn Fn(u64, usize) + Sync)) -> Summary {
    let next = AtomicU64::new(seeds.start);
    let summary = Mutex::new(Summary::default());
    thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let part = catch_unwind(|| Summary::of(seed, &run(seed)))
                        .unwrap_or_else(|_| Summary::panicked(seed));
                    let Ok(mut all) = summary.lock() else { return };
                    all.merge(part);
                    progress(all.runs, all.failed.len());
                }
            });
        }
    });
    summary.into_inner().unwrap_or_else(|e| e.into_inner())
}
