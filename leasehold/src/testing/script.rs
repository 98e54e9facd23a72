//! A store that goes wrong on command: around any store, with nothing left to chance.

use std::{
    collections::VecDeque,
    future::pending,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use leasehold_core::{
    Command, Entry, Fence, Key, LeaseName, Op, Outcome, Pair, Resource, Status, Work,
};
use tokio::sync::{oneshot, watch};

use super::Gate;
use crate::{
    alarm::sleep_until,
    block::block_on,
    clock::Clock,
    store::{Changes, Finding, Profile, Recorded, SharedStore, Store, StoreError, frees},
};

/// Which operations a [`Fault`] hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// All.
    Any,
    /// Asks for a lease.
    Acquire,
    /// Renewals.
    Renew,
    /// Releases.
    Release,
    /// Everything that is no lease command.
    Other,
}

impl On {
    fn hits(self, op: &Op) -> bool {
        let Op::Lease { command, .. } = op else {
            return matches!(self, On::Any | On::Other);
        };
        match self {
            On::Any => true,
            On::Acquire => matches!(command, Command::Acquire(_)),
            On::Renew => matches!(command, Command::Renew(_)),
            On::Release => matches!(command, Command::Release(_)),
            On::Other => false,
        }
    }
}

/// What goes wrong with an operation.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Nothing: this one passes. To spare the first few.
    Pass,
    /// The store never sees it, and the caller never hears of it.
    LoseRequest,
    /// It is done and durable, and the caller never hears of it: the cut after the commit.
    LoseReply,
    /// The caller gets this error at once; nothing is done.
    Fail(StoreError),
    /// It is done, and the caller gets this error.
    FailAfter(StoreError),
    /// The store sees it so much later, on the clock of the script, also if the caller has gone by then.
    DelayRequest(Duration),
    /// It is done, and the answer comes so much later.
    DelayReply(Duration),
    /// The store sees it twice; the caller gets the second answer.
    Duplicate,
    /// The store sees it when [`ScriptedStore::stuck`] is asked to deliver it, also if the caller has gone: so requests
    /// overtake each other, and arrive when nobody expects them any more.
    Hold,
    /// The call blocks the thread that polls it until the gate opens: a client that is badly written. Then it passes.
    BlockThread(Gate),
    /// The call panics.
    Panic,
}

/// A request that a [`Fault::Hold`] holds.
#[derive(Debug)]
pub struct Stuck {
    op: Op,
    store: Arc<ScriptedStore>,
    reply: oneshot::Sender<Result<Outcome, StoreError>>,
}

impl Stuck {
    /// What was asked.
    pub fn op(&self) -> &Op {
        &self.op
    }

    /// Delivers it now, and its answer to the caller, if that still waits.
    pub async fn deliver(self) -> Result<Outcome, StoreError> {
        let result = self.store.pass(self.op).await;
        let _ = self.reply.send(result.clone());
        result
    }
}

/// A store around another one. Faults that are put in line with [`next`](Self::next) hit one operation each, in order;
/// those of [`always`](Self::always) hit every operation that no line hits. Everything else passes.
#[derive(Debug)]
pub struct ScriptedStore {
    profile: Profile,
    clock: Arc<dyn Clock>,
    script: Mutex<Script>,
    changes: watch::Sender<u64>,
    /// Itself, for what outlives a call.
    this: std::sync::Weak<ScriptedStore>,
}

#[derive(Debug)]
struct Script {
    inner: SharedStore,
    lines: VecDeque<(On, Fault)>,
    always: Vec<(On, Fault)>,
    stuck: VecDeque<Stuck>,
    seen: Vec<Op>,
}

impl ScriptedStore {
    /// All is well with `inner` at first. Delays go by `clock`.
    pub fn new(inner: SharedStore, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            profile: inner.profile().clone(),
            clock,
            script: Mutex::new(Script {
                inner,
                lines: VecDeque::new(),
                always: Vec::new(),
                stuck: VecDeque::new(),
                seen: Vec::new(),
            }),
            changes: watch::Sender::default(),
            this: this.clone(),
        })
    }

    /// The next operation that `on` hits and no earlier line does goes wrong like this.
    pub fn next(&self, on: On, fault: Fault) {
        self.script().lines.push_back((on, fault));
    }

    /// Every operation that `on` hits goes wrong like this, until [`heal`](Self::heal).
    pub fn always(&self, on: On, fault: Fault) {
        self.script().always.insert(0, (on, fault));
    }

    /// Nothing goes wrong any more. What is stuck stays stuck.
    pub fn heal(&self) {
        let mut script = self.script();
        script.lines.clear();
        script.always.clear();
    }

    /// Another store takes the place of the one behind this one: an old backup that was restored, a standby that was
    /// promoted, an empty disk. Answers the one before.
    pub fn replace(&self, inner: SharedStore) -> SharedStore {
        let before = std::mem::replace(&mut self.script().inner, inner);
        self.hint();
        before
    }

    /// The oldest request that is held, if there is one.
    pub fn stuck(&self) -> Option<Stuck> {
        self.script().stuck.pop_front()
    }

    /// Everything that callers have asked so far, in order, whatever became of it.
    pub fn seen(&self) -> Vec<Op> {
        self.script().seen.clone()
    }

    /// Wakes waiters for no reason.
    pub fn hint(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    fn inner(&self) -> SharedStore {
        self.script().inner.clone()
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fault(&self, op: &Op) -> Fault {
        let mut script = self.script();
        script.seen.push(op.clone());
        let line = script.lines.iter().position(|(on, _)| on.hits(op));
        if let Some((_, fault)) = line.and_then(|line| script.lines.remove(line)) {
            return fault;
        }
        let always = script.always.iter().find(|(on, _)| on.hits(op));
        always.map_or(Fault::Pass, |(_, fault)| fault.clone())
    }

    async fn pass(&self, op: Op) -> Result<Outcome, StoreError> {
        let inner = self.inner();
        let result = inner.apply(op).await;
        if result.as_ref().is_ok_and(frees) {
            self.hint();
        }
        result
    }

    async fn delay(&self, by: Duration) -> Result<(), StoreError> {
        let until = self.clock.now().plus(by);
        let sleep = sleep_until(&self.clock, until).map_err(|error| StoreError::Invalid {
            what: error.to_string(),
        })?;
        sleep.await;
        Ok(())
    }

    /// What holds a request, and what its caller waits for.
    fn hold(&self, op: Op) -> Option<(Stuck, oneshot::Receiver<Result<Outcome, StoreError>>)> {
        let (reply, answer) = oneshot::channel();
        let store = self.this.upgrade()?;
        Some((Stuck { op, store, reply }, answer))
    }

    /// On a thread of its own, since the caller's may end before.
    async fn deliver_later(&self, op: Op, by: Duration) -> Result<Outcome, StoreError> {
        let Some((stuck, answer)) = self.hold(op) else {
            return pending().await;
        };
        let until = self.clock.now().plus(by);
        let sleep = sleep_until(&self.clock, until).map_err(|error| StoreError::Invalid {
            what: error.to_string(),
        })?;
        std::thread::spawn(move || {
            block_on(async {
                sleep.await;
                let _ = stuck.deliver().await;
            })
        });
        answered(answer).await
    }
}

/// A request that is lost is never answered.
async fn answered(
    answer: oneshot::Receiver<Result<Outcome, StoreError>>,
) -> Result<Outcome, StoreError> {
    match answer.await {
        Ok(result) => result,
        Err(_) => pending().await,
    }
}

#[async_trait]
impl Store for ScriptedStore {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    async fn apply(&self, op: Op) -> Result<Outcome, StoreError> {
        match self.fault(&op) {
            Fault::Pass => self.pass(op).await,
            Fault::LoseRequest => pending().await,
            Fault::LoseReply => {
                let _ = self.pass(op).await;
                pending().await
            }
            Fault::Fail(error) => Err(error),
            Fault::FailAfter(error) => {
                let _ = self.pass(op).await;
                Err(error)
            }
            Fault::DelayRequest(by) => self.deliver_later(op, by).await,
            Fault::DelayReply(by) => {
                let result = self.pass(op).await;
                self.delay(by).await?;
                result
            }
            Fault::Duplicate => {
                let _ = self.pass(op.clone()).await;
                self.pass(op).await
            }
            Fault::Hold => {
                let Some((stuck, answer)) = self.hold(op) else {
                    return pending().await;
                };
                self.script().stuck.push_back(stuck);
                answered(answer).await
            }
            Fault::BlockThread(gate) => {
                gate.wait();
                self.pass(op).await
            }
            Fault::Panic => panic!("the script says so"),
        }
    }

    async fn status(&self, name: &LeaseName) -> Result<Option<Status>, StoreError> {
        self.inner().status(name).await
    }

    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<Status>, StoreError> {
        self.inner().list(prefix, limit).await
    }

    async fn pair(&self, key: &Key) -> Result<Option<Pair>, StoreError> {
        self.inner().pair(key).await
    }

    async fn fence(&self, resource: &Resource) -> Result<Option<Fence>, StoreError> {
        self.inner().fence(resource).await
    }

    async fn entry(&self, work: &Work) -> Result<Option<Entry>, StoreError> {
        self.inner().entry(work).await
    }

    async fn history(
        &self,
        name: Option<&LeaseName>,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Recorded>, StoreError> {
        self.inner().history(name, after, limit).await
    }

    /// Ticks when a lease got free through this store; what reaches the inner one by another way is not seen.
    fn changes(&self) -> Changes {
        Changes::new(self.changes.subscribe())
    }

    async fn collect(&self) -> Result<u64, StoreError> {
        self.inner().collect().await
    }

    async fn evict(&self) -> Result<Option<String>, StoreError> {
        self.inner().evict().await
    }

    async fn examine(&self) -> Result<Vec<Finding>, StoreError> {
        self.inner().examine().await
    }
}
