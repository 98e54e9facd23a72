//! Key-value pairs, plain or fenced by a lease of the same store. The check and the write are one step (F2, F7).
//!
//! The first fenced write binds a key to a lease; from then on nothing else writes it, so a client that forgets its
//! token cannot undo the protection. A fenced delete unbinds.

use alloc::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Invalid, Key, LeaseName, Refusal, Token};

/// The bytes of a pair: at most 64 KiB, since a lease store is no database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "alloc::vec::Vec<u8>", into = "alloc::vec::Vec<u8>")]
pub struct Value(Arc<[u8]>);

impl Value {
    /// The largest value, in bytes.
    pub const MAX_LEN: usize = 64 * 1024;

    /// Checks the length.
    pub fn new(bytes: &[u8]) -> Result<Self, Invalid> {
        if bytes.len() > Self::MAX_LEN {
            return Err(Invalid::new(
                "value",
                bytes.len(),
                "a value has at most 65536 bytes",
            ));
        }
        Ok(Self(bytes.into()))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl TryFrom<alloc::vec::Vec<u8>> for Value {
    type Error = Invalid;

    fn try_from(bytes: alloc::vec::Vec<u8>) -> Result<Self, Invalid> {
        Self::new(&bytes)
    }
}

impl From<Value> for alloc::vec::Vec<u8> {
    fn from(value: Value) -> Self {
        value.0.to_vec()
    }
}

/// A stored pair without its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// What was written.
    pub value: Value,
    /// Under which lease and token, if fenced.
    pub fence: Option<Proof>,
}

/// What a fenced write shows: the lease it runs under and the token it has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// The lease.
    pub lease: LeaseName,
    /// Its token.
    pub token: Token,
}

/// Whether a write to `key` may pass, given the pair that is there. `issued` compares the shown token with the lease.
pub(crate) fn admit(
    key: &Key,
    existing: Option<&Pair>,
    shown: Option<&Proof>,
    issued: Result<(), Refusal>,
) -> Result<(), Refusal> {
    let bound = existing
        .and_then(|pair| pair.fence.as_ref())
        .map(|fence| &fence.lease);
    match (bound, shown) {
        (Some(lease), shown) if shown.is_none_or(|shown| shown.lease != *lease) => {
            Err(Refusal::Fenced {
                key: key.clone(),
                by: lease.clone(),
            })
        }
        _ => issued,
    }
}
