//! `kubernetes:NAMESPACE`: a `coordination.k8s.io/v1` Lease, as Kubernetes' own programs use it.
//!
//! Who judges expiry: each contender, by its own boot clock, counted from when it first saw the Lease as it is (K1).
//! Tokens: the resourceVersion that the acquiring write replaced (K5): they rise over deletion and re-creation, and are
//! not dense. A crash of the API server keeps every answered grant; a restore of its etcd needs `token_offset` (K6).
//!
//! Every operation reads, decides by the core's rules, and replaces the very version that it decided on.

mod address;
mod examine;
mod fault;
mod link;
mod object;
mod sighting;

use std::{
    sync::{Arc, Once},
    time::Duration,
};

use async_trait::async_trait;
use jiff::Timestamp;
use kube::api::DynamicObject;
use leasehold_core::{
    Answer, Command, Entry, Fence, Key, LeaseName, Op, Outcome, Pair, Record, Resource, State,
    Status, StoreTime, Ttl, Work, decide,
};
use tokio::sync::watch;

use self::{
    address::{Address, Source},
    link::{Link, Sent},
    object::Loaded,
    sighting::{Seen, Sightings},
};
use super::{Changes, Finding, Profile, Recorded, Store, StoreError, frees, remote::Thread};

/// So often a write may meet another one before it is given up.
const TRIES: u32 = 20;
/// What Kubernetes can store at least: a second (1.3).
const MIN_TTL_MILLIS: u64 = 1000;

/// Leases of one namespace.
#[derive(Debug)]
pub struct KubernetesStore {
    profile: Profile,
    inner: Arc<Inner>,
    changes: watch::Sender<u64>,
    /// Started by the first who wants to hear of changes.
    listening: Once,
    thread: Thread,
}

#[derive(Debug)]
struct Inner {
    link: Link,
    source: Source,
    sightings: Sightings,
}

impl KubernetesStore {
    /// Reads credentials, and lists once, to see that address, rights and namespace are right.
    pub async fn connect(url: &str) -> Result<Arc<Self>, StoreError> {
        let address = Address::parse(url)?;
        let source = address.source;
        let thread = Thread::start("leasehold-kubernetes")?;
        let opened = thread
            .spawn(async move { Link::open(&address).await })
            .await;
        let link = opened.map_err(|_| fault::unavailable("the store's thread ended"))??;
        let store = Arc::new(Self {
            profile: profile(source),
            inner: Arc::new(Inner {
                link,
                source,
                sightings: Sightings::new(),
            }),
            changes: watch::Sender::default(),
            listening: Once::new(),
            thread,
        });
        store
            .call(|inner| async move { inner.link.get("leasehold-is-here").await })
            .await?;
        Ok(store)
    }

    /// The client that the store uses, for fences and objects of the user's own.
    pub fn client(&self) -> kube::Client {
        self.inner.link.client()
    }

    /// Runs `work` on the store's own thread. Its end is awaited, but not bound to this call.
    async fn call<T, F>(&self, work: impl FnOnce(Arc<Inner>) -> F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        self.thread.run(work(self.inner.clone())).await
    }
}

impl Inner {
    async fn command(&self, name: &LeaseName, command: Command) -> Result<Answer, StoreError> {
        address::lease_name(name.as_str())?;
        if let Command::Acquire(asked) = &command {
            refuse_what_it_cannot(asked.ttl, asked.lock_delay.get())?;
        }
        let command = object::veiled(command);
        if matches!(command, Command::Renew(_) | Command::Release(_))
            && let Some((written, since)) = self.sightings.written(name)
        {
            let loaded = Loaded::new(written, self.source)?;
            let record = loaded.record(store_time(since), self.source);
            if let Some(answer) = self.step(name, &loaded, record, since, &command).await? {
                return Ok(answer);
            }
        }
        for _ in 0..TRIES {
            let asked = self.sightings.now();
            let loaded = match self.link.get(name.as_str()).await? {
                Some(object) => Loaded::new(object, self.source)?,
                None => match self.missing(name, &command).await? {
                    Missing::Answer(answer) => return Ok(answer),
                    Missing::Created(object) => Loaded::new(*object, self.source)?,
                    Missing::Again => continue,
                },
            };
            let since = self.note(name, &loaded, asked, false)?;
            if let Some(why) = loaded
                .managed
                .filter(|_| matches!(command, Command::Acquire(_)))
            {
                return Err(fault::invalid(format!(
                    "Lease {name} belongs to Kubernetes' coordinated election ({why}): use another name (K10)"
                )));
            }
            let record = loaded.record(store_time(since), self.source);
            let (_, refused) = decide(record.clone(), command.clone(), self.store_now());
            if !refused.changes() {
                return Ok(shortened(refused, &loaded));
            }
            if let Some(answer) = self.step(name, &loaded, record, since, &command).await? {
                return Ok(answer);
            }
        }
        Err(fault::unavailable(format!(
            "{TRIES} writes of others to Lease {name} came first"
        )))
    }

    /// Decides on what was loaded and writes what is decided. `None`: nothing was written; look again.
    async fn step(
        &self,
        name: &LeaseName,
        loaded: &Loaded,
        mut record: Record,
        since: leasehold_core::BootTime,
        command: &Command,
    ) -> Result<Option<Answer>, StoreError> {
        // The send time: what stood until here is proven to stand by the write itself (K1).
        let now = self.store_now();
        let granted = matches!(command, Command::Acquire(_)) && record.at(now) == State::Free;
        let burns = matches!(
            command,
            Command::ForceRelease { .. } | Command::Quarantine { .. }
        );
        if granted || burns {
            if loaded.spent(self.source) {
                return Ok(Some(Answer::TokenExhausted));
            }
            record.token = loaded.below_next(record.token, self.source);
        }
        let (decided, answer) = decide(record, command.clone(), now);
        if !answer.changes() {
            return Ok(None);
        }
        let times = (store_time(since), now, self.wall());
        let object = loaded
            .replaced(&decided, self.source, granted, times)
            .ok_or_else(|| fault::invalid("the record cannot be written".to_owned()))?;
        let asked = self.sightings.now();
        match self.link.replace(name.as_str(), &object).await? {
            Sent::Done(object) => {
                let written = Loaded::new(*object, self.source)?;
                self.note(name, &written, asked, true)?;
                Ok(Some(answer))
            }
            Sent::Conflict => Ok(None),
        }
    }

    /// There is no such Lease. Whoever held it has lost it (K7); whoever wants it waits as long as it was promised to
    /// somebody, if this process knows, and creates it unheld (K5).
    async fn missing(&self, name: &LeaseName, command: &Command) -> Result<Missing, StoreError> {
        if !matches!(command, Command::Acquire(_) | Command::Quarantine { .. }) {
            let (_, answer) = decide(Record::new(None), command.clone(), self.store_now());
            return Ok(Missing::Answer(answer));
        }
        let hint = self.sightings.promised(name);
        if !hint.is_zero() && matches!(command, Command::Acquire(_)) {
            return Ok(Missing::Answer(Answer::Quarantined { hint }));
        }
        match self.link.create(name.as_str()).await? {
            Sent::Done(object) => Ok(Missing::Created(object)),
            Sent::Conflict => Ok(Missing::Again),
        }
    }

    fn note(
        &self,
        name: &LeaseName,
        loaded: &Loaded,
        asked: leasehold_core::BootTime,
        written: bool,
    ) -> Result<leasehold_core::BootTime, StoreError> {
        let seen = Seen {
            uid: &loaded.uid,
            version: loaded.version,
            wait: loaded.wait(),
        };
        let object = written.then_some(&loaded.object);
        self.sightings.note(name, &seen, asked, object).map_err(|newer| {
            fault::invalid(format!(
                "Lease {name} went back from version {newer} to {}: the cluster was restored from a backup, and tokens \
                 would repeat; connect with a token_offset larger than every version it ever had (K6)",
                loaded.version
            ))
        })
    }

    fn status(&self, object: DynamicObject, asked: leasehold_core::BootTime) -> Option<Status> {
        let name = LeaseName::new(object.metadata.name.as_deref()?).ok()?;
        let loaded = Loaded::new(object, self.source).ok()?;
        let since = self.note(&name, &loaded, asked, false).ok()?;
        let (now, wall) = (self.sightings.now(), self.wall());
        // A first sighting tells nothing of the time before it; for people the wall clocks must do.
        let shown = match loaded.ago("renewTime", wall) {
            Some(ago) => since.min(now.minus(ago)),
            None => since,
        };
        let mut record = loaded.record(store_time(shown), self.source);
        if let Some(tenure) = &mut record.tenure {
            let ago = loaded.ago("acquireTime", wall).unwrap_or_default();
            tenure.granted = store_time(now.minus(ago));
        }
        let mut status = Status::of(name, &record, store_time(now));
        status.remaining = status.remaining.min(loaded.promise);
        if loaded.foreign {
            status.token = None;
            status.session_hash = None;
        }
        Some(status)
    }

    fn store_now(&self) -> StoreTime {
        store_time(self.sightings.now())
    }

    fn wall(&self) -> Timestamp {
        let nanos = i128::from(self.sightings.wall_nanos());
        Timestamp::from_nanosecond(nanos).unwrap_or(Timestamp::UNIX_EPOCH)
    }
}

enum Missing {
    Answer(Answer),
    Created(Box<DynamicObject>),
    Again,
}

/// This process's boot clock is the clock of what it sees.
fn store_time(at: leasehold_core::BootTime) -> StoreTime {
    StoreTime::from_nanos(at.as_nanos())
}

/// A16: refused, never ignored.
fn refuse_what_it_cannot(ttl: Ttl, lock_delay: Duration) -> Result<(), StoreError> {
    if !lock_delay.is_zero() {
        return Err(fault::invalid(
            "a Lease of Kubernetes has no lock delay: its other clients would not wait for it; use a longer ttl".to_owned(),
        ));
    }
    if u64::from(ttl.as_millis()) < MIN_TTL_MILLIS {
        return Err(fault::invalid(format!(
            "ttl {ttl:?} is too short: Kubernetes counts in whole seconds, so it is at least 1s (K11)"
        )));
    }
    Ok(())
}

/// The tenth for the drift of clocks is no part of a hint.
fn shortened(mut answer: Answer, loaded: &Loaded) -> Answer {
    match &mut answer {
        Answer::Held(held) => held.hint = held.hint.min(loaded.promise),
        Answer::Quarantined { hint } => *hint = (*hint).min(loaded.promise),
        _ => {}
    }
    answer
}

#[async_trait]
impl Store for KubernetesStore {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn bumps(&self) -> bool {
        false
    }

    async fn apply(&self, op: Op) -> Result<Outcome, StoreError> {
        let cannot = |what: &str| Err(fault::invalid(what.to_owned()));
        match op {
            Op::Lease { name, command } => {
                let call =
                    move |inner: Arc<Inner>| async move { inner.command(&name, command).await };
                let outcome = Outcome::Lease(self.call(call).await?);
                if frees(&outcome) {
                    self.changes.send_modify(|count| *count += 1);
                }
                Ok(outcome)
            }
            Op::Put { .. } | Op::Delete { .. } => cannot(
                "Kubernetes keeps no pairs for you: write objects of your own, under fence::kubernetes",
            ),
            Op::Raise { .. } => cannot(
                "Kubernetes keeps no fences for others: fence your objects with fence::kubernetes",
            ),
            Op::Begin(_) | Op::Complete(_) | Op::Abandon(_) => {
                cannot("a Lease of Kubernetes is no ledger: use sqlite: or postgres:// for it")
            }
            Op::Bump { .. } => cannot(
                "tokens are the cluster's own version numbers: after a restore connect with \
                 ?token_offset=N, larger than every version before it",
            ),
        }
    }

    async fn status(&self, name: &LeaseName) -> Result<Option<Status>, StoreError> {
        address::lease_name(name.as_str())?;
        let name = name.clone();
        self.call(|inner| async move {
            let asked = inner.sightings.now();
            let object = inner.link.get(name.as_str()).await?;
            Ok(object.and_then(|object| inner.status(object, asked)))
        })
        .await
    }

    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<Status>, StoreError> {
        let prefix = prefix.to_owned();
        self.call(move |inner| async move {
            let asked = inner.sightings.now();
            let objects = inner.link.list().await?.into_iter();
            let mut all: Vec<_> = objects
                .filter(|object| {
                    object
                        .metadata
                        .name
                        .as_ref()
                        .is_some_and(|name| name.starts_with(&prefix))
                })
                .filter_map(|object| inner.status(object, asked))
                .collect();
            all.sort_by(|one, next| one.name.cmp(&next.name));
            all.truncate(limit);
            Ok(all)
        })
        .await
    }

    async fn pair(&self, _key: &Key) -> Result<Option<Pair>, StoreError> {
        Err(fault::invalid("this store keeps no pairs".to_owned()))
    }

    async fn fence(&self, _resource: &Resource) -> Result<Option<Fence>, StoreError> {
        Err(fault::invalid("this store keeps no fences".to_owned()))
    }

    async fn entry(&self, _work: &Work) -> Result<Option<Entry>, StoreError> {
        Err(fault::invalid("this store keeps no ledger".to_owned()))
    }

    async fn history(
        &self,
        _name: Option<&LeaseName>,
        _after: u64,
        _limit: usize,
    ) -> Result<Vec<Recorded>, StoreError> {
        Err(fault::invalid(
            "a Lease keeps no history, only its last change: look at `leasehold status`, or at the audit log of the API server"
                .to_owned(),
        ))
    }

    fn changes(&self) -> Changes {
        self.listening.call_once(|| {
            self.thread
                .spawn(link::listen(self.inner.link.clone(), self.changes.clone()));
        });
        Changes::new(self.changes.subscribe())
    }

    /// A Lease stays: it is small, others may use it, and its deletion is theirs (K7).
    async fn collect(&self) -> Result<u64, StoreError> {
        Ok(0)
    }

    async fn examine(&self) -> Result<Vec<Finding>, StoreError> {
        self.call(|inner| async move { examine::examine(&inner).await })
            .await
    }
}

fn profile(source: Source) -> Profile {
    Profile {
        scheme: "kubernetes",
        clock: "each contender, by its own boot clock since it saw the Lease change",
        tokens: match source {
            Source::Version { .. } => "the resourceVersion that the grant replaced; not dense",
            Source::Transitions => "leaseTransitions: starts anew when the Lease is deleted",
        },
        durability: "what the cluster's etcd keeps; a restore of it needs token_offset",
        min_ttl: Ttl::from_millis(MIN_TTL_MILLIS).unwrap_or(Ttl::MIN),
        // Rounded up to a second, and a tenth for the drift of two clocks.
        extension: Duration::from_millis(1100),
        dense: false,
        fifo: false,
        lock_delay: false,
        pairs: false,
        fences: false,
        ledger: false,
        history: false,
    }
}
