//! The supervisor's half of the watch: a thread that passes on what the guard says and finishes the job if the guard
//! cannot (A14).
//!
//! The one rule: the end is only told after the tree was found empty. If the guard is killed its processes fall to us, as
//! we are a reaper too; if it is stopped, we kill at `kill_at` what it should have killed.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, getpgrp, getpid, pidfd_open,
    pidfd_send_signal, waitid, waitpid,
};

use super::alarm::{is_ready, now};
use super::cgroup::Cgroup;
use super::message::{FromGuard, Received, ToGuard};
use super::shared::{Shared, State};
use super::terminal::Terminal;
use super::{Cause, Deadline, Exit, GIVE_UP_AFTER, GUARD, Job, SELF, Status, tree};

/// How long after `kill_at` a guard may still report by itself. The tree is being killed meanwhile all the same.
const PATIENCE: Duration = Duration::from_millis(100);

/// The guards of this process: when one of them is killed, its orphans fall to us among the other guards.
static GUARDS: Mutex<Vec<i32>> = Mutex::new(Vec::new());

/// Held over every spawn of a guard and every strike, so that no newborn guard is taken for an orphan.
fn guards() -> MutexGuard<'static, Vec<i32>> {
    GUARDS.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) struct Watch {
    shared: Arc<Shared>,
    guard: Child,
    pidfd: OwnedFd,
    cgroup: Option<Cgroup>,
    /// The child's pid once the guard told it, to recognise its status should it fall to us.
    child: Option<Pid>,
}

impl Watch {
    /// Starts the guard, which starts nothing before it hears from us.
    pub(super) fn start(job: &Job, theirs: OwnedFd, shared: Arc<Shared>) -> Result<Watch> {
        let cgroup = if job.cgroup { Cgroup::create() } else { None };
        let spawned = spawn(job, theirs, cgroup.as_ref());
        if let (Err(_), Some(cgroup)) = (&spawned, &cgroup) {
            cgroup.remove();
        }
        let (guard, pidfd) = spawned?;
        let child = None;
        Ok(Watch {
            shared,
            guard,
            pidfd,
            cgroup,
            child,
        })
    }

    /// Sends the start and stays until the end was told.
    pub(super) fn run(mut self, deadline: Deadline) {
        let terminal = Terminal::open(getpgrp());
        let start = ToGuard::Start(deadline);
        // If this fails the guard is dead, which the loop finds.
        let _ = self
            .shared
            .channel
            .send(&start, Some(rustix::stdio::stdin()));
        let end = self.watch();
        self.bury_guard();
        let end = match end {
            End::Told(state) => state,
            End::Ours(cause) => State::Ended(self.finish(cause, terminal.as_ref())),
        };
        if !matches!(&end, State::Ended(exit) if !exit.verified)
            && let Some(cgroup) = &self.cgroup
        {
            cgroup.remove();
        }
        self.shared.state.send_replace(end);
    }

    fn watch(&mut self) -> End {
        loop {
            if let Some(end) = self.listen() {
                return end;
            }
            if self.shared.is_overdue() {
                return self.overdue();
            }
            self.sleep();
        }
    }

    /// Takes in what the guard says; a dead guard says nothing more.
    fn listen(&mut self) -> Option<End> {
        let dead = self.guard_is_dead();
        loop {
            match self.shared.channel.receive() {
                Received::Message(FromGuard::Started { pid }, _) => {
                    self.child = Pid::from_raw(pid);
                    self.shared.state.send_replace(State::Running { pid });
                }
                Received::Message(FromGuard::Failed { error }, _) => {
                    return Some(End::Told(State::Failed { error }));
                }
                Received::Message(FromGuard::Ended(exit), _) => {
                    return Some(End::Told(State::Ended(exit)));
                }
                // A guard that closed its end without a last word is dying.
                Received::Closed => return Some(End::Ours(Cause::GuardDied)),
                Received::Nothing if dead => return Some(End::Ours(Cause::GuardDied)),
                Received::Nothing => return None,
            }
        }
    }

    /// The guard should be killing just now. We kill too, and wait a little for its report.
    fn overdue(&mut self) -> End {
        let cause = self.shared.cause();
        let patience_ends = now().plus(PATIENCE);
        let mut pause = Duration::from_millis(2);
        while now() < patience_ends {
            if let Some(end) = self.listen() {
                return end;
            }
            self.strike(self.guard_pid());
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
        End::Ours(cause)
    }

    /// All that is left of a dead guard's tree is ours now: kills it until nobody is left.
    fn finish(&mut self, cause: Cause, terminal: Option<&Terminal>) -> Exit {
        let began_at = now();
        let me = getpid().as_raw_pid();
        let mut status = None;
        let mut pause = Duration::from_millis(1);
        let mut verified = false;
        while !verified && now().since(began_at) < GIVE_UP_AFTER {
            if let Some(cgroup) = &self.cgroup {
                cgroup.kill();
            }
            let quiet = self.strike(me) == 0;
            status = status.or(self.reap_orphans());
            verified = quiet && (has_no_child() || self.nobody_is_left());
            if !verified {
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(20));
            }
        }
        let ended_at = now();
        let status = status.unwrap_or(Status::Unknown);
        if let Some(terminal) = terminal {
            terminal.take_back(!matches!(status, Status::Code(_)));
        }
        let survivors = if verified {
            Vec::new()
        } else {
            tree::survivors(me, &guards())
        };
        Exit {
            status,
            cause,
            began_at,
            ended_at,
            verified,
            survivors,
        }
    }

    /// One pass over what is below `root`, other guards and theirs excepted.
    fn strike(&self, root: i32) -> usize {
        tree::strike(root, &guards())
    }

    /// Reaps dead orphans one by one: other children of this process are somebody else's to reap.
    fn reap_orphans(&self) -> Option<Status> {
        let me = getpid().as_raw_pid();
        let mut found = None;
        for process in tree::descendants(me, &guards()) {
            let pid = Pid::from_raw(process.pid);
            if process.parent != me || pid.is_none() {
                continue;
            }
            if let Ok(Some((_, status))) = waitpid(pid, WaitOptions::NOHANG)
                && pid == self.child
            {
                found = Status::of(status);
            }
        }
        found
    }

    fn nobody_is_left(&self) -> bool {
        let me = getpid().as_raw_pid();
        tree::descendants(me, &guards()).is_empty() && tree::descendants(me, &guards()).is_empty()
    }

    fn guard_pid(&self) -> i32 {
        Pid::from_child(&self.guard).as_raw_pid()
    }

    fn guard_is_dead(&self) -> bool {
        is_ready(&self.pidfd)
    }

    /// Ends the guard, which has nothing more to say, and reaps it.
    fn bury_guard(&mut self) {
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        let _ = self.guard.wait();
        let pid = self.guard_pid();
        guards().retain(|guard| *guard != pid);
    }

    /// Sleeps until there is anything to look at.
    fn sleep(&self) {
        let mut fds = [
            PollFd::new(&self.shared.channel, PollFlags::IN),
            PollFd::new(&self.pidfd, PollFlags::IN),
            PollFd::new(&self.shared.alarm, PollFlags::IN),
        ];
        // An error is an early wake.
        let _ = poll(&mut fds, None);
        self.shared.alarm.clear();
    }
}

fn spawn(job: &Job, theirs: OwnedFd, cgroup: Option<&Cgroup>) -> Result<(Child, OwnedFd)> {
    let folder = cgroup.map_or(OsString::new(), |group| group.folder().into());
    let mut command = Command::new(SELF);
    command
        .arg0("leasehold")
        .arg(GUARD)
        .arg(getpid().as_raw_pid().to_string())
        .arg(folder);
    command
        .args(&job.command)
        .stdin(Stdio::from(theirs))
        .process_group(0);
    for (name, value) in &job.env {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let mut guards = guards();
    let mut guard = command.spawn().context("start the guard process")?;
    let pid = Pid::from_child(&guard);
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => {
            guards.push(pid.as_raw_pid());
            Ok((guard, pidfd))
        }
        Err(error) => {
            let _ = guard.kill();
            let _ = guard.wait();
            Err(error).context("watch the guard by pidfd (Linux 5.3 or newer)")
        }
    }
}

enum End {
    /// The guard's last word.
    Told(State),
    /// The guard has not finished; we must.
    Ours(Cause),
}

/// The kernel's own word that this process has no children, reaping nobody.
fn has_no_child() -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::All, options), Err(rustix::io::Errno::CHILD))
}
