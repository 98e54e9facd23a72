//! How a member is set up. What cannot work is refused with what would.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use leasehold::{
    StoreError,
    clock::{BootClock, Clock},
};
use openraft::SnapshotPolicy;

/// How one member of a cluster is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it keeps its log and its snapshot. The folder is this member's alone and made if it is missing. It is never
    /// put back from a copy: a member that forgot what it promised must come back as another one.
    pub folder: PathBuf,
    /// Where it listens for other members; `None`: it stays alone. Port 0 takes any free one.
    pub listen: Option<SocketAddr>,
    /// How others reach it, `host:port`, if not at the address where it listens.
    pub advertise: Option<String>,
    /// Its id in a new folder; random if `None`. An id is never used again once its member has left.
    pub node: Option<u64>,
    /// Allows listening on other addresses than loopback. Members trust whoever reaches that port: keep it in a network
    /// of their own.
    pub open_network: bool,
    /// How often the leader shows that it lives.
    pub heartbeat: Duration,
    /// How long the others wait before they elect another: between this and twice this.
    pub election: Duration,
    /// After how many entries a snapshot is made and the log cut.
    pub snapshot_every: u64,
    /// How long a call is tried again while the cluster cannot answer it.
    pub patience: Duration,
    /// The clock that log time goes by while this member leads.
    pub clock: Arc<dyn Clock>,
}

impl Config {
    /// A member that stays alone until it is told where to listen.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            listen: None,
            advertise: None,
            node: None,
            open_network: false,
            heartbeat: Duration::from_millis(250),
            election: Duration::from_secs(1),
            snapshot_every: 20_000,
            patience: Duration::from_secs(5),
            clock: BootClock::new(),
        }
    }

    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let refuse = |what: String| Err(StoreError::Invalid { what });
        if let Some(listen) = self.listen
            && !listen.ip().is_loopback()
            && !self.open_network
        {
            return refuse(format!(
                "listening on {listen} is not allowed: members trust whoever reaches them; use a loopback address, or \
                 say that this network is theirs alone (open_network)"
            ));
        }
        if self.heartbeat < Duration::from_millis(10) || self.election < self.heartbeat * 3 {
            return refuse(format!(
                "an election after {:?} with a heartbeat every {:?} is not allowed: at least 10ms, and three of \
                 them before an election",
                self.election, self.heartbeat
            ));
        }
        if self.node == Some(0) {
            return refuse("member id 0 is not allowed: ids begin with 1".into());
        }
        if self.snapshot_every == 0 {
            return refuse("a snapshot every 0 entries is not allowed: at least 1".into());
        }
        Ok(())
    }

    /// The longest time to an election.
    pub(crate) fn election_max(&self) -> Duration {
        self.election * 2
    }

    pub(crate) fn engine(&self) -> openraft::Config {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        openraft::Config {
            cluster_name: "leasehold".into(),
            heartbeat_interval: millis(self.heartbeat),
            election_timeout_min: millis(self.election),
            election_timeout_max: millis(self.election_max()),
            install_snapshot_timeout: 20_000,
            max_payload_entries: 64,
            snapshot_policy: SnapshotPolicy::LogsSinceLast(self.snapshot_every),
            max_in_snapshot_log_to_keep: self.snapshot_every / 4,
            replication_lag_threshold: self.snapshot_every.saturating_mul(2),
            enable_pre_vote: Some(true),
            // The table is in memory: whoever comes back learns first what was committed (CRATES 2).
            enable_leader_restore: Some(false),
            allow_log_reversion: Some(false),
            ..openraft::Config::default()
        }
    }
}
