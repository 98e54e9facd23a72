//! The replicated store: alone and among three, in one process and in real ones, under every fault that it must survive.

#![allow(clippy::unwrap_used)] // Helpers of tests, which may.

mod alone;
mod child;
mod process;
mod rig;
mod three;
