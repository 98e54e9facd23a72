//! A table as bytes and back. The first byte is the version of the format; rows are sorted, so that equal tables have
//! equal snapshots. Nothing is computed anew: what was promised stays promised to the nanosecond (FB-53).

use alloc::vec::Vec;
use core::{fmt, hash::Hash};

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use crate::{Entry, Fence, Key, LeaseName, Pair, Record, Resource, Table, Work, table::Marks};

/// The version of the format that this code writes, and the only one it reads.
const VERSION: u8 = 1;

#[derive(Serialize)]
struct Written<'a> {
    marks: Marks,
    leases: Vec<(&'a LeaseName, &'a Record)>,
    pairs: Vec<(&'a Key, &'a Pair)>,
    fences: Vec<(&'a Resource, &'a Fence)>,
    entries: Vec<(&'a Work, &'a Entry)>,
}

#[derive(Deserialize)]
struct Read {
    marks: Marks,
    leases: Vec<(LeaseName, Record)>,
    pairs: Vec<(Key, Pair)>,
    fences: Vec<(Resource, Fence)>,
    entries: Vec<(Work, Entry)>,
}

/// Why bytes are no snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadSnapshot {
    /// Written by another version of the format; by a newer program, most likely.
    Version(u8),
    /// Not what a table writes: cut short, changed, or something else.
    Corrupt,
}

impl Table {
    /// The table as bytes, the same for equal tables.
    pub fn snapshot(&self) -> Vec<u8> {
        let written = Written {
            marks: self.marks,
            leases: sorted(&self.leases),
            pairs: sorted(&self.pairs),
            fences: sorted(&self.fences),
            entries: sorted(&self.entries),
        };
        postcard::to_extend(&written, Vec::from([VERSION]))
            .expect("memory takes every byte, and no row has a length that is not known")
    }

    /// The table that wrote these bytes. Any other bytes are an error.
    pub fn restore(bytes: &[u8]) -> Result<Self, BadSnapshot> {
        let rest = match bytes.split_first() {
            Some((&VERSION, rest)) => rest,
            Some((&version, _)) => return Err(BadSnapshot::Version(version)),
            None => return Err(BadSnapshot::Corrupt),
        };
        let (read, rest) =
            postcard::take_from_bytes::<Read>(rest).map_err(|_| BadSnapshot::Corrupt)?;
        let whole = rest.is_empty()
            && read
                .leases
                .iter()
                .all(|(_, record)| record.tenure.is_none() || record.token.is_some());
        if !whole {
            return Err(BadSnapshot::Corrupt);
        }
        Ok(Table {
            marks: read.marks,
            leases: mapped(read.leases)?,
            pairs: mapped(read.pairs)?,
            fences: mapped(read.fences)?,
            entries: mapped(read.entries)?,
        })
    }
}

fn sorted<K: Ord, V>(rows: &HashMap<K, V>) -> Vec<(&K, &V)> {
    let mut rows: Vec<_> = rows.iter().collect();
    rows.sort_unstable_by_key(|(key, _)| *key);
    rows
}

/// Only rows in strict order are what a table writes.
fn mapped<K: Ord + Hash, V>(rows: Vec<(K, V)>) -> Result<HashMap<K, V>, BadSnapshot> {
    if rows.is_sorted_by(|(one, _), (next, _)| one < next) {
        Ok(rows.into_iter().collect())
    } else {
        Err(BadSnapshot::Corrupt)
    }
}

impl fmt::Display for BadSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadSnapshot::Version(version) => write!(
                f,
                "the snapshot has format {version}, this program reads format {VERSION}: use the program that wrote it, or a newer one"
            ),
            BadSnapshot::Corrupt => {
                f.write_str("the snapshot is damaged or is none: take another copy")
            }
        }
    }
}

impl core::error::Error for BadSnapshot {}
