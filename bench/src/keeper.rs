//! A keeper that holds a lease and does nothing else: its calls to the store, and the part of a core it takes.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use anyhow::ensure;
use async_trait::async_trait;
use leasehold::{
    Guard, Keeper, Key, LeaseName, Resource, Store, StoreError,
    clock::{BootClock, Clock},
    core::{Entry, Fence, Op, Outcome, Pair, Status, Work},
    store::{Changes, Finding, Profile, Recorded, memory::MemoryStore},
};

use crate::cpu;

/// PRODUCT 7: store calls a renew period. Periods have jitter, downwards.
const CALLS: f64 = 1.2;
/// PRODUCT 7: per cent of a core.
const PER_CENT: f64 = 0.1;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many keepers hold a lease each
    #[arg(long, default_value_t = 100)]
    keepers: u64,
    /// How many renew periods they are watched
    #[arg(long, default_value_t = 6)]
    periods: u32,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(
        args.keepers > 0 && args.periods > 0,
        "nothing to measure: a number is 0"
    );
    let store = Arc::new(Counted {
        inner: MemoryStore::new(),
        calls: AtomicU64::new(0),
    });
    let guards: Vec<Guard> = (0..args.keepers)
        .map(|number| {
            let name = LeaseName::new(&format!("lease-{number}"))?;
            Ok(Keeper::new(store.clone(), name).acquire_blocking()?)
        })
        .collect::<anyhow::Result<_>>()?;
    let period = guards[0].timing().renew();
    let clock = BootClock::new();
    let (calls, busy, began) = (
        store.calls.load(Ordering::Relaxed),
        cpu::of_process(),
        clock.now(),
    );
    thread::sleep(period * args.periods);
    let took = clock.now().since(began);
    let calls = store.calls.load(Ordering::Relaxed) - calls;
    let busy = cpu::of_process().saturating_sub(busy);
    ensure!(
        guards.iter().all(|guard| guard.check().is_ok()),
        "a lease was lost"
    );
    let keepers = args.keepers as f64;
    let calls = calls as f64 / keepers / took.div_duration_f64(period);
    let per_cent = 100.0 * busy.div_duration_f64(took) / keepers;
    println!("{calls:>9.2}    store calls a keeper in {period:?}, a renew period; at most {CALLS}");
    println!("{per_cent:>9.4} %  of a core a keeper, with its store in memory; at most {PER_CENT}");
    ensure!(calls <= CALLS && per_cent <= PER_CENT, "a bar is missed");
    Ok(())
}

/// Counts every call.
struct Counted {
    inner: Arc<MemoryStore>,
    calls: AtomicU64,
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counted")
    }
}

impl Counted {
    fn count(&self) -> &MemoryStore {
        self.calls.fetch_add(1, Ordering::Relaxed);
        &self.inner
    }
}

#[async_trait]
impl Store for Counted {
    fn profile(&self) -> &Profile {
        self.inner.profile()
    }

    async fn apply(&self, op: Op) -> Result<Outcome, StoreError> {
        self.count().apply(op).await
    }

    async fn status(&self, name: &LeaseName) -> Result<Option<Status>, StoreError> {
        self.count().status(name).await
    }

    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<Status>, StoreError> {
        self.count().list(prefix, limit).await
    }

    async fn pair(&self, key: &Key) -> Result<Option<Pair>, StoreError> {
        self.count().pair(key).await
    }

    async fn fence(&self, resource: &Resource) -> Result<Option<Fence>, StoreError> {
        self.count().fence(resource).await
    }

    async fn entry(&self, work: &Work) -> Result<Option<Entry>, StoreError> {
        self.count().entry(work).await
    }

    async fn history(
        &self,
        name: Option<&LeaseName>,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Recorded>, StoreError> {
        self.count().history(name, after, limit).await
    }

    fn changes(&self) -> Changes {
        self.inner.changes()
    }

    async fn collect(&self) -> Result<u64, StoreError> {
        self.count().collect().await
    }

    async fn examine(&self) -> Result<Vec<Finding>, StoreError> {
        self.count().examine().await
    }
}
