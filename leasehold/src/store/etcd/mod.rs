//! `etcd://…`: an etcd that is already there.
//!
//! Who judges expiry: the leader of etcd, which deletes the key when its etcd lease is over (ET1). Tokens: the revision
//! that made the holder's key, so they rise over all names and outlive every deletion. A crash keeps what a quorum has.
//! Leases have the layout of etcd's own `clientv3/concurrency`: programs of both kinds exclude each other (A11).

mod acquire;
mod address;
mod examine;
mod fault;
mod keep;
mod keys;
mod leave;
mod line;
mod link;
mod look;
mod note;
mod wait;

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use async_trait::async_trait;
use etcd_client::{Compare, GetOptions, TxnOp};
use leasehold_core::{
    Answer, Command, Entry, Fence, Key, LeaseName, LockDelay, Op, Outcome, Pair, Proof, Refusal,
    Resource, Status, Ttl, WallTime, Work,
};
use tokio::sync::watch;

use self::{
    address::{Address, Renewal},
    keys::Keys,
    link::Link,
    look::{Place, Standing, View},
    note::Note,
    wait::Waiting,
};
use super::{Changes, Finding, Level, Profile, Recorded, Store, StoreError, remote::Thread};
use crate::{
    clock::{BootClock, Clock},
    dice::Kernel,
};

/// So often a step is begun anew when the world changed in the middle of it.
const TRIES: u32 = 20;
/// Who waits asks twice for a place in the queue, and then now and then, to keep it.
const SHORTEST_LOOK: Duration = Duration::from_millis(50);
const LONGEST_LOOK: Duration = Duration::from_millis(500);
const CROWDED: &str = "the lease changes faster than it can be looked at";

/// Leases in etcd.
#[derive(Debug)]
pub struct EtcdStore {
    profile: Profile,
    address: Address,
    inner: Arc<Inner>,
    thread: Thread,
}

/// What the store's own threads share.
#[derive(Debug)]
struct Inner {
    link: Link,
    prefix: String,
    renewal: Renewal,
    waiting: Waiting,
    changes: watch::Sender<u64>,
    me: Weak<Inner>,
}

impl EtcdStore {
    /// Connects once, to see that the address and the rights are right, and that the cluster is the one it was.
    pub async fn connect(url: &str) -> Result<Arc<Self>, StoreError> {
        let address = Address::parse(url)?;
        let thread = Thread::start("leasehold-etcd")?;
        let place = address.clone();
        let opened = thread.spawn(async move {
            let link = Link::connect(&place).await?;
            line::settle(&link, &place.prefix).await?;
            Ok(Arc::new_cyclic(|me| Inner {
                link,
                prefix: place.prefix,
                renewal: place.renewal,
                waiting: Waiting::default(),
                changes: watch::Sender::default(),
                me: me.clone(),
            }))
        });
        let inner = opened
            .await
            .unwrap_or_else(|_| Err(fault::unavailable("the store's thread ended")))?;
        let store = Arc::new(Self {
            profile: profile(address.renewal),
            address,
            inner,
            thread,
        });
        store.warn().await;
        Ok(store)
    }

    /// Says once what is known to be wrong with this server (ET3).
    async fn warn(&self) {
        let findings = self.examine().await.unwrap_or_default();
        for finding in findings
            .iter()
            .filter(|finding| finding.level > Level::Good)
        {
            tracing::warn!("{}", finding.what);
        }
    }

    /// Runs `work` on the store's own thread. Its end is awaited, but not bound to this call.
    async fn call<T, F>(&self, work: impl FnOnce(Arc<Inner>) -> F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        self.thread.run(work(self.inner.clone())).await
    }

    /// What a transaction of the holder of this token compares, or why it does not hold: see [`crate::fence::etcd`].
    pub(crate) async fn proof(
        &self,
        proof: Proof,
    ) -> Result<Result<Vec<Compare>, Refusal>, StoreError> {
        self.call(|inner| async move {
            let keys = Keys::new(&inner.prefix, &proof.lease)?;
            let view = inner.view(&keys, &keys.note()).await?;
            Ok(view.proof(proof.token))
        })
        .await
    }
}

impl Inner {
    async fn lease(&self, name: LeaseName, command: Command) -> Result<Outcome, StoreError> {
        let keys = Keys::new(&self.prefix, &name)?;
        let answer = match command {
            Command::Acquire(asked) if asked.lock_delay != LockDelay::NONE => {
                return Err(fault::invalid(
                    "an etcd store has no lock delay: leave it out",
                ));
            }
            Command::Acquire(asked) => self.acquire(&keys, &asked).await,
            Command::Renew(asked) => self.renew(&keys, &asked).await,
            Command::Release(asked) => self.release(&keys, &asked).await,
            Command::ForceRelease { now } => self.force(&keys, now).await,
            Command::Quarantine { above } => self.quarantine(&keys, above).await,
        };
        Ok(Outcome::Lease(answer?))
    }

    /// Reads how a lease stands. A cluster that was restored is put in quarantine before anything is told of it (ET10).
    async fn view(&self, keys: &Keys, own: &str) -> Result<View, StoreError> {
        for _ in 0..TRIES {
            match View::read(&self.link, &self.prefix, keys, own).await? {
                Some(view) => return Ok(view),
                None => line::settle(&self.link, &self.prefix).await?,
            }
        }
        Err(fault::unavailable(CROWDED))
    }

    /// The note, written in a transaction.
    fn put_note(&self, view: &View, mut note: Note) -> TxnOp {
        note.at_ms = BootClock::new().wall().as_millis();
        TxnOp::put(view.keys.note(), note.text(), None)
    }

    /// Who waits shall ask.
    fn freed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    async fn status(&self, name: LeaseName) -> Result<Option<Status>, StoreError> {
        let keys = Keys::new(&self.prefix, &name)?;
        let view = self.view(&keys, &keys.note()).await?;
        if view.note.is_none() && view.first.is_none() {
            return Ok(None);
        }
        let (token, holder) = view.newest();
        let place = match view.standing() {
            Standing::Held(place, _) | Standing::Foreign(place) => Some((place.lease, Some(place))),
            Standing::Quarantined(lease) => Some((lease, None)),
            Standing::Free => None,
        };
        let remaining = match place {
            Some((lease, _)) => self.link.remaining(lease).await?,
            None => Duration::ZERO,
        };
        let foreign = match view.standing() {
            Standing::Foreign(place) => Some(place),
            _ => None,
        };
        let note = view.note.as_ref().filter(|_| foreign.is_none());
        let tenure = note.and_then(|note| note.tenure.as_ref());
        let ttl = note.map_or(Ttl::DEFAULT, |note| keep::ttl(note.ttl_ms / 1000));
        let since = note.map(|note| {
            let written = WallTime::from_nanos(note.at_ms.saturating_mul(1_000_000));
            BootClock::new().wall().since(written)
        });
        Ok(Some(Status {
            name,
            state: view.state(),
            token,
            holder,
            session_hash: tenure.and_then(note::Tenure::fingerprint),
            released: tenure.is_some_and(|tenure| tenure.released),
            info: tenure.map_or_else(
                || foreign.and_then(Place::info),
                |tenure| tenure.info.clone(),
            ),
            ttl,
            since: since.filter(|_| tenure.is_some()),
            remaining,
            renewals: tenure.map_or(0, |tenure| tenure.renewals),
        }))
    }

    /// By their notes: leases that only other programs had are not listed.
    async fn list(&self, starting: &str, limit: usize) -> Result<Vec<Status>, StoreError> {
        let folder = keys::notes(&self.prefix);
        let options = GetOptions::new()
            .with_prefix()
            .with_keys_only()
            .with_limit(i64::try_from(limit).unwrap_or(i64::MAX));
        let mut client = self.link.client();
        let got = self
            .link
            .read(client.get(format!("{folder}{starting}"), Some(options)))
            .await?;
        let mut leases = Vec::new();
        for kv in got.kvs() {
            let name = kv
                .key()
                .get(folder.len()..)
                .and_then(|name| std::str::from_utf8(name).ok());
            let Some(name) = name.and_then(|name| LeaseName::new(name).ok()) else {
                continue;
            };
            leases.extend(self.status(name).await?);
        }
        Ok(leases)
    }

    /// Notes of leases that have been free for a day (A21). Revisions remember nothing of them and need nothing.
    async fn collect(&self) -> Result<u64, StoreError> {
        let folder = keys::notes(&self.prefix);
        let mut client = self.link.client();
        let every = GetOptions::new().with_prefix();
        let got = self
            .link
            .read(client.get(folder.clone(), Some(every)))
            .await?;
        let now = BootClock::new().wall();
        let mut gone = 0;
        for kv in got.kvs() {
            let name = kv
                .key()
                .get(folder.len()..)
                .and_then(|name| std::str::from_utf8(name).ok());
            let note = Note::read("", kv.value(), kv.mod_revision());
            let (Some(Ok(name)), Ok(note)) = (name.map(LeaseName::new), note) else {
                continue;
            };
            let written = WallTime::from_nanos(note.at_ms.saturating_mul(1_000_000));
            let kept = super::FREE_BEFORE_FORGOTTEN + keep::ttl(note.ttl_ms / 1000).get();
            if note.lift == 0 && now.since(written) >= kept {
                gone += u64::from(self.forget(&Keys::new(&self.prefix, &name)?).await?);
            }
        }
        Ok(gone)
    }

    async fn forget(&self, keys: &Keys) -> Result<bool, StoreError> {
        let view = self.view(keys, &keys.note()).await?;
        if !matches!(view.standing(), Standing::Free) {
            return Ok(false);
        }
        let txn = etcd_client::Txn::new()
            .when(view.unchanged(&self.prefix))
            .and_then([TxnOp::delete(keys.note(), None)]);
        Ok(self.link.write(txn).await?.succeeded())
    }
}

#[async_trait]
impl Store for EtcdStore {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn counts_renewals(&self) -> bool {
        self.address.renewal == Renewal::Raft
    }

    async fn apply(&self, op: Op) -> Result<Outcome, StoreError> {
        match op {
            Op::Lease { name, command } => {
                self.call(|inner| async move { inner.lease(name, command).await })
                    .await
            }
            Op::Bump { above } => {
                self.call(
                    |inner| async move { line::bump(&inner.link, &inner.prefix, above).await },
                )
                .await
            }
            Op::Put { .. } | Op::Delete { .. } => Err(no(
                "pairs: write your own keys in a transaction that compares, see leasehold::fence::etcd",
            )),
            Op::Raise { .. } => Err(no("fences of other receivers")),
            Op::Begin(_) | Op::Complete(_) | Op::Abandon(_) => Err(no("ledger")),
        }
    }

    /// Keeps the place of who waits, and asks when the key in front of it is gone. `waited` ends when the last ask was
    /// sent, before anything of the grant was evaluated (A1).
    async fn apply_waiting(&self, op: Op, wait: Duration) -> Result<Outcome, StoreError> {
        let clock = BootClock::new();
        let received = clock.now();
        let mut pause = SHORTEST_LOOK;
        loop {
            let mut changes = self.changes();
            let asked = clock.now();
            let mut outcome = self.apply(op.clone()).await?;
            match &mut outcome {
                Outcome::Lease(Answer::Granted(grant)) => grant.waited = asked.since(received),
                Outcome::Lease(Answer::Held(_) | Answer::Quarantined { .. }) => {
                    let left = wait.saturating_sub(clock.now().since(received));
                    if !left.is_zero() {
                        let _ = tokio::time::timeout(pause.min(left), changes.changed()).await;
                        pause = LONGEST_LOOK;
                        continue;
                    }
                }
                _ => {}
            }
            return Ok(outcome);
        }
    }

    async fn status(&self, name: &LeaseName) -> Result<Option<Status>, StoreError> {
        let name = name.clone();
        self.call(|inner| async move { inner.status(name).await })
            .await
    }

    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<Status>, StoreError> {
        let prefix = prefix.to_owned();
        self.call(move |inner| async move { inner.list(&prefix, limit).await })
            .await
    }

    async fn pair(&self, _key: &Key) -> Result<Option<Pair>, StoreError> {
        Err(no("pairs"))
    }

    async fn fence(&self, _resource: &Resource) -> Result<Option<Fence>, StoreError> {
        Err(no("fences of other receivers"))
    }

    async fn entry(&self, _work: &Work) -> Result<Option<Entry>, StoreError> {
        Err(no("ledger"))
    }

    async fn history(
        &self,
        _name: Option<&LeaseName>,
        _after: u64,
        _limit: usize,
    ) -> Result<Vec<Recorded>, StoreError> {
        Err(no(
            "history: `leasehold list` and `leasehold status` tell what is now",
        ))
    }

    fn changes(&self) -> Changes {
        Changes::new(self.inner.changes.subscribe())
    }

    async fn collect(&self) -> Result<u64, StoreError> {
        self.call(|inner| async move { inner.collect().await })
            .await
    }

    async fn examine(&self) -> Result<Vec<Finding>, StoreError> {
        let address = self.address.clone();
        self.call(move |inner| async move { inner.examine(&address).await })
            .await
    }
}

impl Drop for EtcdStore {
    /// Places in a queue that nobody will come back to are given up, as far as that goes quickly.
    fn drop(&mut self) {
        let places = self.inner.waiting.take_places();
        if places.is_empty() {
            return;
        }
        let inner = self.inner.clone();
        let (done, wait) = std::sync::mpsc::channel();
        self.thread.spawn(async move {
            for id in places {
                let _ = inner.link.revoke(id).await;
            }
            let _ = done.send(());
        });
        let _ = wait.recv_timeout(Duration::from_secs(1));
    }
}

fn no(what: &str) -> StoreError {
    fault::invalid(format!("an etcd store has no {what}"))
}

/// An id for an etcd lease of our own making.
fn random_id() -> Result<i64, StoreError> {
    let bits = Kernel
        .try_roll()
        .map_err(|error| fault::unavailable(error.to_string()))?;
    Ok(keys::positive(bits.get() as u64))
}

fn profile(renewal: Renewal) -> Profile {
    Profile {
        scheme: "etcd",
        clock: "the leader of etcd, by its monotonic clock",
        tokens: "the revision that made the holder's key; they jump after a restore",
        durability: match renewal {
            Renewal::KeepAlive => {
                "what a quorum has; renewals are confirmed by a quorum and kept in the leader's memory"
            }
            Renewal::Raft => "what a quorum has, renewals too",
        },
        min_ttl: Ttl::new(Duration::from_secs(2)).expect("two seconds are a ttl"),
        // It looks for ended leases every half second (ET1); a new leader adds a ttl (ET2).
        extension: Duration::from_secs(3),
        dense: false,
        fifo: true,
        lock_delay: false,
        pairs: false,
        fences: false,
        ledger: false,
        history: false,
    }
}
