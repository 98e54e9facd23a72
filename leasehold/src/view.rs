//! One tenure as its worker sees it. The renewing thread writes it; the worker reads it against the clock, so that a
//! renewing thread that hangs or dies takes nothing with it (C7, C10, FB-20, FB-24).
//!
//! Whoever sees first that it is over writes that down, and it stays (INV-33).

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold_core::{BootTime, LeaseName, Loss, Proof, Term};
use tokio::{select, sync::watch};

use crate::{alarm::sleep_until, clock::Clock, error::NotHeld, pause::Pauses};

#[derive(Debug)]
pub(crate) struct View {
    pub(crate) proof: Proof,
    pub(crate) clock: Arc<dyn Clock>,
    pauses: Arc<Pauses>,
    /// The keeper was told to stop.
    stop: watch::Receiver<bool>,
    seen: watch::Sender<Seen>,
    /// When the work last said that it goes on, in nanoseconds of boot time.
    progressed: AtomicU64,
}

#[derive(Clone, Debug)]
struct Seen {
    term: Term,
    loss: Option<Loss>,
    kill_at: BootTime,
    /// The number of pauses that the store's last word covers (C13).
    trusted: u64,
}

impl View {
    pub(crate) fn new(
        name: LeaseName,
        term: Term,
        clock: Arc<dyn Clock>,
        pauses: (Arc<Pauses>, u64),
        stop: watch::Receiver<bool>,
    ) -> Self {
        let progressed = AtomicU64::new(clock.now().as_nanos());
        let (pauses, trusted) = pauses;
        let seen = Seen {
            term,
            loss: None,
            kill_at: term.kill_at(),
            trusted,
        };
        Self {
            proof: Proof {
                lease: name,
                token: term.token(),
            },
            clock,
            pauses,
            stop,
            seen: watch::Sender::new(seen),
            progressed,
        }
    }

    /// The store renewed it. False, and nothing changes, if the worker has seen its end already.
    pub(crate) fn renewed(&self, term: Term) -> bool {
        let mut lives = false;
        self.seen.send_if_modified(|seen| {
            lives = seen.loss.is_none();
            if lives {
                seen.term = term;
                seen.kill_at = term.kill_at();
            }
            lives
        });
        lives
    }

    /// The store said after the pause with this number that it is still held.
    pub(crate) fn confirmed(&self, trusted: u64) {
        self.seen.send_modify(|seen| seen.trusted = trusted);
    }

    /// It is over. The first reason stays, unless a later one is certain.
    pub(crate) fn lose(&self, loss: Loss, kill_at: BootTime) {
        self.seen.send_if_modified(|seen| {
            let worse = match &seen.loss {
                None => true,
                Some(known) => loss.is_certain() && !known.is_certain(),
            };
            if worse {
                seen.loss = Some(loss);
                seen.kill_at = seen.kill_at.min(kill_at);
            }
            worse
        });
    }

    /// Why the work was told to stop, if it was.
    pub(crate) fn told(&self) -> Option<Loss> {
        self.seen.borrow().loss.clone()
    }

    /// Why the work must stop, if it must. Looks at the clock, and not at what somebody should have done by now.
    pub(crate) fn loss(&self) -> Option<Loss> {
        let seen = self.seen.borrow().clone();
        let now = self.clock.now();
        let found = match seen.loss {
            Some(loss) => return Some(loss),
            None if now >= seen.term.stop_at() => Loss::NotRenewed(None),
            None if *self.stop.borrow() => Loss::Stopped,
            None => return None,
        };
        self.seen.send_if_modified(|seen| {
            // It may have been renewed since.
            let over = found == Loss::Stopped || now >= seen.term.stop_at();
            let first = over && seen.loss.is_none();
            if first {
                seen.loss = Some(found);
            }
            first
        });
        self.seen.borrow().loss.clone()
    }

    /// Whether something that takes up to `budget` may begin now (C7, C8).
    pub(crate) fn check_for(&self, budget: Duration) -> Result<(), NotHeld> {
        let Seen {
            term,
            loss,
            trusted,
            ..
        } = self.seen.borrow().clone();
        let proof = || self.proof.clone();
        if let Some(loss) = loss.clone().filter(Loss::is_certain) {
            return Err(NotHeld::Lost {
                proof: proof(),
                loss,
            });
        }
        if self.pauses.count() != trusted {
            return Err(NotHeld::Suspect { proof: proof() });
        }
        let now = self.clock.now();
        if term.check_for(now, budget) {
            return Ok(());
        }
        if term.check(now) {
            let left = term.remaining(now);
            return Err(NotHeld::TooShort {
                proof: proof(),
                budget,
                left,
            });
        }
        let loss = self.loss().or(loss).unwrap_or(Loss::NotRenewed(None));
        Err(NotHeld::Lost {
            proof: proof(),
            loss,
        })
    }

    /// Comes back when the work must stop.
    pub(crate) async fn lost(&self) -> Loss {
        let (mut changes, mut stop) = (self.seen.subscribe(), self.stop.clone());
        loop {
            if let Some(loss) = self.loss() {
                return loss;
            }
            let stop_at = changes.borrow_and_update().term.stop_at();
            select! {
                _ = changes.changed() => {}
                Ok(()) = stop.changed() => {}
                () = self.sleep(stop_at) => {}
            }
        }
    }

    /// Comes back when work that should have stopped must be ended.
    pub(crate) async fn killed(&self) {
        self.lost().await;
        let mut changes = self.seen.subscribe();
        loop {
            let kill_at = changes.borrow_and_update().kill_at;
            if self.clock.now() >= kill_at {
                return;
            }
            select! {
                _ = changes.changed() => {}
                () = self.sleep(kill_at) => {}
            }
        }
    }

    /// Comes back with the deadline when it is later than `known`. Never, if it is not renewed any more.
    pub(crate) async fn extended(&self, known: BootTime) -> BootTime {
        let mut changes = self.seen.subscribe();
        loop {
            let deadline = changes.borrow_and_update().term.deadline();
            if deadline > known {
                return deadline;
            }
            let _ = changes.changed().await;
        }
    }

    /// A clock that wakes nobody cannot be here: the keeper has slept by it before.
    async fn sleep(&self, until: BootTime) {
        match sleep_until(&self.clock, until) {
            Ok(sleep) => sleep.await,
            Err(_) => std::future::pending().await,
        }
    }

    pub(crate) fn term(&self) -> Term {
        self.seen.borrow().term
    }

    pub(crate) fn kill_at(&self) -> BootTime {
        self.seen.borrow().kill_at
    }

    pub(crate) fn progress(&self) {
        let now = self.clock.now().as_nanos();
        self.progressed.fetch_max(now, Ordering::Relaxed);
    }

    pub(crate) fn progressed(&self) -> BootTime {
        BootTime::from_nanos(self.progressed.load(Ordering::Relaxed))
    }
}
