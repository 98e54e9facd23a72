//! Leases with fencing tokens.
//!
//! A lease is a lock that expires. A [`Store`] decides who holds it; the holder renews it in time or stops by itself;
//! every grant brings a larger [`Token`], and a fenced receiver refuses smaller ones.

pub mod alarm;
mod block;
pub mod clock;
mod dice;
mod engine;
mod error;
pub mod fence;
mod guard;
mod keeper;
mod pause;
mod request;
pub mod store;
pub mod testing;
mod view;
mod work;

pub use error::{NotAcquired, NotHeld, NotReleased};
pub use guard::Guard;
pub use keeper::{Keeper, Phase, Stopper};
pub use leasehold_core as core;
pub use leasehold_core::{
    AttemptId, BadTiming, Blocker, BootTime, Drift, Fingerprint, Holder, Info, Invalid, Key,
    LeaseName, LockDelay, Loss, Lost, Overrides, Proof, Refusal, RenewId, RequestId, Resource,
    Session, Term, TimeService, Timing, Token, Ttl, Value, Wait, WallTime, WorkKey,
};
pub use store::{SharedStore, Store, StoreError, connect};

/// The program in the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
