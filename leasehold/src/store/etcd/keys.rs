//! Where everything is. A lease has the layout of etcd's own `clientv3/concurrency` and of `etcdctl lock` (A11): whoever
//! wants NAME puts a key NAME/ID, bound to the etcd lease ID, and the oldest of these keys holds.

use leasehold_core::{LeaseName, RequestId, Session};

use super::fault::invalid;
use crate::StoreError;

/// Under this, which is no name of a lease, is what the store remembers.
const OURS: &str = ".leasehold/";

/// The keys of one lease.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: String,
    name: String,
}

impl Keys {
    pub(super) fn new(prefix: &str, name: &LeaseName) -> Result<Self, StoreError> {
        let name = name.as_str();
        if name == OURS.trim_end_matches('/') || name.starts_with(OURS) {
            return Err(invalid(format!(
                "lease name \"{name}\" is not allowed in etcd: what begins with {OURS} belongs to Leasehold"
            )));
        }
        Ok(Self {
            prefix: prefix.to_owned(),
            name: name.to_owned(),
        })
    }

    /// Everybody who holds or waits.
    pub(super) fn folder(&self) -> String {
        format!("{}{}/", self.prefix, self.name)
    }

    /// The first key behind [`Self::folder`].
    pub(super) fn end(&self) -> String {
        format!("{}{}0", self.prefix, self.name)
    }

    /// The place of one who holds or waits.
    pub(super) fn place(&self, id: i64) -> String {
        format!("{}{id:x}", self.folder())
    }

    /// What is remembered of the last tenure.
    pub(super) fn note(&self) -> String {
        format!("{}{}", notes(&self.prefix), self.name)
    }
}

/// Before the note of each lease.
pub(super) fn notes(prefix: &str) -> String {
    format!("{prefix}{OURS}lease/")
}

/// Which cluster this is, and what is added to its revisions.
pub(super) fn line(prefix: &str) -> String {
    format!("{prefix}{OURS}line")
}

/// There while nobody may have anything (ET10).
pub(super) fn quarantine(prefix: &str) -> String {
    format!("{prefix}{OURS}quarantine")
}

/// The etcd lease of one acquire: the same whenever and from wherever it comes again.
pub(super) fn id(session: Session, request_id: RequestId) -> i64 {
    let bits = session.bits().rotate_left(64) ^ request_id.bits();
    positive((bits >> 64) as u64 ^ mixed(bits as u64))
}

/// An id for an etcd lease: positive, never zero.
pub(super) fn positive(bits: u64) -> i64 {
    (bits >> 1).max(1).cast_signed()
}

/// Spreads bits, so that ids which differ in few bits do not meet (SplitMix64's finalizer).
fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
