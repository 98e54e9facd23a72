//! Runs a child and guarantees that it and all its descendants are dead, verified, by a given moment (H3 to H8, INV-32).
//!
//! ```text
//! supervisor  this process: holds the lease, extends the deadline      | each watches the other by pidfd;
//!   guard     our binary again: own group, reaper, boot-clock alarm    | either kills the tree at kill_at
//!     child   own group, own control group where possible
//!       ...   double-forked and setsid ones fall back to the guard, which reaps
//! ```
//!
//! * Supervisor killed or gone: the guard kills the tree at once. Supervisor stopped: the guard kills at `kill_at`.
//! * Guard killed: the supervisor kills the tree at once. Guard stopped: the supervisor kills tree and guard at `kill_at`.
//! * Both killed in the same moment: only the child itself dies (PDEATHSIG); what it started lives on until the next
//!   supervisor on the machine sweeps its control group.
//! * Machine or container suspended as a whole: killed at the first moment after the resume; only a fence covers those
//!   milliseconds.
//! * What escapes: work handed to somebody else's process (a container daemon, systemd, cron, another host), and
//!   processes we may not kill, such as those behind `sudo`; the latter are reported as survivors.
//!
//! When the child ends by itself its stragglers are killed before that is told (H5); while it is being stopped they have
//! the rest of its grace. On a terminal the child gets the foreground. Ctrl-Z does not stop it: a stopped job would hold
//! the lease for nothing, and a stopped supervisor would lose it. `kill -TSTP` on the supervisor, if the caller passes it
//! on, pauses the child while the lease is kept.
//!
//! While a `Supervised` lives, this process should have no other children that must survive the guard's violent death:
//! its orphans cannot be told from them. Nothing here writes to a standard stream, except that a command that cannot be
//! started says so on stderr, in its own process.

mod alarm;
mod cgroup;
mod driver;
mod guard;
mod launch;
mod message;
mod plan;
mod post;
mod shared;
mod signals;
mod terminal;
mod tree;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use leasehold::BootTime;
use rustix::process::{Signal, WaitStatus, getpid, set_child_subreaper};
use serde::{Deserialize, Serialize};

pub(crate) use plan::{Cause, Deadline, Reason};
pub(crate) use signals::{Parent, Signals, hangups_are_ignored};

use message::{Channel, ToGuard};
use shared::{Shared, State};
use watch::Watch;

/// This very binary, even if its file was replaced since.
const SELF: &str = "/proc/self/exe";
const GUARD: &str = "__guard";
const LAUNCH: &str = "__launch";
/// Only for tests: drives this module without a lease.
const DRIVER: &str = "__supervise";

/// A process that does not die within 10 s of SIGKILL (H4) is reported as a survivor.
const GIVE_UP_AFTER: Duration = Duration::from_secs(10);

/// The inner stages of the binary. Call it first in `main`; None: this is no inner stage.
pub(crate) fn inner_stage() -> Option<ExitCode> {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let (stage, rest) = args.split_first()?;
    match stage.to_str()? {
        GUARD => Some(guard::main(rest)),
        LAUNCH => Some(launch::main(rest)),
        DRIVER => Some(driver::main(rest)),
        _ => None,
    }
}

/// What to run.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// Program and arguments; looked up in PATH as a shell does.
    pub(crate) command: Vec<OsString>,
    /// Changes to our environment: set, or with None removed. Nothing else is added to it.
    pub(crate) env: Vec<(OsString, Option<OsString>)>,
    /// Use a control group where possible.
    pub(crate) cgroup: bool,
}

/// How the child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Status {
    /// It exited, with this code.
    Code(u8),
    /// This signal ended it.
    Signal(i32),
    /// The guard was killed before it could tell.
    Unknown,
}

impl Status {
    fn of(status: WaitStatus) -> Option<Status> {
        let code = status
            .exit_status()
            .map(|code| Status::Code(u8::try_from(code).unwrap_or(255)));
        code.or(status.terminating_signal().map(Status::Signal))
    }

    /// As a shell says it: the code, or 128 + the signal; an unknown end counts as SIGKILL (FB-83).
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Status::Code(code) => code,
            Status::Signal(number) => u8::try_from(number.saturating_add(128)).unwrap_or(255),
            Status::Unknown => 137,
        }
    }
}

/// The end of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Exit {
    pub(crate) status: Status,
    pub(crate) cause: Cause,
    /// When the killing of what was left began.
    pub(crate) began_at: BootTime,
    /// When nobody was left, or when we gave up.
    pub(crate) ended_at: BootTime,
    /// Nobody is left, says the kernel. Otherwise do not release the lease (H4, H5).
    pub(crate) verified: bool,
    /// The first of those that are still alive; empty if `verified`.
    pub(crate) survivors: Vec<i32>,
}

/// A running job. Dropping it kills the tree at once; so does the end of this process, however it ends.
pub(crate) struct Supervised {
    shared: Arc<Shared>,
}

impl Supervised {
    /// Starts the job. Errors: nothing was started. A command that is not found or not executable is no error but a
    /// child that exits with 127 or 126, as in a shell.
    pub(crate) async fn start(job: &Job, deadline: Deadline) -> Result<Supervised> {
        if job.command.is_empty() {
            bail!("no command to run");
        }
        set_child_subreaper(Some(getpid())).context("become the reaper of the job's processes")?;
        let (channel, theirs) = Channel::pair().context("make the channel to the guard")?;
        let shared = Arc::new(Shared::new(channel, deadline).context("make the alarm")?);
        let (job, watched) = (job.clone(), Arc::clone(&shared));
        std::thread::Builder::new()
            .name("supervise".to_owned())
            .spawn(
                move || match Watch::start(&job, theirs, Arc::clone(&watched)) {
                    Ok(watch) => watch.run(deadline),
                    Err(error) => watched.fail(&error),
                },
            )
            .context("start the thread that watches the guard")?;
        let job = Supervised { shared };
        match job.state(|state| !matches!(state, State::Starting)).await {
            State::Failed { error } => bail!("{error}"),
            _ => Ok(job),
        }
    }

    /// The lease was renewed. False: too late, the job is being stopped or was killed (H1).
    pub(crate) fn extend(&self, deadline: Deadline) -> bool {
        self.shared.extend(deadline)
    }

    /// Asks the tree to stop, now, and kills it at `kill_at`, or at the lease's own `kill_at` if that comes first.
    pub(crate) fn stop(&self, reason: Reason, kill_at: BootTime) {
        self.shared.stop(reason, kill_at);
    }

    /// Passes a signal on to the child's group.
    pub(crate) fn signal(&self, signal: Signal) {
        self.shared.tell(&ToGuard::Signal(signal.as_raw()));
    }

    /// The child's pid, while it runs.
    pub(crate) fn pid(&self) -> Option<i32> {
        match *self.shared.state.borrow() {
            State::Running { pid } => Some(pid),
            _ => None,
        }
    }

    /// Waits for the end of the whole tree. May be called again, and dropped at any time.
    pub(crate) async fn wait(&self) -> Exit {
        loop {
            if let State::Ended(exit) = self.state(|state| matches!(state, State::Ended(_))).await {
                return exit;
            }
        }
    }

    async fn state(&self, wanted: impl FnMut(&State) -> bool) -> State {
        let mut states = self.shared.state.subscribe();
        match states.wait_for(wanted).await {
            Ok(state) => state.clone(),
            // We hold the sender ourselves, so this does not come.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        self.shared.let_go();
    }
}
