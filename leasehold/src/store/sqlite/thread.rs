//! The thread that writes. All that waits goes into one transaction, and each gets an answer of its own (group commit).
//!
//! Nothing waits without limit: who has waited longer than its patience is told what is in the way (A8).

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::Duration,
};

use leasehold_core::BootTime;

use super::{
    clock::HostClock,
    commit::{Failure, Item, Open, Reply, Writing},
    job::{Job, fail_all},
    open::{self, Opened},
    place::Place,
    process::Process,
    schema,
    side::Side,
    wake::Wake,
};
use crate::{
    clock::{BootClock, Clock},
    store::StoreError,
};

/// The most operations in one transaction; more wait for the next one.
pub(super) const GROUP: usize = 1_000;
/// How often a blocked thread looks whether somebody's patience is over. It looks only while it is blocked.
const LOOK: Duration = Duration::from_millis(200);
/// How long the side file may be newer than its copy on the disk.
const SYNC_AFTER: Duration = Duration::from_secs(1);

/// The thread's own state.
pub(super) struct Writer {
    pub(super) place: Place,
    pub(super) host: HostClock,
    pub(super) queue: Receiver<Job>,
    pub(super) wake: Arc<Wake>,
    /// Grows when connections are not to be trusted any more; readers then open new ones (SQ5).
    pub(super) distrust: Arc<AtomicU64>,
    /// Measures patience in real time, whatever the store's clock is.
    pub(super) real: Arc<BootClock>,
    pub(super) this: Process,
    pub(super) opened: Option<Opened>,
    /// Since when the side file is newer than its copy on the disk.
    pub(super) unsynced: Option<BootTime>,
}

impl Writer {
    /// Serves until the store is dropped.
    pub(super) fn run(mut self) {
        let mut waiting = Vec::new();
        while self.gather(&mut waiting) {
            waiting = self.serve(waiting);
            if self
                .unsynced
                .is_some_and(|since| self.real.now() >= since.plus(SYNC_AFTER))
            {
                self.sync_side();
            }
        }
        self.sync_side();
    }

    /// Waits for a job, then takes all that are there. `false`: there will be no more.
    fn gather(&mut self, waiting: &mut Vec<Job>) -> bool {
        while waiting.is_empty() {
            let job = match self.unsynced {
                Some(_) => self.queue.recv_timeout(SYNC_AFTER),
                None => self.queue.recv().map_err(RecvTimeoutError::from),
            };
            match job {
                Ok(job) => waiting.push(job),
                Err(RecvTimeoutError::Timeout) => self.sync_side(),
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
        let mut asks: usize = waiting.iter().map(|job| job.asks.len()).sum();
        while asks < GROUP
            && let Ok(job) = self.queue.try_recv()
        {
            asks += job.asks.len();
            waiting.push(job);
        }
        true
    }

    /// Answers all of `waiting`, or returns those that may wait longer for what is in the way.
    fn serve(&mut self, mut waiting: Vec<Job>) -> Vec<Job> {
        let mut opened = match self.take_opened() {
            Ok(opened) => opened,
            Err(error) => return fail_all(waiting, &error),
        };
        match opened.turn.take(LOOK) {
            Ok(true) => {}
            Ok(false) => {
                let error = blocked(&opened);
                let left = self.fail_impatient(waiting, &error);
                if left.is_empty() {
                    opened.turn.forgo();
                }
                self.opened = Some(opened);
                return left;
            }
            Err(error) => return fail_all(waiting, &schema::unavailable(&self.place, error)),
        }
        // Nobody would learn of what these get.
        waiting.retain(|job| !job.reply.is_closed());
        let written = self.write(&opened.open, &waiting);
        match opened.turn.give() {
            Ok(()) if !written.broken => self.opened = Some(opened),
            Ok(()) => {
                self.distrust.fetch_add(1, Ordering::Relaxed);
            }
            // Closing the side file, as happens now, gives it back.
            Err(error) => tracing::error!(%error, "the turn was not given back"),
        }
        if written.freed {
            self.wake.touch();
        }
        self.answer(waiting, written.result)
    }

    fn answer(&mut self, waiting: Vec<Job>, result: Result<Vec<Reply>, Failure>) -> Vec<Job> {
        match result {
            Ok(replies) => {
                let mut replies = replies.into_iter();
                for job in waiting {
                    let own = replies.by_ref().take(job.asks.len()).collect();
                    // A caller that has gone will ask again with the same ids.
                    let _ = job.reply.send(own);
                }
                Vec::new()
            }
            Err(Failure::Busy) => {
                let error = schema::unavailable(
                    &self.place,
                    "another program than leasehold keeps it locked; end its transaction",
                );
                self.fail_impatient(waiting, &error)
            }
            Err(failure) => fail_all(waiting, &failure.into_error()),
        }
    }

    /// One turn: the group at once, or, if that fails for a reason within it, one by one.
    fn write(&mut self, open: &Open, waiting: &[Job]) -> Written {
        let items: Vec<Item<'_>> = waiting
            .iter()
            .flat_map(|job| job.asks.iter().map(|ask| (ask, job.received)))
            .map(|(ask, received)| Item { ask, received })
            .collect();
        let side = match self.begin_turn(open) {
            Ok(side) => side,
            Err(error) => {
                let error = Failure::Broken(schema::unavailable(&self.place, error));
                return Written {
                    result: Err(error),
                    freed: false,
                    broken: true,
                };
            }
        };
        let (place, host) = (&self.place, &self.host);
        let mut writing = Writing {
            place,
            host,
            open,
            side,
            freed: false,
            told: false,
        };
        let (result, broken) = match writing.attempt(&items) {
            Err(Failure::Group(_)) if items.len() > 1 => one_by_one(&mut writing, &items),
            Err(failure) => {
                let broken = failure.breaks();
                (Err(failure), broken)
            }
            Ok(replies) => (Ok(replies), false),
        };
        let (now, freed, told) = (writing.side, writing.freed, writing.told);
        if now.map(|side| side.commits) != side.map(|side| side.commits) {
            self.unsynced.get_or_insert(self.real.now());
        }
        if let Some(mut side) = now.filter(|_| !told) {
            side.owner = None;
            if let Err(error) = open.side_file.write(&side) {
                tracing::error!(%error, "the side file could not be written");
            }
        }
        Written {
            result,
            freed,
            broken,
        }
    }

    /// Says in the side file who has the turn.
    fn begin_turn(&self, open: &Open) -> std::io::Result<Option<Side>> {
        let mut side = open.side_file.read()?;
        if let Some(side) = &mut side {
            side.owner = Some(self.this);
            side.turns += 1;
            open.side_file.write(side)?;
        }
        Ok(side)
    }

    /// What is open, opened anew if it was given up or the side file is another one now.
    fn take_opened(&mut self) -> Result<Opened, StoreError> {
        match self.opened.take() {
            Some(opened) if opened.open.side_file.is_at(&self.place.side()) => Ok(opened),
            Some(_) | None => {
                self.distrust.fetch_add(1, Ordering::Relaxed);
                open::again(&self.place)
            }
        }
    }

    fn fail_impatient(&self, waiting: Vec<Job>, error: &StoreError) -> Vec<Job> {
        let now = self.real.now();
        let (left, over) = waiting
            .into_iter()
            .filter(|job| !job.reply.is_closed())
            .partition(|job| now < job.until);
        let over: Vec<Job> = over;
        fail_all(over, error);
        left
    }

    fn sync_side(&mut self) {
        if let (Some(_), Some(opened)) = (self.unsynced.take(), &self.opened)
            && let Err(error) = opened.open.side_file.sync()
        {
            tracing::error!(%error, "the side file did not reach the disk");
        }
    }
}

/// What came of a turn.
struct Written {
    result: Result<Vec<Reply>, Failure>,
    /// Whether a lease became free.
    freed: bool,
    /// Whether the connections are not to be trusted any more.
    broken: bool,
}

/// Each in a transaction of its own, so that the one at fault takes no other down. Ends early if the fault is not its own.
fn one_by_one(
    writing: &mut Writing<'_>,
    items: &[Item<'_>],
) -> (Result<Vec<Reply>, Failure>, bool) {
    let mut replies: Vec<Reply> = Vec::with_capacity(items.len());
    for item in items {
        match writing.attempt(std::slice::from_ref(item)) {
            Ok(own) => replies.extend(own),
            Err(Failure::Group(error)) => replies.push(Err(error)),
            Err(failure) => {
                let broken = failure.breaks();
                let error = failure.into_error();
                let untried = StoreError::Unavailable {
                    what: error.to_string(),
                };
                replies.push(Err(error));
                replies.resize_with(items.len(), || Err(untried.clone()));
                return (Ok(replies), broken);
            }
        }
    }
    (Ok(replies), false)
}

/// Who has the turn, for those who wait for it (A8). It may have been stopped before it could say so: then the kernel knows.
fn blocked(opened: &Opened) -> StoreError {
    let who = match opened.open.side_file.owner() {
        Some(owner) => format!(
            "{owner}, has the turn to write; let it go on (kill -CONT {}), or end it with \
             \"leasehold admin evict\"",
            owner.pid
        ),
        None => "a process that has locked the side file and cannot be seen from here".into(),
    };
    StoreError::BlockedBy { who }
}
