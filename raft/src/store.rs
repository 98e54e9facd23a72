//! `raft`: a consensus log, in the user's own program (6.5).
//!
//! Who judges expiry: the log, by log time, which the leader's boot clock moves and which stands still while nobody
//! leads. Tokens: counted per lease in the log. A crash of a minority keeps all that was answered, and so does a power
//! loss of all; while no majority is up nothing is granted and nothing is renewed.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use async_trait::async_trait;
use leasehold::{
    StoreError,
    store::{Changes, Finding, Level, Profile, Recorded, Store},
};
use leasehold_core::{
    Entry, Fence, Key, LeaseName, Op, Outcome, Pair, Resource, Status, StoreTime, Ttl, Work,
};
use tokio::{runtime::Handle, sync::oneshot, time::Instant};

use crate::{
    config::Config,
    member::{self, Running},
    node::Node,
    snapshot,
    transport::Peer,
    types::{Act, Address, Came},
    wire::{Change, Failed, Question, Reading, Report},
};

/// How long a change of members may take: a new member has to catch up first.
const CHANGE: Duration = Duration::from_secs(60);

/// A member of a cluster, and with it a store. The cluster's thread ends when it is stopped or dropped.
#[derive(Debug)]
pub struct RaftStore {
    profile: Profile,
    node: Arc<Node>,
    handle: Handle,
    address: String,
    running: Mutex<Option<Running>>,
}

impl RaftStore {
    /// Starts the member that lives in the folder of `config`. A new folder makes a member of no cluster: call
    /// [`RaftStore::init`] or [`RaftStore::join`] on it, once.
    ///
    /// `Invalid` if the set-up or the files cannot be used as they are.
    pub async fn start(config: Config) -> Result<Arc<Self>, StoreError> {
        config.check()?;
        let extension = config.election_max() * 3;
        let (started, begun) = oneshot::channel();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new()
            .name("leasehold-raft".into())
            .spawn(move || member::run(config, started, stopped))
            .map_err(|error| unavailable(&format!("no thread could be started: {error}")))?;
        let begun = begun
            .await
            .map_err(|_| unavailable("its thread has ended"))?;
        let (node, handle) = begun?;
        Ok(Arc::new(Self {
            profile: profile(extension),
            address: node.address.clone(),
            node,
            handle,
            running: Mutex::new(Some(Running { stop, thread })),
        }))
    }

    /// Makes a new cluster with this member alone in it; others join it.
    pub async fn init(&self) -> Result<(), StoreError> {
        let cluster = member::random_bits()?;
        let node = self.node.clone();
        let members = BTreeMap::from([(node.card.node, Address(self.address.clone()))]);
        let init = async move { node.init(cluster, members).await };
        self.within(init).await?.map_err(StoreError::from)
    }

    /// Joins the cluster of the member that listens at `address`; answers when this one votes.
    pub async fn join(&self, address: &str) -> Result<(), StoreError> {
        let node = self.node.clone();
        let change = Change::Join {
            node: node.card.node,
            address: self.address.clone(),
        };
        let via = Peer {
            node: None,
            address: address.to_owned(),
        };
        let ask = async move { node.ask(&via, &change, Instant::now() + CHANGE).await };
        match self.within(ask).await? {
            Ok(result) => result.map_err(StoreError::from),
            Err(what) => Err(StoreError::Unknown { what }),
        }
    }

    /// Removes a member, dead or alive. Its id never comes back: who takes its place joins as a new one.
    pub async fn remove(&self, node: u64) -> Result<(), StoreError> {
        self.change(Change::Remove { node }).await
    }

    /// Lets another member lead; answers when it does.
    pub async fn transfer(&self, to: u64) -> Result<(), StoreError> {
        self.change(Change::Transfer { to }).await
    }

    async fn change(&self, change: Change) -> Result<(), StoreError> {
        let node = self.node.clone();
        let until = Instant::now() + CHANGE;
        let made = async move { node.change(change, until, false).await };
        match self.within(made).await? {
            Some(result) => result.map_err(StoreError::from),
            None => Err(unavailable("no member leads")),
        }
    }

    /// How the cluster looks from this member.
    pub fn report(&self) -> Report {
        self.node.report()
    }

    /// This member's id.
    pub fn node(&self) -> u64 {
        self.node.card.node
    }

    /// Where this member listens for others; empty if it does not.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The lease as this member last heard of it: never waits, may be old, decides nothing (L11).
    pub fn peek(&self, name: &LeaseName) -> Option<Status> {
        let state = self.node.machine.state();
        state.table.status(name, StoreTime::ZERO)
    }

    /// Writes the state that a majority has agreed on to a file, from which [`crate::restore()`] makes a new cluster.
    pub async fn snapshot(&self, file: impl AsRef<Path>) -> Result<(), StoreError> {
        // A read proves that this member has all that was answered before.
        self.read(Question::List {
            prefix: String::new(),
            limit: 0,
        })
        .await?;
        let (node, file): (_, PathBuf) = (self.node.clone(), file.as_ref().to_owned());
        let write = async move {
            let frozen = node.machine.state().clone();
            tokio::task::spawn_blocking(move || snapshot::write_file(&file, &frozen.to_image()))
                .await
        };
        let written = self.within(write).await?;
        let failed = |error: &dyn std::fmt::Display| {
            unavailable(&format!("the snapshot was not written: {error}"))
        };
        written
            .map_err(|error| failed(&error))?
            .map_err(|error| failed(&error))
    }

    /// Stops this member and closes its files; the others go on. Calls that are on their way end as `Unknown`.
    pub async fn stop(&self) {
        let running = self
            .running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(Running { stop, thread }) = running {
            drop(stop);
            let (done, end) = oneshot::channel();
            let wait = thread::Builder::new()
                .name("leasehold-stop".into())
                .spawn(move || {
                    let _ = thread.join();
                    let _ = done.send(());
                });
            if wait.is_ok() {
                let _ = end.await;
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn node_for_tests(&self) -> &Node {
        &self.node
    }

    fn until(&self) -> Instant {
        Instant::now() + self.node.patience
    }

    /// On the cluster's own thread.
    async fn within<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.handle
            .spawn(work)
            .await
            .map_err(|_| StoreError::Unknown {
                what: "this member has been stopped".into(),
            })
    }

    async fn do_all(&self, acts: Vec<Act>) -> Vec<Result<Came, StoreError>> {
        let count = acts.len();
        let all = |error: StoreError| (0..count).map(|_| Err(error.clone())).collect();
        match self.node.submit(acts, self.until(), false) {
            Ok(answer) => match answer.await {
                Ok(Some(came)) => came
                    .into_iter()
                    .map(|came| came.map_err(StoreError::from))
                    .collect(),
                Ok(None) => all(unavailable("no member leads")),
                Err(_) => all(StoreError::Unknown {
                    what: "this member has been stopped".into(),
                }),
            },
            Err(failed) => all(failed.into()),
        }
    }

    async fn read(&self, question: Question) -> Result<Reading, StoreError> {
        let (node, until) = (self.node.clone(), self.until());
        let read = async move { node.read(question, until, false).await };
        match self.within(read).await {
            Ok(Some(result)) => result.map_err(StoreError::from),
            Ok(None) => Err(unavailable("no member leads")),
            Err(_) => Err(unavailable("this member has been stopped")),
        }
    }
}

/// What was asked and what was answered do not fit, which only a bug or a stranger can do.
fn odd<T>() -> Result<T, StoreError> {
    Err(unavailable("the leader gave an odd answer"))
}

fn unavailable(what: &str) -> StoreError {
    Failed::Unavailable(what.to_owned()).into()
}

fn outcome(came: Result<Came, StoreError>) -> Result<Outcome, StoreError> {
    match came? {
        Came::Outcome(outcome) => Ok(outcome),
        Came::Collected(_) => odd(),
    }
}

fn profile(extension: Duration) -> Profile {
    Profile {
        scheme: "raft",
        clock: "the log: the leader's boot clock moves it, and it stands still while nobody leads",
        tokens: "counted per lease in the log",
        durability: "on the disks of a majority before it is answered",
        min_ttl: Ttl::MIN,
        extension,
        dense: true,
        fifo: false,
        lock_delay: true,
        pairs: true,
        fences: true,
        ledger: true,
        history: true,
    }
}

#[async_trait]
impl Store for RaftStore {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    async fn apply(&self, op: Op) -> Result<Outcome, StoreError> {
        match self.do_all(vec![Act::Op(op)]).await.pop() {
            Some(came) => outcome(came),
            None => odd(),
        }
    }

    async fn apply_all(&self, ops: Vec<Op>) -> Vec<Result<Outcome, StoreError>> {
        if ops.is_empty() {
            return Vec::new();
        }
        let came = self.do_all(ops.into_iter().map(Act::Op).collect()).await;
        came.into_iter().map(outcome).collect()
    }

    async fn status(&self, name: &LeaseName) -> Result<Option<Status>, StoreError> {
        match self.read(Question::Status(name.clone())).await? {
            Reading::Status(status) => Ok(status),
            _ => odd(),
        }
    }

    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<Status>, StoreError> {
        let prefix = prefix.to_owned();
        match self.read(Question::List { prefix, limit }).await? {
            Reading::List(list) => Ok(list),
            _ => odd(),
        }
    }

    async fn pair(&self, key: &Key) -> Result<Option<Pair>, StoreError> {
        match self.read(Question::Pair(key.clone())).await? {
            Reading::Pair(pair) => Ok(pair),
            _ => odd(),
        }
    }

    async fn fence(&self, resource: &Resource) -> Result<Option<Fence>, StoreError> {
        match self.read(Question::Fence(resource.clone())).await? {
            Reading::Fence(fence) => Ok(fence),
            _ => odd(),
        }
    }

    async fn entry(&self, work: &Work) -> Result<Option<Entry>, StoreError> {
        match self.read(Question::Entry(work.clone())).await? {
            Reading::Entry(entry) => Ok(entry),
            _ => odd(),
        }
    }

    async fn history(
        &self,
        name: Option<&LeaseName>,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Recorded>, StoreError> {
        let name = name.cloned();
        match self.read(Question::History { name, after, limit }).await? {
            Reading::History(events) => Ok(events
                .into_iter()
                .map(|(number, event)| Recorded { number, event })
                .collect()),
            _ => odd(),
        }
    }

    fn changes(&self) -> Changes {
        Changes::new(self.node.machine.changes())
    }

    async fn collect(&self) -> Result<u64, StoreError> {
        match self.do_all(vec![Act::Collect]).await.pop() {
            Some(Ok(Came::Collected(rows))) => Ok(rows),
            Some(Err(error)) => Err(error),
            _ => odd(),
        }
    }

    async fn examine(&self) -> Result<Vec<Finding>, StoreError> {
        Ok(findings(&self.report()))
    }
}

fn findings(report: &Report) -> Vec<Finding> {
    let voters = report.members.iter().filter(|member| member.voter).count();
    let finding = |level, what: String, fix: Option<&str>| Finding {
        level,
        what,
        fix: fix.map(str::to_owned),
    };
    let mut findings = Vec::new();
    match &report.failed {
        Some(why) => findings.push(finding(
            Level::Fault,
            why.clone(),
            Some("mend the cause and start it again"),
        )),
        None if report.leads.is_none() => findings.push(finding(
            Level::Fault,
            "no member leads: nothing is granted or renewed".into(),
            Some("bring a majority of the members back"),
        )),
        None => findings.push(finding(
            Level::Good,
            format!(
                "member {} of {voters} that vote; the cluster has a leader",
                report.node
            ),
            None,
        )),
    }
    match voters {
        1 => findings.push(finding(
            Level::Warning,
            "one member votes: its machine is a single point of failure".into(),
            Some("let two more members join"),
        )),
        even if even % 2 == 0 => findings.push(finding(
            Level::Warning,
            format!(
                "{even} members vote: no more of them may fail than with {}",
                even.saturating_sub(1)
            ),
            Some("use three or five"),
        )),
        _ => {}
    }
    findings
}
