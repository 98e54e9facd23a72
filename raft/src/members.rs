//! Who is a member: the first one, those who join, those who leave, and who of them leads.

use std::collections::{BTreeMap, BTreeSet};

use openraft::{ChangeMembers, async_runtime::watch::WatchReceiver};
use tokio::time::{Instant, sleep, timeout_at};

use crate::{
    disk::Identity,
    node::{Node, Place, left},
    transport::{NoAnswer, Peer},
    types::Address,
    wire::{Change, Failed, Member, Report, Request, Response},
};

/// How long to wait before a change that was not made is tried again.
const SOON: std::time::Duration = std::time::Duration::from_millis(50);

impl Node {
    /// Makes a cluster of these members, this one among them; the others must be new ones.
    pub(crate) async fn init(
        &self,
        cluster: u128,
        members: BTreeMap<u64, Address>,
    ) -> Result<(), Failed> {
        if self.engine.is_initialized().await.map_err(stopped)? || self.card.cluster().is_some() {
            return Err(Failed::Invalid(format!(
                "member {} belongs to a cluster already: nothing was changed; for a new cluster give it a new folder",
                self.card.node
            )));
        }
        self.become_member_of(cluster)
            .await
            .map_err(Failed::Unknown)?;
        let begun = self.engine.initialize(members).await;
        begun.map_err(|error| Failed::Invalid(error.to_string()))
    }

    /// Keeps which cluster this member belongs to, for good.
    pub(crate) async fn become_member_of(&self, cluster: u128) -> Result<(), String> {
        let identity = Identity {
            node: self.card.node,
            cluster: Some(cluster),
        };
        self.log
            .set_identity(identity)
            .await
            .map_err(|error| error.to_string())?;
        self.card.set_cluster(cluster);
        Ok(())
    }

    /// Has the change made by whoever leads; every change may be asked for again.
    pub(crate) async fn change(
        &self,
        change: Change,
        until: Instant,
        forwarded: bool,
    ) -> Option<Result<(), Failed>> {
        loop {
            let why = match self.place() {
                Place::Here { .. } => match timeout_at(until, self.change_here(&change)).await {
                    Ok(Err(Failed::Unavailable(why))) => why,
                    Ok(result) => return Some(result),
                    Err(_) => return Some(Err(Failed::Unknown("it was not done in time".into()))),
                },
                _ if forwarded => return None,
                Place::There(leader) => match self.ask(&leader, &change, until).await {
                    Ok(result) => return Some(result),
                    Err(why) => why,
                },
                Place::Nowhere => "no member leads".into(),
            };
            if left(until) <= SOON {
                return Some(Err(Failed::Unavailable(why)));
            }
            sleep(SOON).await;
        }
    }

    /// Asks another member to have the change made.
    pub(crate) async fn ask(
        &self,
        peer: &Peer,
        change: &Change,
        until: Instant,
    ) -> Result<Result<(), Failed>, String> {
        let patience = left(until);
        let request = Request::Change {
            change: change.clone(),
            patience_ms: u64::try_from(patience.as_millis()).unwrap_or(u64::MAX),
        };
        match self.transport.call(peer, &request, patience).await {
            Ok(Response::Changed(result)) => Ok(result),
            Ok(_) => Err("the leader has changed".into()),
            Err(NoAnswer::NotSent(why) | NoAnswer::Lost(why)) => Err(why),
        }
    }

    async fn change_here(&self, change: &Change) -> Result<(), Failed> {
        match change {
            Change::Join { node, address } => self.join_here(*node, address).await,
            Change::Remove { node } => self.remove_here(*node).await,
            Change::Transfer { to } => self.transfer_here(*to).await,
        }
    }

    /// It learns first, and votes when it has caught up.
    async fn join_here(&self, node: u64, address: &str) -> Result<(), Failed> {
        let (known, gone) = {
            let state = self.machine.state();
            let membership = state.membership.membership();
            let known = membership.get_node(&node).cloned();
            let gone = known.is_none() && state.ever.contains(&node);
            (known, gone)
        };
        if gone {
            return Err(Failed::Invalid(format!(
                "member {node} has left this cluster, and no id comes back: delete its folder, so that it gets a new one"
            )));
        }
        if let Some(known) = known
            && known.0 != address
        {
            return Err(Failed::Invalid(format!(
                "member {node} is known at {}, not at {address}: remove it, and let a new member join",
                known.0
            )));
        }
        let learner = self
            .engine
            .add_learner(node, Address(address.to_owned()), true);
        learner.await.map_err(not_made)?;
        let voters = ChangeMembers::AddVoterIds(BTreeSet::from([node]));
        self.engine
            .change_membership(voters, false)
            .await
            .map_err(not_made)?;
        Ok(())
    }

    async fn remove_here(&self, node: u64) -> Result<(), Failed> {
        let (voters, known) = {
            let state = self.machine.state();
            let membership = state.membership.membership();
            let voters: BTreeSet<u64> = membership.voter_ids().collect();
            (voters, membership.get_node(&node).is_some())
        };
        if !known {
            return Ok(());
        }
        if voters == BTreeSet::from([node]) {
            return Err(Failed::Invalid(format!(
                "member {node} is the last one that votes: stop it instead"
            )));
        }
        let nodes = BTreeSet::from([node]);
        let change = match voters.contains(&node) {
            true => ChangeMembers::RemoveVoters(nodes),
            false => ChangeMembers::RemoveNodes(nodes),
        };
        self.engine
            .change_membership(change, false)
            .await
            .map_err(not_made)?;
        Ok(())
    }

    async fn transfer_here(&self, to: u64) -> Result<(), Failed> {
        if !self
            .machine
            .state()
            .membership
            .voter_ids()
            .any(|voter| voter == to)
        {
            return Err(Failed::Invalid(format!(
                "member {to} does not vote, so it cannot lead"
            )));
        }
        self.engine
            .trigger()
            .transfer_leader(to)
            .await
            .map_err(stopped)?;
        let leads = |leader: Option<u64>| leader == Some(to);
        let mut metrics = self.engine.server_metrics();
        while !leads(metrics.borrow_watched().current_leader) {
            metrics
                .changed()
                .await
                .map_err(|_| Failed::Unavailable("this member has stopped".into()))?;
        }
        Ok(())
    }

    /// How the cluster looks from here.
    pub(crate) fn report(&self) -> Report {
        let failed = self.failure();
        let metrics = self.engine.metrics();
        let metrics = metrics.borrow_watched();
        let membership = metrics.membership_config.membership();
        let voters: BTreeSet<u64> = membership.voter_ids().collect();
        let matched = |node: &u64| {
            let replication = metrics.replication.as_ref()?;
            replication.get(node)?.as_ref().map(|id| id.index)
        };
        let members = membership.nodes().map(|(node, address)| Member {
            node: *node,
            address: address.0.clone(),
            voter: voters.contains(node),
            matched: matched(node),
        });
        let (log, commits) = self.log.size();
        Report {
            node: self.card.node,
            cluster: self.card.cluster().map(|cluster| format!("{cluster:032x}")),
            leads: metrics.current_leader,
            term: metrics.current_term,
            members: members.collect(),
            last: metrics.last_log_index,
            applied: metrics.last_applied.map(|id| id.index),
            snapshot: metrics.snapshot.map(|id| id.index),
            log,
            commits,
            rows: self.machine.state().table.len() as u64,
            failed,
        }
    }
}

fn not_made(error: impl std::fmt::Display) -> Failed {
    Failed::Unavailable(error.to_string())
}

fn stopped(error: impl std::fmt::Display) -> Failed {
    Failed::Unavailable(format!("this member has stopped: {error}"))
}
