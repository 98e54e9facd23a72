//! The deterministic simulation: holders that drive the real machine against the real rules, in virtual time, with every
//! fault that a seed can draw, judged by the checker (10.5).
//!
//! The one rule: a seed is a bug report. The same seed makes the same history, to the byte.

mod acts;
mod batch;
mod clocks;
mod effects;
mod faults;
mod holder;
mod job;
mod network;
mod resource;
mod script;
mod setup;
mod store;
mod verdict;
mod world;

pub use batch::{PANIC, Summary, batch};
pub use faults::REQUIRED;
pub use verdict::{judge, rules};

use crate::history::History;

/// Plays one seed to its end.
pub fn run(seed: u64) -> History {
    world::World::new(seed).play()
}
