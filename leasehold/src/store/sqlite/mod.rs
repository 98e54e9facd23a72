//! `sqlite:PATH`: one file for the processes of one machine; nothing to start (6.2).
//!
//! Who judges expiry: whichever process writes, by the machine's boot clock, read when it has the write lock. Tokens:
//! counted per lease in the file. A crash of any process keeps all that was answered, and so does a power loss.
//! Not excepted from INV-12: a process that is stopped in the middle of a commit blocks the others until it goes on or
//! is evicted; they are told so (A8).

mod clock;
mod collect;
pub(crate) mod columns;
mod commit;
pub(crate) mod contents;
mod evict;
mod examine;
mod job;
mod open;
mod place;
mod process;
mod read;
mod rows;
pub(crate) mod schema;
mod side;
mod thread;
mod turn;
mod wake;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::AtomicU64,
        mpsc::{SyncSender, TrySendError, sync_channel},
    },
    time::Duration,
};

use async_trait::async_trait;
use leasehold_core::{
    Entry, Fence, Key, LeaseName, Op, Outcome, Pair, Resource, Status, StoreTime, Ttl, Work,
};
use tokio::sync::oneshot;

pub use clock::HostClock;

use self::{
    commit::{Ack, Ask, Reply},
    job::Job,
    place::Place,
    process::Process,
    read::Reader,
    thread::{GROUP, Writer},
    wake::Wake,
};
use super::{Changes, Finding, Profile, Recorded, Store, StoreError};
use crate::clock::{BootClock, Clock};

/// How long one try waits for another program's lock on the database; between tries others have their turn.
const BUSY_SLICE: Duration = Duration::from_millis(200);
/// How long a reader waits, which it must only while the log of a crashed process is recovered.
const READ_PATIENCE: Duration = Duration::from_secs(5);
/// The most jobs that may wait; each holds one or more operations. Whoever comes then is told so.
const QUEUE: usize = 10_000;

/// A store in a SQLite file.
#[derive(Debug)]
pub struct SqliteStore {
    profile: Profile,
    place: Place,
    host: HostClock,
    real: Arc<BootClock>,
    queue: SyncSender<Job>,
    reader: Reader,
    wake: Arc<Wake>,
}

impl SqliteStore {
    /// Opens the store in the file at `path`; the file and its folder are made if they are missing, for this user only.
    ///
    /// `Invalid` if the file cannot be used as it is (SQ3), `Unavailable` or `BlockedBy` if it may be later.
    pub async fn open(path: impl AsRef<Path>) -> Result<Arc<Self>, StoreError> {
        Self::open_with(path, HostClock::new()?).await
    }

    /// The same with a clock of the caller's choice, for tests.
    pub async fn open_with(
        path: impl AsRef<Path>,
        host: HostClock,
    ) -> Result<Arc<Self>, StoreError> {
        let path = path.as_ref().to_owned();
        aside("leasehold-open", move || Self::start(&path, host)).await
    }

    fn start(path: &Path, host: HostClock) -> Result<Arc<Self>, StoreError> {
        let place = Place::find(path, true)?;
        // What may pass is reported by each request while it lasts; a store must open for `evict`.
        let opened = match open::open(&place) {
            Ok(opened) => Some(opened),
            Err(error @ StoreError::Invalid { .. }) => return Err(error),
            Err(_) => None,
        };
        let (queue, jobs) = sync_channel(QUEUE);
        let (wake, distrust) = (Wake::new(place.clone()), Arc::new(AtomicU64::new(0)));
        let real = BootClock::new();
        let reader =
            Reader::new(place.clone(), host.clone(), distrust.clone()).map_err(no_thread)?;
        let writer = Writer {
            place: place.clone(),
            host: host.clone(),
            queue: jobs,
            wake: wake.clone(),
            distrust,
            real: real.clone(),
            this: Process::this(),
            opened,
            unsynced: None,
        };
        std::thread::Builder::new()
            .name("leasehold-write".to_owned())
            .spawn(move || writer.run())
            .map_err(no_thread)?;
        Ok(Arc::new(Self {
            profile: profile(),
            place,
            host,
            real,
            queue,
            reader,
            wake,
        }))
    }

    /// Hands the asks to the thread; what is dropped before it answered may still be done.
    async fn ask(&self, asks: Vec<Ask>, received: StoreTime) -> Result<Vec<Reply>, StoreError> {
        let (job, answer) = Job::new(asks, received, self.real.now());
        self.queue
            .try_send(job)
            .map_err(|error| StoreError::Unavailable {
                what: match error {
                    TrySendError::Full(_) => format!("{QUEUE} operations wait already"),
                    TrySendError::Disconnected(_) => "the store's thread has ended".into(),
                },
            })?;
        answer.await.map_err(|_| StoreError::Unknown {
            what: "the store's thread has ended".into(),
        })
    }
}

#[async_trait]
impl Store for SqliteStore {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    async fn apply(&self, op: Op) -> Result<Outcome, StoreError> {
        let received = self.host.now();
        let mut replies = self.ask(vec![Ask::Op(op)], received).await?;
        outcome(replies.pop())
    }

    async fn apply_all(&self, ops: Vec<Op>) -> Vec<Result<Outcome, StoreError>> {
        let received = self.host.now();
        let mut outcomes = Vec::with_capacity(ops.len());
        let mut ops = ops.into_iter();
        loop {
            let asks: Vec<Ask> = ops.by_ref().take(GROUP).map(Ask::Op).collect();
            if asks.is_empty() {
                return outcomes;
            }
            let asked = outcomes.len() + asks.len();
            match self.ask(asks, received).await {
                Ok(replies) => {
                    outcomes.extend(replies.into_iter().map(|reply| outcome(Some(reply))))
                }
                Err(error) => outcomes.resize_with(asked, || Err(error.clone())),
            }
        }
    }

    async fn status(&self, name: &LeaseName) -> Result<Option<Status>, StoreError> {
        let name = name.clone();
        self.reader.read(move |tables| tables.status(&name)).await
    }

    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<Status>, StoreError> {
        let prefix = prefix.to_owned();
        self.reader
            .read(move |tables| tables.list(&prefix, limit))
            .await
    }

    async fn pair(&self, key: &Key) -> Result<Option<Pair>, StoreError> {
        let key = key.clone();
        self.reader
            .read(move |tables| contents::pair(tables.db, &key))
            .await
    }

    async fn fence(&self, resource: &Resource) -> Result<Option<Fence>, StoreError> {
        let resource = resource.clone();
        self.reader
            .read(move |tables| contents::fence(tables.db, "fence", &resource))
            .await
    }

    async fn entry(&self, work: &Work) -> Result<Option<Entry>, StoreError> {
        let work = work.clone();
        self.reader
            .read(move |tables| contents::entry(tables.db, "ledger", &work))
            .await
    }

    async fn history(
        &self,
        name: Option<&LeaseName>,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Recorded>, StoreError> {
        let name = name.cloned();
        self.reader
            .read(move |tables| contents::history(tables.db, name.as_ref(), after, limit))
            .await
    }

    fn changes(&self) -> Changes {
        Changes::new(self.wake.subscribe())
    }

    async fn collect(&self) -> Result<u64, StoreError> {
        let (mut total, mut from) = (0, String::new());
        loop {
            let mut replies = self
                .ask(vec![Ask::Collect { from }], self.host.now())
                .await?;
            match replies.pop() {
                Some(Ok(Ack::Collected { rows, next })) => {
                    total += rows;
                    match next {
                        Some(next) => from = next,
                        None => return Ok(total),
                    }
                }
                reply => return outcome(reply).map(|_| total),
            }
        }
    }

    async fn evict(&self) -> Result<Option<String>, StoreError> {
        let place = self.place.clone();
        aside("leasehold-evict", move || evict::evict(&place)).await
    }

    async fn examine(&self) -> Result<Vec<Finding>, StoreError> {
        let (place, watched) = (self.place.clone(), self.wake.watches());
        self.reader
            .read(move |tables| examine::examine(tables, &place, watched))
            .await
    }
}

/// Runs what may wait on a thread of its own.
async fn aside<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let (reply, answer) = oneshot::channel();
    let run = move || {
        // A caller that has gone does not need it.
        let _ = reply.send(work());
    };
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .map_err(no_thread)?;
    let ended = |_| StoreError::Unknown {
        what: "the store's thread has ended".into(),
    };
    answer.await.map_err(ended)?
}

fn outcome(reply: Option<Reply>) -> Result<Outcome, StoreError> {
    match reply {
        Some(Ok(Ack::Outcome(outcome))) => Ok(outcome),
        Some(Err(error)) => Err(error),
        Some(Ok(Ack::Collected { .. })) | None => Err(StoreError::Unknown {
            what: "the store's thread lost the answer".into(),
        }),
    }
}

fn no_thread(error: std::io::Error) -> StoreError {
    StoreError::Unavailable {
        what: format!("no thread for the store: {error}"),
    }
}

fn profile() -> Profile {
    Profile {
        scheme: "sqlite",
        clock: "whichever process writes, by the machine's boot clock; after a reboot or on another \
                machine a lease is kept for its full time from when it is first asked for",
        tokens: "counted per lease in the file",
        durability: "all that was answered, through crashes and power loss",
        min_ttl: Ttl::MIN,
        extension: Duration::ZERO,
        dense: true,
        fifo: false,
        lock_delay: true,
        pairs: true,
        fences: true,
        ledger: true,
        history: true,
    }
}
