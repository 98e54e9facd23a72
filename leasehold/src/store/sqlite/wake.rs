//! Tells waiters of every process that a lease became free, without asking again and again: the wake file is written,
//! and whoever waits has it watched by the kernel. Only a hint: who hears nothing asks again in its own time (W1).

use std::{
    fs::File,
    io,
    mem::MaybeUninit,
    os::{fd::OwnedFd, unix::fs::FileExt},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    fs::{
        AtFlags, StatxFlags,
        inotify::{self, CreateFlags, ReadFlags, WatchFlags},
        statx,
    },
    io::Errno,
};
use tokio::sync::watch;

use super::place::Place;

/// How long a wake file that was removed stays away.
const GONE_FOR: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// One store's end of the wake file.
#[derive(Debug)]
pub(super) struct Wake {
    place: Place,
    file: Mutex<Option<File>>,
    ticks: watch::Sender<u64>,
    /// Ends the watching thread; `None` if there is none, and waiters of this process hear only this process.
    stop: Option<OwnedFd>,
}

impl Wake {
    pub(super) fn new(place: Place) -> Arc<Self> {
        let ticks = watch::Sender::default();
        let stop = match watch(place.clone(), ticks.clone()) {
            Ok(stop) => Some(stop),
            Err(error) => {
                tracing::warn!(%error, "the wake file cannot be watched; waiters will ask in their own time");
                None
            }
        };
        Arc::new(Self {
            place,
            file: Mutex::default(),
            ticks,
            stop,
        })
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.ticks.subscribe()
    }

    /// Whether other processes can be heard.
    pub(super) fn watches(&self) -> bool {
        self.stop.is_some()
    }

    /// Wakes all who wait, here and elsewhere.
    pub(super) fn touch(&self) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = write(&self.place, &mut file) {
            *file = None;
            tracing::warn!(%error, "the wake file cannot be written; other processes will ask in their own time");
        }
        // The watching thread ticks as well, if the file could be written; a waiter hears both as one or asks twice.
        if file.is_none() || self.stop.is_none() {
            tick(&self.ticks);
        }
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        if let Some(stop) = &self.stop {
            // It cannot fail: the counter is far from full.
            let _ = rustix::io::write(stop, &1_u64.to_ne_bytes());
        }
    }
}

fn write(place: &Place, file: &mut Option<File>) -> io::Result<()> {
    if let Some(open) = file
        && is_removed(open)?
    {
        *file = None;
    }
    let open = match file {
        Some(open) => open,
        None => file.insert(place.open_neighbour(&place.wake())?.0),
    };
    open.write_all_at(b"a lease became free\n", 0)
}

/// As in `Identity::of`, no times are asked for.
fn is_removed(file: &File) -> io::Result<bool> {
    let about = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::NLINK)?;
    Ok(about.stx_nlink == 0)
}

fn tick(ticks: &watch::Sender<u64>) {
    ticks.send_modify(|count| *count += 1);
}

/// Starts the thread that watches; writing to what it returns ends it.
fn watch(place: Place, ticks: watch::Sender<u64>) -> io::Result<OwnedFd> {
    let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    look_at(&place, &events)?;
    let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
    let stopped = stop.try_clone()?;
    thread::Builder::new().name("leasehold-wake".to_owned()).spawn(move || {
        if let Err(error) = listen(&place, &ticks, &events, &stopped) {
            tracing::warn!(%error, "the wake file is watched no longer; waiters will ask in their own time");
        }
    })?;
    Ok(stop)
}

fn look_at(place: &Place, events: &OwnedFd) -> io::Result<()> {
    let path = place.wake();
    place.open_neighbour(&path)?;
    let what =
        WatchFlags::MODIFY | WatchFlags::ATTRIB | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
    inotify::add_watch(events, &path, what)?;
    Ok(())
}

fn listen(
    place: &Place,
    ticks: &watch::Sender<u64>,
    events: &OwnedFd,
    stopped: &OwnedFd,
) -> io::Result<()> {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    loop {
        let mut ready = [
            PollFd::new(events, PollFlags::IN),
            PollFd::new(stopped, PollFlags::IN),
        ];
        match poll(&mut ready, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !ready[1].revents().is_empty() {
            return Ok(());
        }
        let mut reader = inotify::Reader::new(events, &mut buffer);
        let mut gone = false;
        loop {
            match reader.next() {
                Ok(event) => gone |= !event.events().contains(ReadFlags::MODIFY),
                Err(Errno::WOULDBLOCK) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if gone && !find_again(place, events, stopped)? {
            return Ok(());
        }
        tick(ticks);
    }
}

/// Looks at a new wake file, made if nobody has; `false` if the store was dropped meanwhile. Not at once: whoever removes
/// the whole folder must not find a new file in it.
fn find_again(place: &Place, events: &OwnedFd, stopped: &OwnedFd) -> io::Result<bool> {
    loop {
        let mut stop = [PollFd::new(stopped, PollFlags::IN)];
        match poll(&mut stop, Some(&GONE_FOR)) {
            Ok(0) if matches!(place.identity(), Ok(Some(_))) => {
                look_at(place, events)?;
                return Ok(true);
            }
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// FB-65; also after somebody tidied the file away.
    #[tokio::test]
    async fn a_touch_is_heard_by_every_store_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::find(&folder.path().join("leases.db"), true).unwrap();
        let (here, there) = (Wake::new(place.clone()), Wake::new(place.clone()));
        assert!(here.watches());
        for round in 0..3 {
            let mut heard = [here.subscribe(), there.subscribe()];
            here.touch();
            for receiver in &mut heard {
                let heard = tokio::time::timeout(Duration::from_secs(10), receiver.changed()).await;
                assert!(heard.is_ok(), "round {round}");
            }
            std::fs::remove_file(place.wake()).unwrap();
            for receiver in &mut heard {
                let heard = tokio::time::timeout(Duration::from_secs(10), receiver.changed()).await;
                assert!(heard.is_ok(), "round {round}");
            }
            assert!(place.wake().exists(), "a watcher makes it again");
        }
    }
}
