//! Pairs of the lease store itself, fenced. Check and write are one step in the store, and the lease is its own fence:
//! a stale write is refused from the moment of the takeover on, with nothing to raise (F7).

use leasehold_core::{Key, Op, Outcome, Value};

use super::{Bearer, FenceError, settle};
use crate::{Store, StoreError};

/// Writes a pair under the lease. The first such write binds the key to the lease: a write without a token, or with one
/// of another lease, is refused from then on.
///
/// [`FenceError::Store`] with [`StoreError::Unknown`]: it may have been written. Write it again; a pair is the same
/// after two writes.
pub async fn put(
    store: &dyn Store,
    key: &Key,
    value: Value,
    bearer: &impl Bearer,
) -> Result<(), FenceError> {
    let op = Op::Put {
        key: key.clone(),
        value,
        proof: Some(bearer.proof()),
    };
    done(bearer, store.apply(op).await?)
}

/// Deletes a pair under the lease, and frees the key from it.
pub async fn delete(store: &dyn Store, key: &Key, bearer: &impl Bearer) -> Result<(), FenceError> {
    let op = Op::Delete {
        key: key.clone(),
        proof: Some(bearer.proof()),
    };
    done(bearer, store.apply(op).await?)
}

fn done(bearer: &impl Bearer, outcome: Outcome) -> Result<(), FenceError> {
    let result = match outcome {
        Outcome::Done => Ok(()),
        Outcome::Refused(refusal) => Err(refusal),
        other => {
            let what = format!("the store answered a write with {other:?}");
            return Err(StoreError::Unknown { what }.into());
        }
    };
    settle(bearer, result)
}
