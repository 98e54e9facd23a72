//! Where a store's files are, and whether they may be there (SQ3): one regular file on a local disk, under one name.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::fs::{Access, AtFlags, CWD, StatxFlags, makedev};

use crate::store::StoreError;

/// Nobody but the owner reads or writes what a store makes.
const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;

/// Closing a file drops every POSIX lock that SQLite has on it in this process (SQ3). So the one place that opens and
/// closes a database file without SQLite does it only while it makes the file, and nobody else opens one meanwhile.
static OPENING: Mutex<()> = Mutex::new(());

/// Hold it while SQLite opens a database.
pub(super) fn opening() -> MutexGuard<'static, ()> {
    OPENING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The database file by its one true name, and its neighbours.
#[derive(Clone, Debug)]
pub(super) struct Place {
    path: PathBuf,
}

/// What a file is, whatever its name: device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) device: u64,
    pub(super) inode: u64,
}

impl Identity {
    /// What a path leads to. It asks for no times: a kernel that was asked for a file's times notes the next write to it
    /// to the nanosecond, and then each sync has a time to write as well, and takes half as long again.
    pub(super) fn of(path: &Path, flags: AtFlags) -> io::Result<Option<Self>> {
        match rustix::fs::statx(CWD, path, flags, StatxFlags::INO) {
            Ok(about) => Ok(Some(Self {
                device: makedev(about.stx_dev_major, about.stx_dev_minor),
                inode: about.stx_ino,
            })),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Place {
    /// Finds the file and checks all that can be checked without opening it. With `create`, makes it and its folder.
    pub(super) fn find(path: &Path, create: bool) -> Result<Self, StoreError> {
        let place = Self {
            path: true_name(path, create)?,
        };
        place.check_file_system()?;
        if create {
            place
                .create()
                .map_err(|error| place.refuse_io("it cannot be made", error))?;
        }
        place.check_file()?;
        Ok(place)
    }

    pub(super) fn database(&self) -> &Path {
        &self.path
    }

    /// The side file: whose turn it is, and what the database must not fall behind (A8, A9).
    pub(super) fn side(&self) -> PathBuf {
        self.beside(".lock")
    }

    /// The wake file: touched when a lease becomes free.
    pub(super) fn wake(&self) -> PathBuf {
        self.beside(".wake")
    }

    pub(super) fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    /// What the name leads to now. `None`: to nothing.
    pub(super) fn identity(&self) -> io::Result<Option<Identity>> {
        Identity::of(&self.path, AtFlags::empty())
    }

    /// An error about this file that only another set-up can mend.
    pub(super) fn refuse(&self, why: impl std::fmt::Display) -> StoreError {
        refuse(&self.path, why)
    }

    pub(super) fn refuse_io(&self, what: &str, error: io::Error) -> StoreError {
        refuse_io(&self.path, what, error)
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(ending);
        name.into()
    }

    /// Opens the side file or the wake file, made if it is missing. It belongs to whom the database belongs, and may be
    /// written by the same; root must not lock others out. Tells whether it was made.
    pub(super) fn open_neighbour(&self, path: &Path) -> io::Result<(File, bool)> {
        let mut options = fs::OpenOptions::new();
        options
            .read(true)
            .write(true)
            .mode(FILE_MODE)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
        match options.clone().create_new(true).open(path) {
            Ok(file) => {
                let database = fs::metadata(&self.path)?;
                file.set_permissions(fs::Permissions::from_mode(database.mode() & 0o666))?;
                if file.metadata()?.uid() != database.uid() {
                    std::os::unix::fs::fchown(&file, Some(database.uid()), Some(database.gid()))?;
                }
                Ok((file, true))
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Ok((options.open(path)?, false))
            }
            Err(error) => Err(error),
        }
    }

    fn create(&self) -> io::Result<()> {
        let _one = opening();
        let made = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(FILE_MODE)
            .open(&self.path);
        match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made.map(drop),
        }
    }

    /// Whether not a block is left on its disk: SQLite may say only that reading or writing failed.
    pub(super) fn is_full(&self) -> bool {
        rustix::fs::statvfs(self.folder()).is_ok_and(|disk| disk.f_bavail == 0)
    }

    /// The magic number of its file system, and what that is if several machines may share it.
    pub(super) fn file_system(&self) -> io::Result<(u64, Option<&'static str>)> {
        let magic = rustix::fs::statfs(self.folder())?.f_type as u64;
        Ok((magic, shared_file_system(magic)))
    }

    fn check_file_system(&self) -> Result<(), StoreError> {
        match self.file_system() {
            Ok((_, None)) => Ok(()),
            Ok((_, Some(kind))) => Err(self.refuse(format!(
                "it is on {kind}, where several machines may see it and locks are not to be trusted; \
                 put it on a local disk"
            ))),
            Err(error) => Err(self.refuse_io("its file system cannot be asked", error)),
        }
    }

    fn check_file(&self) -> Result<(), StoreError> {
        let about = fs::symlink_metadata(&self.path)
            .map_err(|error| self.refuse_io("it cannot be looked at", error))?;
        if about.is_dir() {
            return Err(self.refuse("it is a folder; name a file in it"));
        }
        if !about.is_file() {
            return Err(self.refuse("it is no regular file"));
        }
        if about.nlink() > 1 {
            return Err(self.refuse(
                "it has several names (hard links), and each would get a journal of its own; \
                 remove all names but one",
            ));
        }
        rustix::fs::accessat(
            CWD,
            &self.path,
            Access::READ_OK | Access::WRITE_OK,
            AtFlags::EACCESS,
        )
        .map_err(|error| self.refuse_io("it must be readable and writable", error.into()))
    }
}

/// The name without symbolic links, so that all who share a file agree on the names of its neighbours.
fn true_name(path: &Path, create: bool) -> Result<PathBuf, StoreError> {
    let fail = |error| refuse_io(path, "its folder cannot be used", error);
    let Some(name) = path.file_name() else {
        return Err(refuse(path, "it names no file"));
    };
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if create {
        let mut make = fs::DirBuilder::new();
        make.recursive(true)
            .mode(FOLDER_MODE)
            .create(folder)
            .map_err(fail)?;
    }
    match fs::symlink_metadata(path) {
        Ok(about) if about.is_symlink() => fs::canonicalize(path)
            .map_err(|error| refuse_io(path, "it is a symbolic link that leads nowhere", error)),
        Ok(_) => fs::canonicalize(path).map_err(fail),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Ok(fs::canonicalize(folder).map_err(fail)?.join(name))
        }
        Err(error) => Err(fail(error)),
    }
}

/// What kind of file system has this magic number, if more than one kernel may write to it. FUSE is one of them: it may
/// be anything, and sshfs, object stores and the shared folders of virtual machines are what it mostly is.
fn shared_file_system(magic: u64) -> Option<&'static str> {
    Some(match magic & 0xffff_ffff {
        0x6969 => "NFS",
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => "SMB",
        0x0102_1997 => "9p",
        0x6573_5546 => "FUSE",
        0x5346_414f | 0x6b41_4653 => "AFS",
        0x00c3_6400 => "Ceph",
        0x7375_7245 => "Coda",
        0x0116_1970 => "GFS2",
        0x7461_636f => "OCFS2",
        0x0bd0_0bd0 => "Lustre",
        0x4750_4653 => "GPFS",
        0x1983_0326 => "BeeGFS",
        0x786f_4256 => "a VirtualBox shared folder",
        0xbacb_acbc => "a VMware shared folder",
        _ => return None,
    })
}

fn refuse(path: &Path, why: impl std::fmt::Display) -> StoreError {
    let name = path.to_string_lossy();
    let name: String = name.chars().flat_map(char::escape_debug).collect();
    StoreError::Invalid {
        what: format!("store file \"{name}\" cannot be used: {why}"),
    }
}

fn refuse_io(path: &Path, what: &str, error: io::Error) -> StoreError {
    refuse(path, format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SQ3, A22.
    #[test]
    fn file_systems_that_several_machines_share_are_refused() {
        for (magic, name) in [
            (0x6969, "NFS"),
            (0xff53_4d42, "SMB"),
            (0xffff_ffff_fe53_4d42, "SMB"),
            (0x0102_1997, "9p"),
            (0x6573_5546, "FUSE"),
        ] {
            assert_eq!(shared_file_system(magic), Some(name));
        }
        let local = [
            ("ext4", 0xef53),
            ("xfs", 0x5846_5342),
            ("btrfs", 0x9123_683e),
            ("tmpfs", 0x0102_1994),
            ("overlay", 0x794c_7630),
            ("zfs", 0x2fc1_2fc1),
        ];
        for (name, magic) in local {
            assert_eq!(shared_file_system(magic), None, "{name}");
        }
    }

    #[test]
    fn what_is_no_file_of_its_own_is_refused_and_named() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("folder")).unwrap();
        std::os::unix::fs::symlink(at("nothing"), at("dangling")).unwrap();
        fs::write(at("one"), "").unwrap();
        fs::hard_link(at("one"), at("two")).unwrap();
        rustix::fs::mkfifoat(CWD, at("pipe"), rustix::fs::Mode::RWXU).unwrap();
        for (name, why) in [
            ("folder", "it is a folder"),
            ("dangling", "leads nowhere"),
            ("two", "several names"),
            ("pipe", "no regular file"),
            ("one/below", "its folder cannot be used"),
            ("a\0b", "its folder cannot be used"),
        ] {
            let error = Place::find(&at(name), true).expect_err(name).to_string();
            assert!(
                error.contains(why) && error.contains(&name.replace('\0', "\\0")),
                "{error}"
            );
        }
        assert!(!at("nothing").exists(), "nothing was made");
    }

    #[test]
    fn a_link_and_its_target_have_the_same_neighbours() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("deep/er/leases.db");
        let place = Place::find(&target, true).unwrap();
        let link = folder.path().join("link.db");
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert_eq!(Place::find(&link, true).unwrap().side(), place.side());
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&target), mode(place.folder())), (0o600, 0o700));
    }
}
