//! Members for tests: quick elections, folders that vanish, and waiting for what will come.

use std::{future::Future, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use leasehold::{Store, StoreError};
use leasehold_core::{
    Acquire, Answer, Command, Grant, Holder, LeaseName, LockDelay, Op, Outcome, RequestId, Session,
    Ttl,
};
use leasehold_raft::{Config, RaftStore};

/// Nothing takes longer than this on a machine that works at all.
pub(crate) const WIDE: Duration = Duration::from_secs(60);

/// A member with elections quick enough for tests, and slow enough for a busy machine.
pub(crate) fn config(folder: &Path) -> Config {
    Config {
        heartbeat: Duration::from_millis(100),
        election: Duration::from_millis(500),
        listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        patience: WIDE,
        ..Config::new(folder)
    }
}

/// One that has nobody to wait for.
pub(crate) fn quick(folder: &Path) -> Config {
    Config {
        heartbeat: Duration::from_millis(30),
        election: Duration::from_millis(100),
        ..config(folder)
    }
}

/// The only member of its cluster.
pub(crate) async fn alone(folder: &Path) -> Arc<RaftStore> {
    let store = RaftStore::start(quick(folder)).await.unwrap();
    store.init().await.unwrap();
    store
}

/// Waits until `what` is so.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut ask: impl FnMut() -> F,
) -> T {
    let patience = tokio::time::Instant::now() + WIDE;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(
            tokio::time::Instant::now() < patience,
            "waited in vain until {what}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Somebody who asks.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    pub(crate) session: Session,
    pub(crate) name: LeaseName,
}

impl Asker {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            session: Session::from_bits(random()).unwrap(),
            name: name.parse().unwrap(),
        }
    }

    pub(crate) fn acquire(&self, ttl_ms: u64) -> Op {
        self.command(Command::Acquire(Acquire {
            session: self.session,
            request_id: RequestId::from_bits(random()).unwrap(),
            holder: Holder::new("a test").unwrap(),
            info: None,
            ttl: Ttl::from_millis(ttl_ms).unwrap(),
            lock_delay: LockDelay::NONE,
        }))
    }

    pub(crate) fn command(&self, command: Command) -> Op {
        Op::Lease {
            name: self.name.clone(),
            command,
        }
    }

    /// A new request that must be granted.
    pub(crate) async fn granted(&self, store: &dyn Store, ttl_ms: u64) -> Grant {
        match answer(store.apply(self.acquire(ttl_ms)).await) {
            Answer::Granted(grant) => grant,
            other => panic!("{} was not granted: {other:?}", self.name),
        }
    }
}

pub(crate) fn answer(result: Result<Outcome, StoreError>) -> Answer {
    match result {
        Ok(Outcome::Lease(answer)) => answer,
        other => panic!("a command to a lease came to {other:?}"),
    }
}

pub(crate) fn random() -> u128 {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).unwrap();
    u128::from_le_bytes(bytes) | 1
}

/// Members of one cluster in this process.
pub(crate) struct Cluster {
    pub(crate) members: Vec<Arc<RaftStore>>,
    pub(crate) folders: Vec<tempfile::TempDir>,
}

impl Cluster {
    /// As many members as asked, the first of them alone at first.
    pub(crate) async fn of(count: usize, set_up: impl Fn(Config) -> Config) -> Self {
        let folders: Vec<_> = (0..count).map(|_| tempfile::tempdir().unwrap()).collect();
        let mut members: Vec<Arc<RaftStore>> = Vec::new();
        for folder in &folders {
            let store = RaftStore::start(set_up(config(folder.path())))
                .await
                .unwrap();
            match members.first() {
                None => store.init().await.unwrap(),
                Some(first) => store.join(first.address()).await.unwrap(),
            }
            members.push(store);
        }
        Self { members, folders }
    }

    /// The one that all who are up agree on, and its place here.
    pub(crate) async fn leader(&self) -> (usize, Arc<RaftStore>) {
        let agreed = || async {
            let leaders: Vec<_> = self
                .members
                .iter()
                .map(|member| member.report().leads)
                .collect();
            let first = (*leaders.first()?)?;
            let all = leaders.iter().all(|leader| *leader == Some(first));
            let place = self
                .members
                .iter()
                .position(|member| member.node() == first)?;
            all.then(|| (place, self.members[place].clone()))
        };
        until("all agree on a leader", agreed).await
    }

    /// Somebody who does not lead.
    pub(crate) async fn follower(&self) -> Arc<RaftStore> {
        let (leader, _) = self.leader().await;
        self.members[(leader + 1) % self.members.len()].clone()
    }

    /// Stops the member at this place and takes it out of the list.
    pub(crate) async fn stop(&mut self, place: usize) -> tempfile::TempDir {
        let member = self.members.remove(place);
        member.stop().await;
        self.folders.remove(place)
    }

    pub(crate) async fn end(&mut self) {
        for member in self.members.drain(..) {
            member.stop().await;
        }
    }
}
