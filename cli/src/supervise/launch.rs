//! The last stage before the command: puts itself where the child must be, then becomes the command.
//!
//! The one rule: nothing of Leasehold is left in the process when the command begins, no variable, no file descriptor,
//! no blocked signal; only its place: own group, control group, foreground, and death with the guard.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use rustix::process::{Pid, Signal, getpgrp, getppid, set_parent_process_death_signal};

use super::cgroup::Cgroup;
use super::terminal::Terminal;

/// The arguments of the stage, and how the guard writes them.
pub(super) struct Launch {
    pub(super) guard: i32,
    /// The group of the supervisor, which may hold the terminal.
    pub(super) home: i32,
    /// Folder of the child's control group; empty for none.
    pub(super) cgroup: OsString,
    pub(super) command: Vec<OsString>,
}

impl Launch {
    pub(super) fn to_args(&self) -> Vec<OsString> {
        let mut args = vec![self.guard.to_string().into(), self.home.to_string().into()];
        args.push(self.cgroup.clone());
        args.extend(self.command.iter().cloned());
        args
    }

    pub(super) fn from_args(args: &[OsString]) -> Option<Launch> {
        let [guard, home, cgroup, command @ ..] = args else {
            return None;
        };
        Some(Launch {
            guard: guard.to_str()?.parse().ok()?,
            home: home.to_str()?.parse().ok()?,
            cgroup: cgroup.clone(),
            command: command.to_vec(),
        })
    }
}

/// Returns only if the command could not be started: 127 not found, 126 found but not to be run, as a shell.
pub(super) fn main(args: &[OsString]) -> ExitCode {
    let Some(launch) = Launch::from_args(args) else {
        return ExitCode::from(125);
    };
    let Some((program, rest)) = launch.command.split_first() else {
        return ExitCode::from(125);
    };
    // The guard spawned us from its only thread, so this fires when the guard dies and not before (H7).
    let tied = set_parent_process_death_signal(Some(Signal::KILL));
    if tied.is_err() || getppid().map(Pid::as_raw_pid) != Some(launch.guard) {
        return ExitCode::from(125);
    }
    if !launch.cgroup.is_empty() {
        Cgroup::at(Path::new(&launch.cgroup)).join();
    }
    take_foreground(launch.home);
    // `exec` also unblocks SIGTTOU, which the terminal had us block.
    let error = Command::new(program).args(rest).exec();
    let (code, why) = match error.kind() {
        ErrorKind::NotFound => (127, not_found(program)),
        ErrorKind::PermissionDenied => (126, "not executable, or a folder".to_owned()),
        _ => (126, error.to_string()),
    };
    eprintln!("leasehold: cannot run {program:?}: {why}");
    ExitCode::from(code)
}

/// The guard put us into a group of our own; the terminal follows if the child is meant to use it.
fn take_foreground(home: i32) {
    let Some(home) = Pid::from_raw(home) else {
        return;
    };
    if Terminal::is_childs_from_the_start()
        && let Some(terminal) = Terminal::open(home)
    {
        terminal.hand_over(getpgrp());
    }
}

fn not_found(program: &OsStr) -> String {
    if program.as_encoded_bytes().contains(&b'/') {
        "no such file, or its interpreter is missing".to_owned()
    } else {
        "no such command in PATH".to_owned()
    }
}
