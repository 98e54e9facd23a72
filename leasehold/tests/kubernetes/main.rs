//! The Kubernetes store.
#![cfg(feature = "kubernetes")]
#![allow(unreachable_pub)]
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // Tests may.

mod ask;
mod contract;
mod double;
mod faults;
mod others;
