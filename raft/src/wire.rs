//! What members say to each other: one request, one response, in a form of our own.

use leasehold::StoreError;
use leasehold_core::{Entry as Line, Event, Fence, Key, LeaseName, Pair, Resource, Status, Work};
use serde::{Deserialize, Serialize};

use crate::{
    codec::{Ballot, Extent, Id, Item},
    snapshot::Image,
    types::{Act, Came},
};

/// The version of this file, told in the greeting.
pub(crate) const VERSION: u16 = 1;

/// What a member asks of another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Take these entries; I lead.
    Append {
        vote: Ballot,
        prev: Option<Id>,
        entries: Vec<Item>,
        committed: Option<Id>,
    },
    /// Vote for me; with `pre`, only say whether you would.
    Vote {
        pre: bool,
        vote: Ballot,
        last: Option<Id>,
        transfer: bool,
    },
    /// Take this state; you are too far behind for entries.
    Snapshot {
        vote: Ballot,
        extent: Extent,
        image: Image,
    },
    /// Lead in my place.
    Transfer {
        from: Ballot,
        to: u64,
        last: Option<Id>,
    },
    /// Put these acts into the log; you lead.
    Apply { acts: Vec<Act>, patience_ms: u64 },
    /// Answer this from a state that is not stale; you lead.
    Read {
        question: Question,
        patience_ms: u64,
    },
    /// Change who is a member; you lead.
    Change { change: Change, patience_ms: u64 },
    /// Tell me how the cluster looks from where you are.
    Report,
}

/// What is answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Response {
    Appended(Appended),
    Voted {
        vote: Ballot,
        granted: bool,
        last: Option<Id>,
    },
    Installed {
        vote: Ballot,
    },
    /// Why not, if not.
    Transferred(Option<String>),
    Applied(Vec<Result<Came, Failed>>),
    Read(Box<Result<Reading, Failed>>),
    Changed(Result<(), Failed>),
    Report(Box<Report>),
    /// Certainly nothing was done: that member does not lead.
    NotLeading,
    /// This member cannot go on, or not with that.
    Failed(String),
}

/// Of [`Request::Append`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Appended {
    Success,
    Partial(Option<Id>),
    Conflict,
    HigherVote(Ballot),
}

/// What may be read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Question {
    Status(LeaseName),
    List {
        prefix: String,
        limit: usize,
    },
    Pair(Key),
    Fence(Resource),
    Entry(Work),
    History {
        name: Option<LeaseName>,
        after: u64,
        limit: usize,
    },
}

/// What was read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Reading {
    Status(Option<Status>),
    List(Vec<Status>),
    Pair(Option<Pair>),
    Fence(Option<Fence>),
    Entry(Option<Line>),
    /// Each with its number.
    History(Vec<(u64, Event)>),
}

/// A change of who is a member.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Change {
    /// First as a learner, then with a vote.
    Join { node: u64, address: String },
    /// Dead or alive; its id never comes back.
    Remove { node: u64 },
    /// Another one shall lead.
    Transfer { to: u64 },
}

/// How the cluster looks from one member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Who says so.
    pub node: u64,
    /// Which cluster it belongs to; `None` before it was made a member of one.
    pub cluster: Option<String>,
    /// Who leads, as far as it knows.
    pub leads: Option<u64>,
    /// The term.
    pub term: u64,
    /// All members, by id.
    pub members: Vec<Member>,
    /// The last entry that it has.
    pub last: Option<u64>,
    /// The last entry that is in its table.
    pub applied: Option<u64>,
    /// The last entry that is in its snapshot.
    pub snapshot: Option<u64>,
    /// How many entries its log has.
    pub log: u64,
    /// How many commits its log did since it started, each with one fsync.
    pub commits: u64,
    /// How many leases, pairs, fences and ledger lines its table has.
    pub rows: u64,
    /// Why it cannot go on, if it cannot.
    pub failed: Option<String>,
}

/// A member, as the leader's log knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its id.
    pub node: u64,
    /// Where it listens.
    pub address: String,
    /// Whether it votes; one that joins learns first.
    pub voter: bool,
    /// The last entry that it is known to have; only the leader knows.
    pub matched: Option<u64>,
}

/// A [`StoreError`] that travels.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Failed {
    Unavailable(String),
    Unknown(String),
    Invalid(String),
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable { what } => Failed::Unavailable(what),
            StoreError::Unknown { what } => Failed::Unknown(what),
            StoreError::BlockedBy { who } => Failed::Unavailable(format!("blocked by {who}")),
            StoreError::Invalid { what } => Failed::Invalid(what),
        }
    }
}

impl From<Failed> for StoreError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Unavailable(what) => StoreError::Unavailable { what },
            Failed::Unknown(what) => StoreError::Unknown { what },
            Failed::Invalid(what) => StoreError::Invalid { what },
        }
    }
}
