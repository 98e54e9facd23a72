//! A gate that a test shuts in front of a thread.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// What a [`Fault::BlockThread`](super::Fault::BlockThread) waits at. Clones are one gate. It opens once, also when all but the waiting clone are
/// gone.
#[derive(Clone, Debug)]
pub struct Gate {
    opener: Arc<Opener>,
    opened: Arc<(Mutex<bool>, Condvar)>,
}

#[derive(Debug)]
struct Opener(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    /// A gate that is shut.
    pub fn shut() -> Self {
        let opened = Arc::<(Mutex<bool>, Condvar)>::default();
        Self {
            opener: Arc::new(Opener(opened.clone())),
            opened,
        }
    }

    /// Lets everybody pass, now and later.
    pub fn open(&self) {
        self.opener.open();
    }

    pub(super) fn wait(self) {
        let Self { opener, opened } = self;
        drop(opener);
        let (open, changed) = &*opened;
        let shut = open.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = changed.wait_while(shut, |open| !*open);
        drop(passed);
    }
}

impl Opener {
    fn open(&self) {
        let (open, changed) = &*self.0;
        *open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
    }
}

impl Drop for Opener {
    /// A test that fails leaves no thread behind.
    fn drop(&mut self) {
        self.open();
    }
}
