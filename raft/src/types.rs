//! The words of the consensus engine, bound to ours. Nothing of the engine's own types is ever stored or sent: `codec.rs`
//! has a form of its own for each (CRATES 5).

use std::{fmt, sync::Arc};

use leasehold_core::{Op, Outcome, Stamp};
use openraft::{
    OptionalSend, RaftTypeConfig,
    impls::{self, BoxedErrorSource, InlineBatch, OneshotResponder, leader_id_std},
    vote::RaftLeaderId,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[cfg(not(test))]
type Runtime = openraft_rt_tokio::TokioRuntime;
/// The same, but for chance.
#[cfg(test)]
type Runtime = crate::sim::Runtime;

/// Which types the engine works with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Types;

impl RaftTypeConfig for Types {
    type D = Batch;
    type R = Vec<Came>;
    type NodeId = u64;
    type Node = Address;
    type Term = u64;
    type LeaderId = LeaderId;
    type Vote = impls::Vote<Self::LeaderId>;
    type Payload = Payload;
    type Entry = openraft::Entry<Committed, Payload>;
    type AsyncRuntime = Runtime;
    type Responder<T>
        = OneshotResponder<Self, T>
    where
        T: OptionalSend + 'static;
    type Batch<T>
        = InlineBatch<T>
    where
        T: OptionalSend + 'static;
    type ErrorSource = BoxedErrorSource;
}

pub(crate) type LogId = openraft::alias::LogIdOf<Types>;
pub(crate) type Vote = openraft::alias::VoteOf<Types>;
pub(crate) type Entry = openraft::alias::EntryOf<Types>;
pub(crate) type Payload = openraft::EntryPayload<Batch, u64, Address>;
pub(crate) type Membership = openraft::Membership<u64, Address>;
pub(crate) type StoredMembership = openraft::alias::StoredMembershipOf<Types>;
pub(crate) type SnapshotMeta = openraft::alias::SnapshotMetaOf<Types>;
pub(crate) type Committed = <LeaderId as RaftLeaderId>::Committed;
type LeaderId = leader_id_std::LeaderId<u64, u64>;

/// Where a member listens: `host:port`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Address(pub(crate) String);

/// What one entry of the log does: many acts at one time. Cheap to copy.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Batch(pub(crate) Arc<Stamped>);

/// The acts of an entry, with the time at which they happen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stamped {
    /// The version of the rules by which they are done; a member that does not know it must not apply it (R12).
    pub(crate) rules: u8,
    /// The term in which `stamp` was made. In an entry of another term it counts for nothing (A5).
    pub(crate) term: u64,
    /// Log time, by the boot clock of that term's leader (R2).
    pub(crate) stamp: Stamp,
    /// None of them: a tick, which only lets time pass.
    pub(crate) acts: Vec<Act>,
}

/// The newest rules that this program knows.
pub(crate) const RULES: u8 = 1;

/// One thing that an entry does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Act {
    /// Something that a store may be asked.
    Op(Op),
    /// Forgets what needs no memory any more.
    Collect,
}

/// What came of an act.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Came {
    /// Of [`Act::Op`].
    Outcome(Outcome),
    /// Of [`Act::Collect`]: how many rows went.
    Collected(u64),
}

impl Batch {
    pub(crate) fn new(term: u64, stamp: Stamp, acts: Vec<Act>) -> Self {
        let rules = RULES;
        Self(Arc::new(Stamped {
            rules,
            term,
            stamp,
            acts,
        }))
    }
}

impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} acts", self.0.acts.len())
    }
}

impl Serialize for Batch {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Batch {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Stamped::deserialize(from).map(|stamped| Self(Arc::new(stamped)))
    }
}

/// The engine's log id of an entry.
pub(crate) fn log_id(term: u64, index: u64) -> LogId {
    LogId::new(Committed::new(term), index)
}
