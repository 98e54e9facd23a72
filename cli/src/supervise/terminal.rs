//! The terminal: handed to the child's group, and taken back when the tree is dead (A14).
//!
//! The one rule: the foreground is only moved between the supervisor's group and the child's; when somebody else has it,
//! a shell for instance, it stays with them.

use std::os::fd::OwnedFd;

use nix::sys::signal::{SigSet, Signal};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::process::{Pid, test_kill_process_group};
use rustix::termios::{
    OptionalActions, Termios, isatty, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp,
};

pub(super) struct Terminal {
    tty: OwnedFd,
    /// Its settings before the child could change them.
    settings: Option<Termios>,
    /// The group of the supervisor.
    home: Pid,
}

impl Terminal {
    /// The controlling terminal of a supervisor in group `home`; None if there is none. The calling thread blocks
    /// SIGTTOU from now on.
    pub(super) fn open(home: Pid) -> Option<Terminal> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let tty = open("/dev/tty", flags, Mode::empty()).ok()?;
        shield();
        let settings = tcgetattr(&tty).ok();
        Some(Terminal {
            tty,
            settings,
            home,
        })
    }

    /// Whether the child should have the foreground from its first instruction: it reads this terminal, and it is not
    /// one of a pipeline, whose other members may read it too. Else it gets it when it first asks.
    pub(super) fn is_childs_from_the_start() -> bool {
        let piped = fstat(rustix::stdio::stdout()).is_ok_and(|stat| {
            matches!(
                FileType::from_raw_mode(stat.st_mode),
                FileType::Fifo | FileType::Socket
            )
        });
        isatty(rustix::stdio::stdin()) && !piped
    }

    pub(super) fn is_foreground(&self, group: Pid) -> bool {
        tcgetpgrp(&self.tty).is_ok_and(|holder| holder == group)
    }

    /// Hands the foreground to `group` if the supervisor's group has it. Answers whether `group` has it now.
    pub(super) fn hand_over(&self, group: Pid) -> bool {
        if self.is_foreground(self.home) {
            let _ = tcsetpgrp(&self.tty, group);
        }
        self.is_foreground(group)
    }

    /// After the tree's death: takes the foreground back from a group that is gone. `restore` also undoes what a child
    /// that could not tidy up did to the settings.
    pub(super) fn take_back(&self, restore: bool) {
        let Ok(holder) = tcgetpgrp(&self.tty) else {
            return;
        };
        if test_kill_process_group(holder) != Err(rustix::io::Errno::SRCH) {
            return;
        }
        if tcsetpgrp(&self.tty, self.home).is_err() {
            return;
        }
        if let (true, Some(settings)) = (restore, &self.settings) {
            // Not `Drain`: on a terminal stopped by Ctrl-S that would wait for ever.
            let _ = tcsetattr(&self.tty, OptionalActions::Now, settings);
        }
    }
}

/// A background process that moves the foreground is stopped by SIGTTOU, unless its thread blocks that.
fn shield() {
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGTTOU);
    // Cannot fail: the mask is a good one.
    let _ = mask.thread_block();
}
