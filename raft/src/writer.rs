//! The thread that writes the log. All that waits goes into one commit, in the order in which it came (R8).
//!
//! The first commit that fails is the last one: what it left is not known, and a second try could seem to succeed (SQ5).

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
};

use openraft::storage::IOFlushed;
use tokio::sync::oneshot;

use crate::{
    disk::{Change, Disk},
    types::{Entry, Types},
};

/// The most changes in one commit.
const GROUP: usize = 4_096;

/// What is asked of the thread.
pub(crate) enum Ask {
    /// A change, and whom to tell when it is durable.
    Write(Change, Told),
    /// Entries that are no longer in memory: from the first index on, without the second.
    Read(u64, u64, oneshot::Sender<io::Result<Vec<Entry>>>),
    /// Closes the file; whatever comes later is not done.
    Stop,
}

/// Whom to tell.
pub(crate) enum Told {
    Engine(IOFlushed<Types>),
    Caller(oneshot::Sender<io::Result<()>>),
    Nobody,
}

/// What the thread has done.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// Commits, each with one fsync.
    pub(crate) commits: AtomicU64,
    /// Every entry before this index is durable.
    pub(crate) durable: AtomicU64,
}

/// The thread's own state.
pub(crate) struct Writer {
    disk: Disk,
    asks: Receiver<Ask>,
    done: Arc<Done>,
    failed: Option<String>,
}

impl Writer {
    /// Ends when all senders are gone; the file is closed by then.
    pub(crate) fn start(disk: Disk, done: Arc<Done>) -> io::Result<(Sender<Ask>, JoinHandle<()>)> {
        let (sender, asks) = channel();
        let writer = Self {
            disk,
            asks,
            done,
            failed: None,
        };
        let thread = thread::Builder::new()
            .name("leasehold-log".into())
            .spawn(move || writer.run())?;
        Ok((sender, thread))
    }

    fn run(mut self) {
        let mut stop = false;
        while !stop && let Ok(first) = self.asks.recv() {
            let (mut changes, mut told, mut reads) = (Vec::new(), Vec::new(), Vec::new());
            let mut next = Some(first);
            while let Some(ask) = next {
                match ask {
                    Ask::Write(change, who) => {
                        changes.push(change);
                        told.push(who);
                    }
                    Ask::Read(from, until, reply) => reads.push((from, until, reply)),
                    Ask::Stop => {
                        stop = true;
                        break;
                    }
                }
                next = (changes.len() < GROUP)
                    .then(|| self.asks.try_recv().ok())
                    .flatten();
            }
            if !changes.is_empty() {
                self.commit(&changes, told);
            }
            for (from, until, reply) in reads {
                let _ = reply.send(self.disk.entries(from, until));
            }
        }
    }

    fn commit(&mut self, changes: &[Change], told: Vec<Told>) {
        if self.failed.is_none() {
            match self.disk.write(changes) {
                Ok(()) => self.count(changes),
                Err(error) => {
                    tracing::error!(%error, "the log could not be written; this member stops");
                    self.failed = Some(error.to_string());
                }
            }
        }
        let result = || match &self.failed {
            None => Ok(()),
            Some(why) => Err(io::Error::other(why.clone())),
        };
        for who in told {
            match who {
                Told::Engine(callback) => callback.io_completed(result()),
                Told::Caller(reply) => drop(reply.send(result())),
                Told::Nobody => {}
            }
        }
    }

    fn count(&self, changes: &[Change]) {
        self.done.commits.fetch_add(1, Ordering::Relaxed);
        for change in changes {
            match change {
                Change::Append(entries) => {
                    if let Some(last) = entries.last() {
                        let durable = last.log_id.index + 1;
                        self.done.durable.store(durable, Ordering::Release);
                    }
                }
                Change::Truncate(from) => {
                    self.done.durable.fetch_min(*from, Ordering::AcqRel);
                }
                Change::Vote(_) | Change::Purge(_) | Change::Identity(_) => {}
            }
        }
    }
}
