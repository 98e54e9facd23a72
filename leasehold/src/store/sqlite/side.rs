//! The side file: who has the turn (A8), and how far the database had come when it last answered (A9).
//!
//! It is written before every reply and read at the start of every turn. A database that is behind it, or beside another
//! one than it knows, was put back from a copy: tokens may have been issued that it has forgotten.
//!
//! A write reaches the page cache before the reply, and so outlives every process; it reaches the disk within a second.
//! A power loss can thus leave it behind the database, which proves nothing, but never before it.

use std::{
    fs::File,
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
};

use leasehold_core::Token;
use rustix::fs::AtFlags;

use super::{place::Identity, process::Process};

const TITLE: &str = "leasehold side file 1: do not edit, copy or delete it";
/// All of it is written in one call, padded to this.
const SIZE: usize = 256;

/// What the side file says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Side {
    /// The random id of the database that it stands beside.
    pub(super) store: u128,
    /// How many commits of it were answered.
    pub(super) commits: u64,
    /// The largest token it ever stored.
    pub(super) newest: Option<Token>,
    /// How many turns there were; a turn that stands still is stuck.
    pub(super) turns: u64,
    /// Who has the turn, or had the last one and died.
    pub(super) owner: Option<Process>,
}

/// The open side file.
#[derive(Debug)]
pub(super) struct SideFile {
    file: File,
    identity: Identity,
}

impl SideFile {
    pub(super) fn new(file: File) -> io::Result<Self> {
        let about = file.metadata()?;
        let identity = Identity {
            device: about.dev(),
            inode: about.ino(),
        };
        Ok(Self { file, identity })
    }

    /// A handle of its own on the same open file, and so on the same lock.
    pub(super) fn handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    pub(super) fn inode(&self) -> u64 {
        self.identity.inode
    }

    /// Who has the turn: the kernel knows best; what the file says is for those whom it does not show. `None`: neither
    /// tells, or nobody has it.
    pub(super) fn owner(&self) -> Option<Process> {
        let said = || self.read().ok().flatten().and_then(|side| side.owner);
        Process::that_locked(self.identity).or_else(said)
    }

    /// Whether `path` still leads to this file.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        Identity::of(path, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|there| there == Some(self.identity))
    }

    /// What it says; `None` if it is new, or says nothing that can be understood.
    pub(super) fn read(&self) -> io::Result<Option<Side>> {
        let mut bytes = [0; SIZE];
        match self.file.read_exact_at(&mut bytes, 0) {
            Ok(()) => Ok(std::str::from_utf8(&bytes).ok().and_then(Side::parse)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn write(&self, side: &Side) -> io::Result<()> {
        let mut text = side.text().into_bytes();
        text.resize(SIZE - 1, b' ');
        text.push(b'\n');
        self.file.write_all_at(&text, 0)
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

impl Side {
    fn text(&self) -> String {
        let newest = self.newest.map_or(0, Token::get);
        let Process {
            pid,
            start,
            namespace,
        } = self.owner.unwrap_or_default();
        format!(
            "{TITLE}\nstore {:032x}\ncommits {} newest {newest}\nturns {} owner {pid} {start} {namespace}\n",
            self.store, self.commits, self.turns
        )
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next()? != TITLE {
            return None;
        }
        let mut words = lines.flat_map(str::split_whitespace);
        let mut after = |name: &str| (words.next()? == name).then(|| words.next()).flatten();
        let store = u128::from_str_radix(after("store")?, 16).ok()?;
        let commits = after("commits")?.parse().ok()?;
        let newest = after("newest")?.parse().ok()?;
        let turns = after("turns")?.parse().ok()?;
        let pid = after("owner")?.parse().ok()?;
        let mut number = || words.next()?.parse().ok();
        let process = Process {
            pid,
            start: number()?,
            namespace: number()?,
        };
        let owner = (pid != 0).then_some(process);
        Some(Self {
            store,
            commits,
            newest: Token::new(newest).ok(),
            turns,
            owner,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let file = SideFile::new(tempfile::tempfile().unwrap()).unwrap();
        assert_eq!(file.read().unwrap(), None, "it is new");
        let largest = Side {
            store: u128::MAX,
            commits: u64::MAX,
            newest: Some(Token::MAX),
            turns: u64::MAX,
            owner: Some(Process {
                pid: i32::MAX as u32,
                start: u64::MAX,
                namespace: u64::MAX,
            }),
        };
        for side in [
            Side {
                store: 1,
                ..Side::default()
            },
            largest,
        ] {
            file.write(&side).unwrap();
            assert_eq!(file.read().unwrap(), Some(side));
            assert_eq!(file.file.metadata().unwrap().len(), SIZE as u64);
        }
        file.file.write_all_at(b"x", 0).unwrap();
        assert_eq!(file.read().unwrap(), None, "it was edited");
    }
}
