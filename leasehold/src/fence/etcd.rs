//! The fence for your own keys in the etcd that keeps the leases (F24): a comparison in your own transaction.
//!
//! ```no_run
//! # async fn work(store: &leasehold::store::etcd::EtcdStore, client: &mut etcd_client::Client, guard: &leasehold::Guard)
//! #     -> Result<(), Box<dyn std::error::Error>> {
//! use etcd_client::{Txn, TxnOp};
//! use leasehold::fence::etcd;
//! let mine = etcd::check(store, guard).await?;
//! let txn = Txn::new().when(mine).and_then([TxnOp::put("report", "mine", None)]);
//! let answer = client.txn(txn).await?;
//! etcd::written(store, guard, answer.succeeded()).await?;
//! # Ok(()) }
//! ```
//!
//! Use one [`check`] for many transactions of a tenure: it asks once, the comparison does the rest.

use etcd_client::Compare;
use leasehold_core::Refusal;

use super::{Bearer, FenceError, settle};
use crate::store::etcd::EtcdStore;

/// What a transaction of the bearer compares, in its `when`: true for who holds, false for everybody before and after,
/// and for who still waits (A11). `Refused` if the bearer holds no more, which ends its tenure (F9).
pub async fn check(store: &EtcdStore, bearer: &impl Bearer) -> Result<Vec<Compare>, FenceError> {
    let proof = store.proof(bearer.proof()).await?;
    settle(bearer, proof)
}

/// What came of such a transaction. If it did not succeed, and the lease is why, the bearer's tenure is over (F9). `Ok`
/// and `false`: the bearer holds, so a comparison of your own was not true.
pub async fn written(
    store: &EtcdStore,
    bearer: &impl Bearer,
    succeeded: bool,
) -> Result<bool, FenceError> {
    if !succeeded {
        let proof: Result<_, Refusal> = store.proof(bearer.proof()).await?;
        settle(bearer, proof)?;
    }
    Ok(succeeded)
}
