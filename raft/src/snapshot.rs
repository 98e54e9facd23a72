//! A snapshot: the whole state as bytes, and the one file that keeps it (R9).
//!
//! A file is written beside the old one, made durable, and only then put in its place: there is always a whole one.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use leasehold::StoreError;
use leasehold_core::Event;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{
    codec::{self, Extent, Malformed},
    disk::damaged,
};

/// All that is in a snapshot.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Contents {
    pub(crate) extent: Extent,
    pub(crate) ever: BTreeSet<u64>,
    pub(crate) events_ever: u64,
    pub(crate) events: Vec<Event>,
    /// As [`leasehold_core::Table::snapshot`] writes it, with a version of its own.
    #[serde(with = "bytes")]
    pub(crate) table: Vec<u8>,
}

/// The bytes of a snapshot. Cheap to copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image(Arc<Vec<u8>>);

impl Image {
    pub(crate) fn new(contents: &Contents) -> Self {
        Self(Arc::new(codec::seal(contents)))
    }

    pub(crate) fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(Arc::new(bytes))
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn contents(&self) -> Result<Contents, Malformed> {
        codec::unseal(&self.0)
    }
}

impl Serialize for Image {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Image {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        bytes::deserialize(from).map(Self::from_bytes)
    }
}

/// Bytes at once, and not one by one.
mod bytes {
    use super::*;

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(bytes)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        struct Bytes;
        impl de::Visitor<'_> for Bytes {
            type Value = Vec<u8>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
                Ok(bytes.to_vec())
            }

            fn visit_byte_buf<E: de::Error>(self, bytes: Vec<u8>) -> Result<Vec<u8>, E> {
                Ok(bytes)
            }
        }
        from.deserialize_byte_buf(Bytes)
    }
}

/// Where a member keeps its snapshot.
#[derive(Clone, Debug)]
pub(crate) enum Shelf {
    /// The file `snapshot` in this folder.
    Folder(PathBuf),
    /// Nowhere; for the simulation.
    #[cfg(test)]
    Memory(Arc<std::sync::Mutex<Option<Image>>>),
}

impl Shelf {
    /// Replaces the snapshot; durable when it returns.
    pub(crate) fn store(&self, image: &Image) -> io::Result<()> {
        match self {
            Shelf::Folder(folder) => write_file(&path(folder), image),
            #[cfg(test)]
            Shelf::Memory(memory) => {
                *memory.lock().unwrap() = Some(image.clone());
                Ok(())
            }
        }
    }

    /// The snapshot, if there is one.
    pub(crate) fn load(&self) -> Result<Option<Image>, StoreError> {
        match self {
            Shelf::Folder(folder) => match fs::read(path(folder)) {
                Ok(bytes) => Ok(Some(Image::from_bytes(bytes))),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(self.damaged(&error)),
            },
            #[cfg(test)]
            Shelf::Memory(memory) => Ok(memory.lock().unwrap().clone()),
        }
    }

    /// What is there is not what was put there.
    pub(crate) fn damaged(&self, why: &dyn std::fmt::Display) -> StoreError {
        match self {
            Shelf::Folder(folder) => damaged(&path(folder), why),
            #[cfg(test)]
            Shelf::Memory(_) => damaged(Path::new("memory"), why),
        }
    }

    /// Off the engine's thread: leases go on while a large state is written.
    pub(crate) async fn aside<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        #[cfg(test)]
        if let Shelf::Memory(_) = self {
            return work(self);
        }
        let shelf = self.clone();
        let work = tokio::task::spawn_blocking(move || work(&shelf));
        work.await.map_err(io::Error::other)?
    }
}

/// The file in a member's folder.
pub(crate) fn path(folder: &Path) -> PathBuf {
    folder.join("snapshot")
}

/// Writes a snapshot to a file of any name, whole or not at all.
pub(crate) fn write_file(path: &Path, image: &Image) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let fresh = path.with_file_name(name);
    let mut file = File::create(&fresh)?;
    file.write_all(image.as_bytes())?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}
