//! Leases with fencing tokens.
//!
//! A lease is a lock that expires. A [`Store`] decides who holds it; the holder renews it in time or stops by itself;
//! every grant brings a larger [`Token`], and a fenced receiver refuses smaller ones.

pub mod clock;
pub mod store;

pub use leasehold_core as core;
pub use leasehold_core::{
    AttemptId, BootTime, Fingerprint, Holder, Info, Invalid, Key, LeaseName, LockDelay, Refusal,
    RenewId, RequestId, Resource, Session, Token, Ttl, Value, WallTime, WorkKey,
};
pub use store::{SharedStore, Store, StoreError, connect};
