//! The guard's post: what makes a process the one that outlives, hears and reaps.
//!
//! The one rule: it is taken before anything is started, and only under a supervisor that is still there.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, getpgid, getpid, getppid, pidfd_open, set_child_subreaper};

use super::alarm::{Alarm, is_ready};
use super::message::Channel;
use super::signals;
use super::terminal::Terminal;

/// What makes the guard the one that outlives, hears and reaps.
pub(super) struct Post {
    /// Readable when the supervisor has died.
    supervisor: OwnedFd,
    /// Readable after a SIGCHLD.
    deaths: UnixStream,
    pub(super) alarm: Alarm,
    pub(super) terminal: Option<Terminal>,
    pub(super) home: Pid,
}

impl Post {
    pub(super) fn take(supervisor: Pid) -> Result<Option<Post>> {
        set_child_subreaper(Some(getpid())).context("become the reaper of the job's processes")?;
        let _ = rustix::thread::set_name(c"leasehold-guard");
        let pidfd = pidfd_open(supervisor, PidfdFlags::empty())
            .context("watch the supervisor by pidfd (Linux 5.3 or newer)")?;
        if getppid() != Some(supervisor) {
            return Ok(None);
        }
        let (deaths, teller) = UnixStream::pair()?;
        deaths.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(signal_hook::consts::SIGCHLD, teller)?;
        signals::shrug_off()?;
        let home = getpgid(Some(supervisor))?;
        let terminal = Terminal::open(home);
        Ok(Some(Post {
            supervisor: pidfd,
            deaths,
            alarm: Alarm::new()?,
            terminal,
            home,
        }))
    }

    /// Sleeps until there is anything to look at.
    pub(super) fn wait(&self, channel: &Channel) {
        let mut fds = [
            PollFd::new(channel, PollFlags::IN),
            PollFd::new(&self.supervisor, PollFlags::IN),
            PollFd::new(&self.deaths, PollFlags::IN),
            PollFd::new(&self.alarm, PollFlags::IN),
        ];
        // An error is an early wake.
        let _ = poll(&mut fds, None);
        self.alarm.clear();
        while (&self.deaths)
            .read(&mut [0_u8; 64])
            .is_ok_and(|read| read > 0)
        {}
    }

    pub(super) fn supervisor_is_dead(&self) -> bool {
        is_ready(&self.supervisor)
    }
}
