//! The engine's words in a form of our own, for the disk and the wire: an upgrade of the engine changes none of it.
//!
//! An entry on the disk is a version byte, a checksum, and the entry. What does not decode to the last byte is refused.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use openraft::{entry::RaftEntry, vote::RaftLeaderId};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::types::{
    Address, Batch, Entry, LogId, Membership, Payload, SnapshotMeta, StoredMembership, Vote, log_id,
};

/// The version of what is written to the disk, and the only one that is read.
pub(crate) const DISK: u8 = 1;

/// A log id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Id {
    pub(crate) term: u64,
    pub(crate) index: u64,
}

impl From<&LogId> for Id {
    fn from(id: &LogId) -> Self {
        Self {
            term: **id.committed_leader_id(),
            index: id.index(),
        }
    }
}

impl From<Id> for LogId {
    fn from(id: Id) -> Self {
        log_id(id.term, id.index)
    }
}

/// A vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ballot {
    pub(crate) term: u64,
    pub(crate) node: u64,
    pub(crate) committed: bool,
}

impl From<&Vote> for Ballot {
    fn from(vote: &Vote) -> Self {
        Self {
            term: vote.leader_id().term(),
            node: *vote.leader_id().node_id(),
            committed: vote.is_committed(),
        }
    }
}

impl From<Ballot> for Vote {
    fn from(ballot: Ballot) -> Self {
        let Ballot { term, node, .. } = ballot;
        match ballot.committed {
            true => Vote::new_committed(term, node),
            false => Vote::new(term, node),
        }
    }
}

/// Who is a member, who of them votes (two sets while that changes), and where each listens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Members {
    pub(crate) voters: Vec<BTreeSet<u64>>,
    pub(crate) nodes: BTreeMap<u64, Address>,
}

impl From<&Membership> for Members {
    fn from(membership: &Membership) -> Self {
        Self {
            voters: membership.get_joint_config().clone(),
            nodes: (membership.nodes())
                .map(|(id, address)| (*id, address.clone()))
                .collect(),
        }
    }
}

impl TryFrom<Members> for Membership {
    type Error = Malformed;

    fn try_from(members: Members) -> Result<Self, Malformed> {
        Membership::new(members.voters, members.nodes).map_err(|_| Malformed::Bytes)
    }
}

/// What an entry carries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Content {
    Blank,
    Batch(Batch),
    Members(Members),
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Item {
    pub(crate) id: Id,
    pub(crate) content: Content,
}

impl From<&Entry> for Item {
    fn from(entry: &Entry) -> Self {
        let content = match &entry.payload {
            Payload::Blank => Content::Blank,
            Payload::Normal(batch) => Content::Batch(batch.clone()),
            Payload::Membership(membership) => Content::Members(membership.into()),
        };
        let id = Id::from(&entry.log_id);
        Self { id, content }
    }
}

impl Item {
    /// The engine's entry.
    pub(crate) fn entry(self) -> Result<Entry, Malformed> {
        let payload = match self.content {
            Content::Blank => Payload::Blank,
            Content::Batch(batch) => Payload::Normal(batch),
            Content::Members(members) => Payload::Membership(members.try_into()?),
        };
        Ok(Entry::new(self.id.into(), payload))
    }
}

/// What a snapshot is of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Extent {
    pub(crate) last: Option<Id>,
    pub(crate) members_at: Option<Id>,
    pub(crate) members: Members,
}

impl From<&SnapshotMeta> for Extent {
    fn from(meta: &SnapshotMeta) -> Self {
        Self {
            last: meta.last_log_id.as_ref().map(Id::from),
            members_at: meta.last_membership.log_id().as_ref().map(Id::from),
            members: meta.last_membership.membership().into(),
        }
    }
}

impl TryFrom<Extent> for SnapshotMeta {
    type Error = Malformed;

    fn try_from(extent: Extent) -> Result<Self, Malformed> {
        let members_at = extent.members_at.map(LogId::from);
        Ok(SnapshotMeta {
            last_log_id: extent.last.map(LogId::from),
            last_membership: StoredMembership::new(members_at, extent.members.try_into()?),
        })
    }
}

/// Why bytes were not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// Another version of the format; a newer program wrote it, most likely.
    Version(u8),
    /// Cut short, changed, or something else.
    Bytes,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::Version(version) => write!(
                f,
                "it has format {version}, this program reads format {DISK}: use the program that wrote it, or a newer one"
            ),
            Malformed::Bytes => f.write_str("it is damaged"),
        }
    }
}

impl std::error::Error for Malformed {}

/// The value of exactly these bytes.
pub(crate) fn unpack<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Malformed> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        _ => Err(Malformed::Bytes),
    }
}

/// The same behind a version byte and a checksum.
pub(crate) fn seal<T: Serialize>(value: &T) -> Vec<u8> {
    let mut sealed = vec![DISK, 0, 0, 0, 0];
    sealed = postcard::to_extend(value, sealed)
        .expect("memory takes every byte, and no value has a length that is not known");
    let sum = crc32fast::hash(&sealed[5..]);
    sealed[1..5].copy_from_slice(&sum.to_le_bytes());
    sealed
}

/// What was sealed, if not a bit of it has changed.
pub(crate) fn unseal<T: DeserializeOwned>(sealed: &[u8]) -> Result<T, Malformed> {
    match sealed {
        [DISK, a, b, c, d, rest @ ..] => {
            if crc32fast::hash(rest) != u32::from_le_bytes([*a, *b, *c, *d]) {
                return Err(Malformed::Bytes);
            }
            unpack(rest)
        }
        [version, _, _, _, _, ..] => Err(Malformed::Version(*version)),
        _ => Err(Malformed::Bytes),
    }
}
