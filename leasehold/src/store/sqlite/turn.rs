//! Whose turn it is to write: a file lock that the kernel hands to waiters and takes from the dead (SQ1).
//!
//! SQLite's own waiting sleeps and asks again, and under load leaves one of four processes waiting for ever. The kernel's
//! lock has no time limit, so a helper thread waits for it, and only when somebody else has it.

use std::{
    fs::File,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

/// The lock on one side file, for one thread.
#[derive(Debug)]
pub(super) struct Turn {
    file: Arc<File>,
    shared: Arc<Shared>,
    helped: bool,
}

#[derive(Debug, Default)]
struct Shared {
    wish: Mutex<Wish>,
    changed: Condvar,
}

#[derive(Debug, Default)]
enum Wish {
    /// Nobody waits; whoever has the lock took it without help.
    #[default]
    None,
    /// The helper is to get the lock.
    Wanted,
    /// The helper may still be waiting, and is to give the lock back as soon as it has it.
    Unwanted,
    /// The helper got the lock for us.
    Here,
    Failed(Errno),
    /// The helper is to end.
    Over,
}

impl Turn {
    pub(super) fn new(file: File) -> Self {
        Self {
            file: Arc::new(file),
            shared: Arc::default(),
            helped: false,
        }
    }

    /// Takes the turn, waiting up to `patience` for it. `false`: somebody else still has it. Ask again, or [`Self::forgo`].
    pub(super) fn take(&mut self, patience: Duration) -> io::Result<bool> {
        if matches!(*self.wish(), Wish::None) {
            match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(true),
                Err(Errno::WOULDBLOCK) => self.ask_helper()?,
                Err(error) => return Err(error.into()),
            }
        }
        self.wait(patience)
    }

    /// Ends the turn that [`Self::take`] gave.
    pub(super) fn give(&self) -> io::Result<()> {
        Ok(flock(&self.file, FlockOperation::Unlock)?)
    }

    /// Does not want the turn any more that [`Self::take`] did not give.
    pub(super) fn forgo(&self) {
        let mut wish = self.wish();
        match *wish {
            Wish::Wanted => *wish = Wish::Unwanted,
            Wish::Here => {
                *wish = Wish::None;
                drop(wish);
                // If the lock cannot be given back, the kernel does it when the file is closed.
                let _ = self.give();
            }
            _ => {}
        }
    }

    fn wish(&self) -> MutexGuard<'_, Wish> {
        self.shared.lock()
    }

    fn ask_helper(&mut self) -> io::Result<()> {
        *self.wish() = Wish::Wanted;
        self.shared.changed.notify_all();
        if !self.helped {
            let (file, shared) = (self.file.clone(), self.shared.clone());
            let name = "leasehold-turn".to_owned();
            let helper = thread::Builder::new()
                .name(name)
                .spawn(move || shared.help(&file));
            if let Err(error) = helper {
                *self.wish() = Wish::None;
                return Err(error);
            }
            self.helped = true;
        }
        Ok(())
    }

    fn wait(&self, patience: Duration) -> io::Result<bool> {
        let mut wish = self.wish();
        if let Wish::Unwanted = *wish {
            *wish = Wish::Wanted;
        }
        let waiting = |wish: &mut Wish| matches!(wish, Wish::Wanted);
        let waited = self
            .shared
            .changed
            .wait_timeout_while(wish, patience, waiting);
        let (mut wish, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match *wish {
            Wish::Here => {
                *wish = Wish::None;
                Ok(true)
            }
            Wish::Failed(error) => {
                *wish = Wish::None;
                Err(error.into())
            }
            _ => Ok(false),
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *self.wish() = Wish::Over;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Wish> {
        self.wish.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn help(&self, file: &File) {
        let mut wish = self.lock();
        loop {
            match *wish {
                Wish::Over => return,
                Wish::Wanted | Wish::Unwanted => {
                    drop(wish);
                    let got = loop {
                        match flock(file, FlockOperation::LockExclusive) {
                            Err(Errno::INTR) => {}
                            got => break got,
                        }
                    };
                    wish = self.lock();
                    match (&*wish, got) {
                        (Wish::Wanted, Ok(())) => *wish = Wish::Here,
                        (Wish::Wanted, Err(error)) => *wish = Wish::Failed(error),
                        (_, got) => {
                            if got.is_ok() {
                                // As in `forgo`.
                                let _ = flock(file, FlockOperation::Unlock);
                            }
                            if !matches!(*wish, Wish::Over) {
                                *wish = Wish::None;
                            }
                        }
                    }
                    self.changed.notify_all();
                }
                _ => {
                    wish = self
                        .changed
                        .wait(wish)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> (tempfile::NamedTempFile, Turn, Turn) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let turn = || Turn::new(file.reopen().unwrap());
        let (a, b) = (turn(), turn());
        (file, a, b)
    }

    #[test]
    fn one_has_the_turn_and_the_other_gets_it_next() {
        let (_file, mut a, mut b) = two();
        let long = Duration::from_secs(20);
        for _ in 0..100 {
            assert!(a.take(Duration::ZERO).unwrap());
            assert!(!b.take(Duration::from_millis(1)).unwrap());
            let waiter = thread::spawn(move || {
                assert!(b.take(long).unwrap());
                b
            });
            a.give().unwrap();
            b = waiter.join().unwrap();
            assert!(!a.take(Duration::ZERO).unwrap());
            b.give().unwrap();
            assert!(a.take(long).unwrap());
            a.give().unwrap();
        }
    }

    #[test]
    fn a_turn_that_nobody_wants_any_more_is_given_back() {
        let (_file, mut a, mut b) = two();
        assert!(a.take(Duration::ZERO).unwrap());
        assert!(!b.take(Duration::from_millis(1)).unwrap());
        b.forgo();
        a.give().unwrap();
        assert!(a.take(Duration::from_secs(20)).unwrap());
        assert!(!b.take(Duration::from_millis(1)).unwrap());
        a.give().unwrap();
        assert!(b.take(Duration::from_secs(20)).unwrap());
    }
}
