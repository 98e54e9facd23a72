//! Getting a process out of the way that was stopped in the middle of a write (A8): killed, after making sure that it is
//! the one, that it still has the turn, and that its turn does not move.

use std::{fs::File, thread, time::Duration};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{FlockOperation, flock},
    io::Errno,
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};

use super::{
    place::Place,
    process::Process,
    schema,
    side::{Side, SideFile},
};
use crate::store::StoreError;

/// A turn that ends or moves within this time is no obstacle. A healthy one takes milliseconds.
const WATCHED: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(50);
/// How long a killed process may take to be gone.
const DYING: Timespec = Timespec {
    tv_sec: 10,
    tv_nsec: 0,
};

/// Kills whoever has had the turn for [`WATCHED`] without moving; says who that was. `None`: nobody stands in the way.
pub(super) fn evict(place: &Place) -> Result<Option<String>, StoreError> {
    let failed = |error| schema::unavailable(place, error);
    let (file, _) = place.open_neighbour(&place.side()).map_err(failed)?;
    let (lock, side_file) = (
        file.try_clone().map_err(failed)?,
        SideFile::new(file).map_err(failed)?,
    );
    let Some(side) = stuck(&lock, &side_file).map_err(failed)? else {
        return Ok(None);
    };
    let refuse = |why: String| StoreError::Invalid { what: why };
    let owner = side_file.owner().ok_or_else(|| {
        refuse(format!(
            "something has locked {} and cannot be seen from here; look from the host",
            place.side().display()
        ))
    })?;
    let who = owner.describe();
    // One that is stopped between taking the turn and saying so is meant as well; any other may be a program of the user.
    if owner == Process::this() || (side.owner != Some(owner) && !owner.is_stopped()) {
        let file = place.side();
        return Err(refuse(format!(
            "{who}, has locked {}; it is not in a write: end it yourself",
            file.display()
        )));
    }
    kill(&owner).map_err(|error| refuse(format!("{who} cannot be killed: {error}")))?;
    match stuck(&lock, &side_file).map_err(failed)? {
        Some(side) if side.owner == Some(owner) => Err(schema::unavailable(
            place,
            format!("{who} was killed and still has the turn"),
        )),
        _ => Ok(Some(who)),
    }
}

/// The turn that somebody has and that does not move; `None` if it moves or nobody has it.
fn stuck(lock: &File, side_file: &SideFile) -> std::io::Result<Option<Side>> {
    let first = side_file.read()?;
    let mut watched = Duration::ZERO;
    while watched < WATCHED {
        match flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                flock(lock, FlockOperation::Unlock)?;
                return Ok(None);
            }
            Err(Errno::WOULDBLOCK | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if side_file.read()? != first {
            return Ok(None);
        }
        thread::sleep(LOOK);
        watched += LOOK;
    }
    Ok(Some(first.unwrap_or_default()))
}

/// The pidfd is opened before the last look at who it is, so the number cannot be used again in between.
fn kill(owner: &Process) -> std::io::Result<()> {
    let gone = || std::io::Error::other("it cannot be seen from here");
    let pid = i32::try_from(owner.pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(gone)?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    if !owner.is_there() {
        return Err(gone());
    }
    pidfd_send_signal(&process, Signal::KILL)?;
    match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&DYING))? {
        0 => Err(std::io::Error::other(
            "it does not die; it may wait for a disk",
        )),
        _ => Ok(()),
    }
}
