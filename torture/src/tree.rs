//! The files of this repository, for the checks that look at all of them. Nothing that was built is among them.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Every file below `root` but `target` and `.git`, in order.
pub fn files(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_name() == "target" || entry.file_name() == ".git" {
                continue;
            }
            match entry.file_type()?.is_dir() {
                true => folders.push(entry.path()),
                false => files.push(entry.path()),
            }
        }
    }
    files.sort();
    Ok(files)
}

/// The folder that this crate was built from.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("every crate is in a folder of the root")
}
