//! A control group of the child's own, where the system lets us make one: `cgroup.kill` ends all of it in one blow,
//! fork bombs included (H8).
//!
//! The one rule: it only helps. Where it cannot be made nothing is said, and the walk over /proc does the work; where it
//! can, the walk still verifies. No folder stays behind.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::Duration;

use super::tree::Process;

const PREFIX: &str = "leasehold-";
/// A group stays busy for a moment after its last process died.
const REMOVE_TRIES: u32 = 50;
/// What a child may nest in its group; deeper ones are left to their maker.
const DEEPEST: u32 = 16;

pub(super) struct Cgroup {
    folder: PathBuf,
}

impl Cgroup {
    /// Makes a group below our own, named after this process; None where we may not, or the kernel is older than 5.14.
    pub(super) fn create() -> Option<Cgroup> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let own = own_folder(
            &fs::read_to_string("/proc/self/cgroup").ok()?,
            &fs::read_to_string("/proc/self/mountinfo").ok()?,
        )?;
        sweep(&own);
        let me = Process::read(i32::try_from(std::process::id()).ok()?)?;
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let group = Cgroup {
            folder: own.join(format!(
                "{PREFIX}{}-{}-{}-{count}",
                me.pid,
                me.started(),
                namespace()?
            )),
        };
        fs::create_dir(&group.folder).ok()?;
        if group.folder.join("cgroup.kill").exists() {
            return Some(group);
        }
        group.remove();
        None
    }

    /// The group that another stage made.
    pub(super) fn at(folder: &Path) -> Cgroup {
        Cgroup {
            folder: folder.to_owned(),
        }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Moves the calling process in. May be refused, then the group stays empty.
    pub(super) fn join(&self) {
        let _ = fs::write(self.folder.join("cgroup.procs"), "0");
    }

    pub(super) fn kill(&self) {
        let _ = fs::write(self.folder.join("cgroup.kill"), "1");
    }

    /// Removes the folder; everybody in it must be dead.
    pub(super) fn remove(&self) {
        for _ in 0..REMOVE_TRIES {
            remove(&self.folder, DEEPEST);
            if !self.folder.exists() {
                return;
            }
            sleep(Duration::from_millis(2));
        }
    }
}

/// Groups go from the innermost out; one that is not empty refuses.
fn remove(folder: &Path, depth: u32) {
    let inner = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in
        inner.filter(|entry| depth > 0 && entry.file_type().is_ok_and(|kind| kind.is_dir()))
    {
        remove(&entry.path(), depth - 1);
    }
    let _ = fs::remove_dir(folder);
}

/// Kills and removes the groups of supervisors that were killed together with their guard. A guard that is still there
/// kills the same processes at the same moment: nobody loses time to stop in.
fn sweep(own: &Path) {
    let here = namespace();
    for entry in fs::read_dir(own).into_iter().flatten().flatten() {
        let Some(owner) = entry.file_name().to_str().and_then(owner) else {
            continue;
        };
        let lives = |seen: Process| seen.started() == owner.started && !seen.is_dead();
        if here == Some(owner.namespace) && !Process::read(owner.pid).is_some_and(lives) {
            let group = Cgroup::at(&entry.path());
            group.kill();
            group.remove();
        }
    }
}

/// The supervisor that made a group, from the group's name.
#[derive(Debug, PartialEq)]
struct Owner {
    pid: i32,
    started: u64,
    /// A pid means nothing in another one: containers may share a group's folder.
    namespace: u64,
}

fn owner(name: &str) -> Option<Owner> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    Some(Owner {
        pid: parts.next()?.parse().ok()?,
        started: parts.next()?.parse().ok()?,
        namespace: parts.next()?.parse().ok()?,
    })
}

/// The inode of our pid namespace.
fn namespace() -> Option<u64> {
    fs::metadata("/proc/self/ns/pid")
        .ok()
        .map(|about| about.ino())
}

/// Our group's folder, from the two files of /proc/self. A mount point with escaped characters is not found.
fn own_folder(cgroup: &str, mountinfo: &str) -> Option<PathBuf> {
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::"))?;
    mountinfo.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        if !kind.starts_with("cgroup2 ") {
            return None;
        }
        let fields: Vec<&str> = mount.split(' ').collect();
        let below = Path::new(path).strip_prefix(fields.get(3)?).ok()?;
        Some(Path::new(fields.get(4)?).join(below))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_folder_is_found_in_both_layouts() {
        let unified = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";
        let hybrid = "31 23 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      32 23 0:28 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n";
        let own = |cgroup, mounts| own_folder(cgroup, mounts).map(|p| p.display().to_string());
        assert_eq!(
            own("0::/a/b\n", unified),
            Some("/sys/fs/cgroup/a/b".to_owned())
        );
        assert_eq!(
            own("4:cpu:/x\n0::/\n", hybrid),
            Some("/sys/fs/cgroup/unified/".to_owned())
        );
    }

    #[test]
    fn a_group_tells_who_made_it() {
        let owner_of_7 = Owner {
            pid: 7,
            started: 123,
            namespace: 4_026_531_836,
        };
        assert_eq!(owner("leasehold-7-123-4026531836-0"), Some(owner_of_7));
        for other in [
            "leasehold-7-123",
            "leasehold-7-x-1-0",
            "leasehold-web.service",
        ] {
            assert_eq!(owner(other), None, "{other}");
        }
    }

    #[test]
    fn a_group_outside_the_mount_is_not_found() {
        let inner = "30 23 0:26 /pod /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(own_folder("0::/other\n", inner), None);
        assert_eq!(
            own_folder("0::/pod/a\n", inner),
            Some(PathBuf::from("/sys/fs/cgroup/a"))
        );
        assert_eq!(own_folder("4:cpu:/x\n", inner), None);
    }
}
