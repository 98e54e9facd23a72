//! What the processes of the demo say to each other: one JSON object a line, no line without a limit.
//!
//! The driver speaks with every process over its standard input and output ([`Ask`], [`Reply`]); a node speaks with the
//! store over a socket ([`Query`], [`Found`]).

use std::io::{self, BufRead, Read, Write};

use leasehold::core::{Answer, Key, LeaseName, Op, Outcome, Pair, Status, Ttl};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The longest line, in bytes: far above any that is sent.
pub(crate) const MAX_LINE: u64 = 64 * 1024;

/// From the driver to one process. Each is answered by one [`Reply`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// To the store: let the clock jump ahead. Answered by `Done`.
    Advance {
        /// By how much.
        seconds: u64,
    },
    /// To a node: this is the store. `Done`.
    Use(Place),
    /// Ask the store for a lease. `Lease`.
    Acquire { lease: LeaseName, ttl: Ttl },
    /// Give the lease back. `Lease`.
    Release { lease: LeaseName },
    /// Check the lease, say so (`Checked`), stand there until [`Ask::GoOn`], then write the report everywhere.
    Report { lease: LeaseName, to: Vec<Target> },
    /// Go on after the check, without a second look. `Wrote`.
    GoOn,
    /// Read a pair. `Text`.
    Read { key: Key },
    /// Let the other node see this one. `Visible`.
    Show,
    /// The other node can be seen there. `Done`.
    Meet { port: u16 },
    /// From now on neither show anything to the other node nor look at it. `Done`.
    Cut,
    /// Who is there? `Sees`.
    Look,
}

/// Where the store of a node is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Place {
    /// The demo's own, on this port of this machine.
    Port(u16),
    /// A real one.
    Url(String),
}

/// A pair that a report goes to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Target {
    /// Which.
    pub(crate) key: Key,
    /// Whether the write shows the token.
    pub(crate) fenced: bool,
}

/// From a process to the driver.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The first line of the store: where it listens.
    Listening { port: u16 },
    /// Done, nothing to tell.
    Done,
    /// What the store said about a lease.
    Lease(Answer),
    /// What the store said when the node checked its lease; `mine`: it holds, and may go on.
    Checked { status: Option<Status>, mine: bool },
    /// What came of each write.
    Wrote(Vec<Outcome>),
    /// What a pair says.
    Text(Option<String>),
    /// Where this node can be seen.
    Visible { port: u16 },
    /// The names of the nodes that are there, this one's included, in order; and whether it runs the job.
    Sees { names: Vec<String>, runs: bool },
    /// It could not be done, and this is why.
    Failed(String),
}

/// From a node to the store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Query {
    /// Do this.
    Apply(Op),
    /// How is this lease?
    Status(LeaseName),
    /// What is there?
    Pair(Key),
}

/// From the store to a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Found {
    /// Of [`Query::Apply`].
    Outcome(Outcome),
    /// Of [`Query::Status`].
    Status(Option<Status>),
    /// Of [`Query::Pair`].
    Pair(Option<Pair>),
}

/// A message as a line, its end included.
pub(crate) fn line(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(message)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// The message in a line.
pub(crate) fn parse<T: DeserializeOwned>(line: &[u8]) -> io::Result<T> {
    serde_json::from_slice(line).map_err(|error| {
        let shown: String = String::from_utf8_lossy(line).chars().take(60).collect();
        let what = format!("not a line of the demo: {:?}: {error}", shown.trim_end());
        io::Error::new(io::ErrorKind::InvalidData, what)
    })
}

/// Writes one message.
pub(crate) fn send(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    to.write_all(&line(message)?)?;
    to.flush()
}

/// Reads one message; `None` when the other side is gone.
pub(crate) fn receive<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    from.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    complete(&line)?;
    parse(&line).map(Some)
}

/// A line without its end was cut off, by its sender's death or by its length.
pub(crate) fn complete(line: &[u8]) -> io::Result<()> {
    if line.ends_with(b"\n") {
        return Ok(());
    }
    let what = format!("a line of {} bytes has no end", line.len());
    Err(io::Error::new(io::ErrorKind::InvalidData, what))
}
