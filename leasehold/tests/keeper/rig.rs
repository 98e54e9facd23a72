//! What the tests share: a clock, a store, and patience. Only patience is in real time, and it is bounded.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use leasehold::{
    Guard, Keeper, LeaseName, Wait,
    core::{Command, Op, Outcome},
    store::{Store, memory::MemoryStore},
    testing::{On, ScriptedStore, VirtualClock},
};

pub(crate) const NAME: &str = "nightly";
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Rig {
    pub(crate) clock: Arc<VirtualClock>,
    pub(crate) store: Arc<ScriptedStore>,
}

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn name() -> LeaseName {
    NAME.parse().unwrap()
}

impl Rig {
    pub(crate) fn new() -> Self {
        let clock = VirtualClock::new();
        let store = ScriptedStore::new(MemoryStore::with_clock(clock.clone()), clock.clone());
        Self { clock, store }
    }

    /// ttl 15 s: renews after 4.5 to 5 s, D = sent + 12, stop at 9, kill at 11.
    pub(crate) fn keeper(&self, holder: &str) -> Keeper {
        Keeper::new(self.store.clone(), name())
            .holder(holder.parse().unwrap())
            .clock(self.clock.clone())
    }

    pub(crate) fn held(&self, holder: &str) -> Guard {
        self.keeper(holder).acquire_blocking().unwrap()
    }

    /// Somebody who does not wait gets the lease, with this token.
    pub(crate) fn is_free_for(&self, token: u64) {
        let guard = self
            .keeper("stranger")
            .wait(Wait::No)
            .acquire_blocking()
            .unwrap();
        assert_eq!(guard.token().get(), token);
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.keeper("stranger")
            .wait(Wait::No)
            .acquire_blocking()
            .is_err()
    }

    /// Time goes on, slowly enough for renewals.
    pub(crate) fn walk(&self, guard: &Guard, by: Duration) {
        let steps = by.as_millis() / 500;
        for _ in 0..steps {
            self.clock.advance(millis(500));
            eventually("it is renewed", || {
                guard.remaining() > millis(6400) || guard.is_lost()
            });
        }
    }

    /// Time goes on until something is so.
    pub(crate) fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let start = Instant::now();
        while !is_so() {
            assert!(start.elapsed() < PATIENCE, "it never came that {what}");
            self.clock.advance(millis(20));
            thread::sleep(millis(1));
        }
    }

    pub(crate) fn count(&self, on: impl Fn(&Command) -> bool) -> usize {
        let seen = self.store.seen();
        let commands = seen.iter().filter_map(|op| match op {
            Op::Lease { command, .. } => Some(command),
            _ => None,
        });
        commands.filter(|command| on(command)).count()
    }

    pub(crate) fn releases(&self) -> usize {
        self.count(|command| matches!(command, Command::Release(_)))
    }

    pub(crate) fn renewals(&self) -> usize {
        self.count(|command| matches!(command, Command::Renew(_)))
    }

    /// Asks the store itself.
    pub(crate) fn ask(&self, op: Op) -> Outcome {
        now(self.store.apply(op)).unwrap()
    }

    pub(crate) fn all_fail(&self, on: On, error: leasehold::StoreError) {
        self.store
            .always(on, leasehold::testing::Fault::Fail(error));
    }
}

pub(crate) fn unavailable() -> leasehold::StoreError {
    leasehold::StoreError::Unavailable {
        what: "it is down".into(),
    }
}

/// Runs a future that needs only a moment.
pub(crate) fn now<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        tokio::time::timeout(PATIENCE, future)
            .await
            .expect("it ends")
    })
}

/// Waits in real time until something is so, which needs no more time of the rig's clock.
pub(crate) fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "it never came that {what}");
        thread::sleep(millis(1));
    }
}
