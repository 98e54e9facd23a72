//! Which process: its number alone is not enough, since numbers are used again and differ between namespaces.

use std::{fmt, fs, os::unix::fs::MetadataExt};

use super::place::Identity;

/// A process of this boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: u32,
    /// When it started, in clock ticks since boot.
    pub(super) start: u64,
    /// The inode of its pid namespace: `pid` means nothing in another one.
    pub(super) namespace: u64,
}

/// What `/proc` says about a process.
struct Stat {
    command: String,
    state: char,
    start: u64,
}

impl Process {
    /// This process. All zero where `/proc` is missing: nobody will be able to name or evict it.
    pub(super) fn this() -> Self {
        let pid = std::process::id();
        let start = stat(pid).map_or(0, |stat| stat.start);
        Self {
            pid,
            start,
            namespace: namespace(),
        }
    }

    /// Who has a lock on this file, as the kernel tells; `None` if it does not, as for a process
    /// of a pid namespace that cannot be seen from here.
    pub(super) fn that_locked(Identity { device, inode }: Identity) -> Option<Self> {
        let locks = fs::read_to_string("/proc/locks").ok()?;
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let pid = locker(&locks, &format!("{major:02x}:{minor:02x}:{inode}"))?;
        let start = stat(pid)?.start;
        Some(Self {
            pid,
            start,
            namespace: namespace(),
        })
    }

    /// Whether it is stopped, and so will not go on by itself.
    pub(super) fn is_stopped(&self) -> bool {
        self.stat()
            .is_some_and(|stat| matches!(stat.state, 'T' | 't'))
    }

    /// Whether it lives and this process can see it.
    pub(super) fn is_there(&self) -> bool {
        self.stat().is_some()
    }

    /// Its number, name and state, for people.
    pub(super) fn describe(&self) -> String {
        match self.stat() {
            Some(Stat { command, state, .. }) => {
                format!("process {} ({command}), which {}", self.pid, word(state))
            }
            None => format!("process {}, which cannot be seen from here", self.pid),
        }
    }

    fn stat(&self) -> Option<Stat> {
        if self.namespace != namespace() {
            return None;
        }
        stat(self.pid).filter(|stat| stat.start == self.start)
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe())
    }
}

fn namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |about| about.ino())
}

/// The name is in parentheses and may hold any character, so fields are counted from the last one on (proc(5)).
fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&text);
    let (head, tail) = text.rsplit_once(") ")?;
    let (_, command) = head.split_once(" (")?;
    let mut fields = tail.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let start = fields.nth(18)?.parse().ok()?;
    let command = command.chars().flat_map(char::escape_debug).collect();
    Some(Stat {
        command,
        state,
        start,
    })
}

/// The process number in a line such as `5: FLOCK  ADVISORY  WRITE 708 fe:00:3542 0 EOF`; those who wait have an arrow.
fn locker(locks: &str, file: &str) -> Option<u32> {
    let mut lines = locks.lines().map(|line| line.split_whitespace().skip(1));
    lines.find_map(|mut words| {
        let is_flock = words.next() == Some("FLOCK");
        let pid = words.nth(2)?;
        (is_flock && words.next() == Some(file))
            .then(|| pid.parse().ok())
            .flatten()
    })
}

fn word(state: char) -> &'static str {
    match state {
        'T' => "is stopped",
        't' => "is held by a debugger",
        'D' => "waits for a disk",
        'Z' | 'X' => "is dead",
        _ => "runs",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_knows_who_has_a_lock() {
        let file = tempfile::tempfile().unwrap();
        let about = file.metadata().unwrap();
        let identity = Identity {
            device: about.dev(),
            inode: about.ino(),
        };
        let locker = || Process::that_locked(identity);
        assert_eq!(locker(), None);
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
        assert_eq!(locker(), Some(Process::this()));
        let waits = "5: POSIX  ADVISORY  WRITE 8 fe:00:3 0 EOF\n7: -> FLOCK  ADVISORY  WRITE 9 fe:00:3 0 EOF\n";
        assert_eq!(super::locker(waits, "fe:00:3"), None);
    }

    #[test]
    fn a_process_is_more_than_its_number() {
        let me = Process::this();
        assert!(me.is_there() && me.start > 0 && me.namespace > 0, "{me:?}");
        assert!(
            me.describe().contains(&format!("process {} (", me.pid)),
            "{me}"
        );
        let earlier = Process {
            start: me.start - 1,
            ..me
        };
        let elsewhere = Process {
            namespace: me.namespace + 1,
            ..me
        };
        for other in [earlier, elsewhere] {
            assert!(
                !other.is_there() && other.describe().contains("cannot be seen"),
                "{other}"
            );
        }
    }
}
