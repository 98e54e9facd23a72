//! The log as the engine sees it: readable at once, durable when the writing thread says so (R8).
//!
//! Recent entries are kept in memory, older ones are read from the disk; one that is not yet durable is always in memory.

use std::{
    collections::VecDeque,
    fmt::Debug,
    io,
    ops::{Bound, RangeBounds},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering, mpsc::Sender},
};

use leasehold_core::Op;
use openraft::{
    OptionalSend, RaftLogReader,
    storage::{IOFlushed, LogState, RaftLogStorage},
};
use tokio::sync::oneshot;

use crate::{
    codec::{Ballot, Id},
    disk::{Change, Found, Identity},
    types::{Act, Entry, LogId, Payload, Types, Vote},
    writer::{Ask, Done, Told},
};

/// About how many bytes of entries are kept in memory.
const CACHE: usize = 16 * 1024 * 1024;
/// About how many bytes of entries are sent in one message.
const MESSAGE: usize = 4 * 1024 * 1024;

/// One member's log. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    recent: Arc<Mutex<Recent>>,
    thread: Sender<Ask>,
    done: Arc<Done>,
}

#[derive(Debug)]
struct Recent {
    /// Without a gap, to the end of the log.
    entries: VecDeque<Entry>,
    bytes: usize,
    last: Option<LogId>,
    purged: Option<LogId>,
    vote: Option<Vote>,
}

impl Log {
    /// The log that was found on the disk.
    pub(crate) fn new(found: Found, thread: Sender<Ask>, done: Arc<Done>) -> Self {
        let purged = found.purged.map(LogId::from);
        let last = found.entries.last().map(|entry| entry.log_id).or(purged);
        let durable = last.map_or(0, |last| last.index + 1);
        done.durable.store(durable, Ordering::Release);
        let mut recent = Recent {
            bytes: found.entries.iter().map(weight).sum(),
            entries: found.entries.into(),
            last,
            purged,
            vote: found.vote.map(Vote::from),
        };
        recent.trim(durable);
        Self {
            recent: Arc::new(Mutex::new(recent)),
            thread,
            done,
        }
    }

    /// Keeps who this member is; durable when it returns.
    pub(crate) async fn set_identity(&self, identity: Identity) -> io::Result<()> {
        self.write(Change::Identity(identity)).await
    }

    /// How many entries there are, and how many commits there were.
    pub(crate) fn size(&self) -> (u64, u64) {
        let recent = self.recent();
        let next = |id: Option<LogId>| id.map_or(0, |id| id.index + 1);
        let entries = next(recent.last) - next(recent.purged);
        (entries, self.done.commits.load(Ordering::Relaxed))
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(crate) fn send_for_tests(&self, change: Change) {
        self.send(Ask::Write(change, Told::Nobody))
            .expect("the thread is there");
    }

    fn send(&self, ask: Ask) -> io::Result<()> {
        let gone = |_| io::Error::other("the thread that writes the log has ended");
        self.thread.send(ask).map_err(gone)
    }

    async fn write(&self, change: Change) -> io::Result<()> {
        let (reply, answer) = oneshot::channel();
        self.send(Ask::Write(change, Told::Caller(reply)))?;
        answer.await.map_err(io::Error::other)?
    }

    /// The entries from `from` on, without `until`, but no more than fit into `most` bytes and at least one.
    async fn read(&self, from: u64, until: u64, most: usize) -> io::Result<Vec<Entry>> {
        let (first, cached) = {
            let recent = self.recent();
            let first = recent.first();
            (first, recent.range(from.max(first), until, most))
        };
        if from >= first {
            return Ok(cached);
        }
        let (reply, answer) = oneshot::channel();
        self.send(Ask::Read(from, until.min(first), reply))?;
        let mut entries = answer.await.map_err(io::Error::other)??;
        let mut bytes = 0;
        let fits = entries.iter().take_while(|entry| {
            let before = bytes;
            bytes += weight(entry);
            before == 0 || bytes <= most
        });
        let fits = fits.count();
        if fits < entries.len() {
            entries.truncate(fits);
        } else {
            entries.extend(cached);
        }
        Ok(entries)
    }
}

impl Recent {
    /// The index of the first entry in memory; behind the end if there is none.
    fn first(&self) -> u64 {
        match self.entries.front() {
            Some(entry) => entry.log_id.index,
            None => self.last.map_or(0, |last| last.index + 1),
        }
    }

    fn range(&self, from: u64, until: u64, most: usize) -> Vec<Entry> {
        let skip = usize::try_from(from - self.first()).unwrap_or(usize::MAX);
        let mut bytes = 0;
        self.entries
            .iter()
            .skip(skip)
            .take_while(|entry| {
                let before = bytes;
                bytes += weight(entry);
                entry.log_id.index < until && (before == 0 || bytes <= most)
            })
            .cloned()
            .collect()
    }

    /// Lets go of the oldest entries that are durable.
    fn trim(&mut self, durable: u64) {
        while self.bytes > CACHE
            && let Some(entry) = self.entries.front()
            && entry.log_id.index < durable
        {
            self.bytes -= weight(entry);
            self.entries.pop_front();
        }
    }
}

/// About how many bytes an entry takes.
fn weight(entry: &Entry) -> usize {
    let act = |act: &Act| match act {
        Act::Op(Op::Put { value, .. }) => 400 + value.as_bytes().len(),
        Act::Op(Op::Complete(complete)) => 400 + complete.response.as_bytes().len(),
        _ => 400,
    };
    match &entry.payload {
        Payload::Normal(batch) => 100 + batch.0.acts.iter().map(act).sum::<usize>(),
        _ => 400,
    }
}

fn bounds(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let from = match range.start_bound() {
        Bound::Included(from) => *from,
        Bound::Excluded(before) => before + 1,
        Bound::Unbounded => 0,
    };
    let until = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(until) => *until,
        Bound::Unbounded => u64::MAX,
    };
    (from, until)
}

impl RaftLogReader<Types> for Log {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> io::Result<Vec<Entry>> {
        let (from, until) = bounds(&range);
        self.read(from, until, usize::MAX).await
    }

    async fn limited_get_log_entries(&mut self, from: u64, until: u64) -> io::Result<Vec<Entry>> {
        self.read(from, until, MESSAGE).await
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.recent().vote)
    }
}

impl RaftLogStorage<Types> for Log {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> io::Result<LogState<Types>> {
        let recent = self.recent();
        Ok(LogState {
            last_purged_log_id: recent.purged,
            last_log_id: recent.last,
        })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        self.write(Change::Vote(Ballot::from(vote))).await?;
        self.recent().vote = Some(*vote);
        Ok(())
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        let mut recent = self.recent();
        for entry in &entries {
            recent.last = Some(entry.log_id);
            recent.bytes += weight(entry);
            recent.entries.push_back(entry.clone());
        }
        recent.trim(self.done.durable.load(Ordering::Acquire));
        // Still under the lock, so that the thread gets entries in the order in which they are readable.
        self.send(Ask::Write(Change::Append(entries), Told::Engine(callback)))
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        let from = last.map_or(0, |last| last.index + 1);
        {
            let mut recent = self.recent();
            while recent
                .entries
                .back()
                .is_some_and(|entry| entry.log_id.index >= from)
            {
                if let Some(entry) = recent.entries.pop_back() {
                    recent.bytes -= weight(&entry);
                }
            }
            recent.last = last;
        }
        self.write(Change::Truncate(from)).await
    }

    async fn purge(&mut self, upto: LogId) -> io::Result<()> {
        {
            let mut recent = self.recent();
            while recent
                .entries
                .front()
                .is_some_and(|entry| entry.log_id.index <= upto.index)
            {
                if let Some(entry) = recent.entries.pop_front() {
                    recent.bytes -= weight(&entry);
                }
            }
            recent.purged = Some(upto);
            recent.last = recent.last.max(Some(upto));
        }
        // A purge that a crash forgets leaves entries that nobody needs.
        self.send(Ask::Write(Change::Purge(Id::from(&upto)), Told::Nobody))
    }
}

#[cfg(test)]
mod tests;
