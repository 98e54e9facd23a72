//! Finds and kills the descendants of a process, from /proc.
//!
//! The one rule: a signal goes through a pidfd, and only after the process behind it was recognised by its start time,
//! so a reused pid is never hit. One pass may miss a process that forks meanwhile; callers repeat passes until the
//! kernel itself says that nobody is left.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// How often one pass looks again for processes born while it was stopping their parents.
const ROUNDS: usize = 16;

/// A report names no more than these.
const MOST_SURVIVORS: usize = 64;

/// One process as /proc tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) parent: i32,
    pub(super) group: i32,
    state: char,
    threads: u32,
    started: u64,
}

impl Process {
    pub(super) fn read(pid: i32) -> Option<Process> {
        parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Ticks since boot at its start: with the pid, the name of a process that is never given twice.
    pub(super) fn started(&self) -> u64 {
        self.started
    }

    /// Ended, though perhaps not reaped. A leader that ended before its other threads looks like a zombie but works on.
    pub(super) fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x') && self.threads <= 1
    }

    /// Sends the signal to this very process. A failure shows in the next pass: it is still there.
    pub(super) fn signal(&self, signal: Signal) {
        let Some(pid) = Pid::from_raw(self.pid) else {
            return;
        };
        let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else {
            return;
        };
        if Process::read(self.pid).is_some_and(|seen| seen.started == self.started) {
            let _ = pidfd_send_signal(&pidfd, signal);
        }
    }
}

/// The line of /proc/PID/stat. The name stands in brackets and may itself hold brackets and blanks.
fn parse(stat: &str) -> Option<Process> {
    let (pid, _) = stat.split_once(' ')?;
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    Some(Process {
        pid: pid.parse().ok()?,
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        threads: fields.get(17)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
    })
}

/// All that descend from `root`, zombies included, without `spared` and what descends from those.
pub(super) fn descendants(root: i32, spared: &[i32]) -> Vec<Process> {
    // The kernel's own lists of children cost by the size of the tree, a look at everybody by that of the machine.
    if Path::new("/proc/thread-self/children").exists() {
        below(root, spared, |parent| {
            children(parent)
                .into_iter()
                .filter_map(Process::read)
                .collect()
        })
    } else {
        let mut families: HashMap<i32, Vec<Process>> = HashMap::new();
        for process in numbers("/proc").filter_map(Process::read) {
            families.entry(process.parent).or_default().push(process);
        }
        below(root, spared, |parent| {
            families.remove(&parent).unwrap_or_default()
        })
    }
}

fn below(root: i32, spared: &[i32], mut born: impl FnMut(i32) -> Vec<Process>) -> Vec<Process> {
    let mut seen: HashSet<i32> = spared.iter().copied().chain([root]).collect();
    let mut found: Vec<Process> = Vec::new();
    let mut add = |parent: i32, found: &mut Vec<Process>| {
        found.extend(
            born(parent)
                .into_iter()
                .filter(|child| seen.insert(child.pid)),
        );
    };
    add(root, &mut found);
    let mut next = 0;
    while let Some(process) = found.get(next) {
        // The dead have no children any more.
        if !process.is_dead() {
            add(process.pid, &mut found);
        }
        next += 1;
    }
    found
}

/// The children of all threads of a process.
fn children(pid: i32) -> Vec<i32> {
    let tasks = format!("/proc/{pid}/task");
    let lists = numbers(&tasks).map(|task| fs::read_to_string(format!("{tasks}/{task}/children")));
    let parse = |list: String| -> Vec<i32> {
        list.split_ascii_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .collect()
    };
    lists.flatten().flat_map(parse).collect()
}

/// The entries of a folder of /proc whose names are numbers.
fn numbers(folder: &str) -> impl Iterator<Item = i32> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// One pass: stops everybody first, so that nobody can fork away, then kills them. Answers how many it found alive.
pub(super) fn strike(root: i32, spared: &[i32]) -> usize {
    let mut stopped = HashSet::new();
    let mut alive = Vec::new();
    for _ in 0..ROUNDS {
        alive = descendants(root, spared);
        alive.retain(|process| !process.is_dead());
        let mut newborn = false;
        for process in &alive {
            if stopped.insert((process.pid, process.started)) {
                newborn = true;
                process.signal(Signal::STOP);
            }
        }
        if !newborn {
            break;
        }
    }
    for process in &alive {
        process.signal(Signal::KILL);
    }
    stopped.len()
}

/// The pids of those still alive below `root`, the first few of them, for a report.
pub(super) fn survivors(root: i32, spared: &[i32]) -> Vec<i32> {
    let alive = descendants(root, spared)
        .into_iter()
        .filter(|process| !process.is_dead());
    alive
        .map(|process| process.pid)
        .take(MOST_SURVIVORS)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_blanks_is_read() {
        let line = "42 (a) b (c)) S 7 41 41 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 3 0 9981 1 1 1\n";
        let process = parse(line).expect("a line of stat");
        assert_eq!((process.pid, process.parent, process.group), (42, 7, 41));
        assert_eq!((process.threads, process.started), (3, 9981));
        assert!(!process.is_dead());
    }

    #[test]
    fn a_zombie_leader_with_live_threads_is_not_dead() {
        let line = |threads| {
            format!("42 (a) Z 7 41 41 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 {threads} 0 9981 1 1 1")
        };
        assert!(parse(&line(1)).expect("a line of stat").is_dead());
        assert!(!parse(&line(2)).expect("a line of stat").is_dead());
    }

    #[test]
    fn nonsense_is_no_process() {
        for line in ["", "1", "1 (a", "1 (a)", "1 (a) S x", "x (a) S 1 1 1"] {
            assert_eq!(parse(line), None, "{line:?}");
        }
    }

    #[test]
    fn the_kernels_lists_and_a_look_at_everybody_agree() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "sleep 60 & sleep 60 & read nothing"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("sh");
        let me = i32::try_from(std::process::id()).expect("a pid");
        let shell = i32::try_from(child.id()).expect("a pid");
        let everybody: Vec<Process> = numbers("/proc").filter_map(Process::read).collect();
        assert!(
            everybody
                .iter()
                .any(|process| process.pid == shell && process.parent == me)
        );
        assert!(
            descendants(me, &[])
                .iter()
                .any(|process| process.pid == shell)
        );
        assert!(
            descendants(me, &[shell])
                .iter()
                .all(|process| process.parent != shell)
        );
        while descendants(shell, &[]).len() < 2 {
            std::thread::yield_now();
        }
        assert_eq!(strike(shell, &[]), 2);
        child.kill().expect("our child");
        child.wait().expect("our child");
    }
}
