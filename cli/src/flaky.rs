//! For tests: a store whose replies get lost, and a clock that runs by itself.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold::{
    BootTime, Key, LeaseName, Resource, StoreError, WallTime,
    clock::Clock,
    core::{Command, Entry, Fence, Op, Outcome, Pair, Status, Work},
    store::{Changes, Finding, Profile, Recorded, SharedStore, Store},
};

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is done and answered.
    Good,
    /// It is done, and the reply is lost.
    ReplyLost,
    /// It is not done, and nobody can tell.
    RequestLost,
    /// It is not done, and the store says so.
    Down,
}

/// Does what `fate` says to each operation.
pub(crate) struct Flaky<F> {
    inner: SharedStore,
    fate: F,
    calls: AtomicU64,
}

impl<F: Fn(u64, &Command) -> Fate> Flaky<F> {
    /// `fate` gets the number of the call, from 0, and the command.
    pub(crate) fn new(inner: SharedStore, fate: F) -> Self {
        Self {
            inner,
            fate,
            calls: AtomicU64::new(0),
        }
    }
}

impl<F> fmt::Debug for Flaky<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Flaky")
    }
}

#[async_trait::async_trait]
impl<F: Fn(u64, &Command) -> Fate + Send + Sync> Store for Flaky<F> {
    async fn apply(&self, op: Op) -> Result<Outcome, StoreError> {
        let Op::Lease { command, .. } = &op else {
            return self.inner.apply(op).await;
        };
        let what = "lost".to_owned();
        match (self.fate)(self.calls.fetch_add(1, Ordering::Relaxed), command) {
            Fate::Good => self.inner.apply(op).await,
            Fate::ReplyLost => {
                self.inner.apply(op).await?;
                Err(StoreError::Unknown { what })
            }
            Fate::RequestLost => Err(StoreError::Unknown { what }),
            Fate::Down => Err(StoreError::Unavailable { what }),
        }
    }

    fn profile(&self) -> &Profile {
        self.inner.profile()
    }

    async fn status(&self, name: &LeaseName) -> Result<Option<Status>, StoreError> {
        self.inner.status(name).await
    }

    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<Status>, StoreError> {
        self.inner.list(prefix, limit).await
    }

    async fn pair(&self, key: &Key) -> Result<Option<Pair>, StoreError> {
        self.inner.pair(key).await
    }

    async fn fence(&self, resource: &Resource) -> Result<Option<Fence>, StoreError> {
        self.inner.fence(resource).await
    }

    async fn entry(&self, work: &Work) -> Result<Option<Entry>, StoreError> {
        self.inner.entry(work).await
    }

    async fn history(
        &self,
        name: Option<&LeaseName>,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Recorded>, StoreError> {
        self.inner.history(name, after, limit).await
    }

    fn changes(&self) -> Changes {
        self.inner.changes()
    }

    async fn collect(&self) -> Result<u64, StoreError> {
        self.inner.collect().await
    }

    async fn examine(&self) -> Result<Vec<Finding>, StoreError> {
        self.inner.examine().await
    }
}

/// Moves on by a fixed step whenever it is read, so that patience ends without waiting.
#[derive(Debug)]
pub(crate) struct Stepping {
    now: AtomicU64,
    step: u64,
}

impl Stepping {
    pub(crate) fn by(step: Duration) -> Arc<Self> {
        Arc::new(Self {
            now: AtomicU64::new(0),
            step: u64::try_from(step.as_nanos()).unwrap_or(u64::MAX),
        })
    }
}

impl Clock for Stepping {
    fn now(&self) -> BootTime {
        BootTime::from_nanos(self.now.fetch_add(self.step, Ordering::Relaxed))
    }

    fn wall(&self) -> WallTime {
        WallTime::from_nanos(1)
    }
}
