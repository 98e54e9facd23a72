//! The guard: a small process between supervisor and child that kills the whole tree in time, whatever becomes of the
//! supervisor (H6, A14).
//!
//! The one rule: it waits for nobody. It never writes to a standard stream, never blocks on the channel, reads the clock
//! at every wake (C7), and when in doubt (channel closed, supervisor gone) it kills.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use leasehold::BootTime;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process_group, wait};

use super::alarm::now;
use super::cgroup::Cgroup;
use super::launch::Launch;
use super::message::{Channel, FromGuard, Received, ToGuard};
use super::plan::{Plan, Step};
use super::post::Post;
use super::tree::Process;
use super::{Cause, Deadline, Exit, GIVE_UP_AFTER, SELF, Status, tree};

/// How often a child that waits for the terminal is looked at; only then.
const TERMINAL_POLL: Duration = Duration::from_millis(200);

/// The arguments of the stage: supervisor's pid, control group or nothing, command.
pub(super) fn main(args: &[OsString]) -> ExitCode {
    let [supervisor, cgroup, command @ ..] = args else {
        return ExitCode::from(125);
    };
    let supervisor = supervisor.to_str().and_then(|pid| pid.parse().ok());
    let Some(supervisor) = supervisor.and_then(Pid::from_raw) else {
        return ExitCode::from(125);
    };
    let channel = match rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3) {
        Ok(socket) => Channel::new(socket),
        Err(_) => return ExitCode::from(125),
    };
    match begin(&channel, supervisor, cgroup, command) {
        Ok(None) => {}
        Ok(Some((post, plan, child))) => {
            let cgroup = (!cgroup.is_empty()).then(|| Cgroup::at(Path::new(cgroup)));
            Guard::new(channel, post, cgroup, plan, child).run();
        }
        Err(error) => {
            let _ = channel.send(
                &FromGuard::Failed {
                    error: format!("{error:#}"),
                },
                None,
            );
        }
    }
    ExitCode::SUCCESS
}

struct Guard {
    channel: Channel,
    post: Post,
    cgroup: Option<Cgroup>,
    plan: Plan,
    child: Pid,
    /// Known once the child is reaped; from then on its group's number may be a stranger's.
    status: Option<Status>,
    /// The caller stopped the child by a signal, so it stays stopped.
    paused: bool,
    wants_terminal: bool,
}

impl Guard {
    fn new(channel: Channel, post: Post, cgroup: Option<Cgroup>, plan: Plan, child: Pid) -> Guard {
        let (status, paused, wants_terminal) = (None, false, false);
        Guard {
            channel,
            post,
            cgroup,
            plan,
            child,
            status,
            paused,
            wants_terminal,
        }
    }

    fn run(mut self) {
        let _ = self.channel.send(
            &FromGuard::Started {
                pid: self.child.as_raw_pid(),
            },
            None,
        );
        let cause = self.watch();
        let exit = self.finish(cause);
        let _ = self.channel.send(&FromGuard::Ended(exit), None);
    }

    /// Returns when the tree must die now, and why.
    fn watch(&mut self) -> Cause {
        loop {
            // Messages before the clock: an extension that was sent in time counts, even if we were stopped meanwhile.
            if !self.obey() || self.post.supervisor_is_dead() {
                return Cause::SupervisorDied;
            }
            let empty = self.reap();
            match (self.status, self.plan.stopping()) {
                (Some(status), None) => return self.blame(status),
                // The grace is for the whole tree, not only for the child.
                (Some(_), Some(cause)) if empty => return cause,
                _ => {}
            }
            match self.plan.next(now()) {
                Step::Kill(cause) => return cause,
                Step::Term => {
                    self.ask_to_stop();
                    continue;
                }
                Step::Wait(until) => {
                    let wake = self.or_terminal_poll(until);
                    if self.post.alarm.set(wake).is_err() {
                        return Cause::Deadline;
                    }
                }
            }
            self.post.wait(&self.channel);
        }
    }

    /// A child killed when its time was up was killed by the supervisor, which may be quicker than we.
    fn blame(&mut self, status: Status) -> Cause {
        match self.plan.next(now()) {
            Step::Kill(cause) if status == Status::Signal(Signal::KILL.as_raw()) => cause,
            _ => Cause::Child,
        }
    }

    /// Takes in all messages. False: the supervisor has let go of us.
    fn obey(&mut self) -> bool {
        loop {
            match self.channel.receive() {
                Received::Message(ToGuard::Extend(lease), _) => {
                    self.plan.extend(lease);
                }
                Received::Message(ToGuard::Stop { reason, kill_at }, _) => {
                    self.plan.stop(reason, kill_at);
                }
                Received::Message(ToGuard::Signal(number), _) => self.forward(number),
                Received::Message(ToGuard::Start(_), _) => {}
                Received::Nothing => return true,
                Received::Closed => return false,
            }
        }
    }

    fn forward(&mut self, number: i32) {
        let Some(signal) = Signal::from_named_raw(number) else {
            return;
        };
        self.signal_group(signal);
        match signal {
            Signal::TSTP | Signal::STOP => self.paused = true,
            Signal::CONT => self.paused = false,
            // A stopped process would not hear it.
            Signal::INT | Signal::TERM | Signal::HUP | Signal::QUIT if self.paused => {
                self.paused = false;
                self.signal_group(Signal::CONT);
            }
            _ => {}
        }
    }

    /// To the child's group, as long as the number is surely that group's (CRATES 4.8).
    fn signal_group(&self, signal: Signal) {
        if self.status.is_none() {
            let _ = kill_process_group(self.child, signal);
        }
    }

    /// SIGTERM to all of the tree, each process once: a second one means "at once" to some programs.
    fn ask_to_stop(&mut self) {
        self.paused = false;
        // Listed first: a process whose parent dies of this moves elsewhere in the tree, and would be passed over.
        let tree = tree::descendants(getpid().as_raw_pid(), &[]);
        self.signal_group(Signal::TERM);
        self.signal_group(Signal::CONT);
        let elsewhere = |process: &&Process| process.group != self.child.as_raw_pid();
        for process in tree.iter().filter(elsewhere) {
            process.signal(Signal::TERM);
            process.signal(Signal::CONT);
        }
    }

    /// Reaps whoever has ended. True: no descendant is left, says the kernel.
    fn reap(&mut self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((pid, status))) if pid == self.child => match status.stopping_signal() {
                    Some(number) => self.child_stopped(number),
                    None => self.status = Status::of(status),
                },
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                Ok(None) => return false,
                Err(_) => return true,
            }
        }
    }

    /// A child that wants the terminal gets it when the supervisor's group has it. Ctrl-Z does not stop a job that holds
    /// a lease; a stop that somebody sent on purpose stays.
    fn child_stopped(&mut self, number: i32) {
        let Some(terminal) = &self.post.terminal else {
            return;
        };
        match Signal::from_named_raw(number) {
            Some(Signal::TTIN | Signal::TTOU) => self.wants_terminal = true,
            Some(Signal::TSTP) if !self.paused && terminal.is_foreground(self.child) => {
                self.signal_group(Signal::CONT);
            }
            _ => {}
        }
    }

    /// The next wake: `until`, or sooner while the child waits for the terminal.
    fn or_terminal_poll(&mut self, until: BootTime) -> BootTime {
        let (true, Some(terminal)) = (self.wants_terminal, &self.post.terminal) else {
            return until;
        };
        if self.status.is_none() && !terminal.hand_over(self.child) {
            return until.min(now().plus(TERMINAL_POLL));
        }
        self.wants_terminal = false;
        self.signal_group(Signal::CONT);
        until
    }

    /// Kills what is left, until the kernel says that we have no descendant (H3, H8).
    fn finish(&mut self, cause: Cause) -> Exit {
        let began_at = now();
        let me = getpid().as_raw_pid();
        let mut pause = Duration::from_millis(1);
        let mut empty = self.reap();
        while !empty && now().since(began_at) < GIVE_UP_AFTER {
            if let Some(cgroup) = &self.cgroup {
                cgroup.kill();
            }
            tree::strike(me, &[]);
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
            empty = self.reap();
        }
        let ended_at = now();
        let status = self.status.unwrap_or(Status::Unknown);
        if let Some(terminal) = &self.post.terminal {
            terminal.take_back(!matches!(status, Status::Code(_)));
        }
        if let (true, Some(cgroup)) = (empty, &self.cgroup) {
            cgroup.remove();
        }
        let survivors = if empty {
            Vec::new()
        } else {
            tree::survivors(me, &[])
        };
        Exit {
            status,
            cause,
            began_at,
            ended_at,
            verified: empty,
            survivors,
        }
    }
}

/// Starts the child. None: the supervisor died first, and nothing was started.
fn begin(
    channel: &Channel,
    supervisor: Pid,
    cgroup: &OsStr,
    command: &[OsString],
) -> Result<Option<(Post, Plan, Pid)>> {
    let Some(post) = Post::take(supervisor)? else {
        return Ok(None);
    };
    let Some((deadline, stdin)) = await_start(channel, &post)? else {
        return Ok(None);
    };
    let mut plan = Plan::new(deadline);
    if !matches!(plan.next(now()), Step::Wait(_)) {
        bail!("the lease's deadline passed before the command was started");
    }
    let launch = Launch {
        guard: getpid().as_raw_pid(),
        home: post.home.as_raw_pid(),
        cgroup: cgroup.to_owned(),
        command: command.to_vec(),
    };
    let child = spawn(&launch, stdin).context("start the command")?;
    Ok(Some((post, plan, child)))
}

/// The first message: deadline, and the child's standard input. None: the supervisor is gone.
fn await_start(channel: &Channel, post: &Post) -> Result<Option<(Deadline, OwnedFd)>> {
    loop {
        match channel.receive() {
            Received::Message(ToGuard::Start(deadline), Some(stdin)) => {
                return Ok(Some((deadline, stdin)));
            }
            Received::Message(..) => bail!("the first message is not the start"),
            Received::Closed => return Ok(None),
            Received::Nothing if post.supervisor_is_dead() => return Ok(None),
            Received::Nothing => post.wait(channel),
        }
    }
}

fn spawn(launch: &Launch, stdin: OwnedFd) -> Result<Pid> {
    let child = Command::new(SELF)
        .arg0("leasehold")
        .arg(super::LAUNCH)
        .args(launch.to_args())
        .stdin(Stdio::from(stdin))
        .process_group(0)
        .spawn()?;
    // Reaped by `Guard::reap`; dropping the handle does nothing.
    Ok(Pid::from_child(&child))
}
