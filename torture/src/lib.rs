//! One history, one checker: what any harness recorded of a run is judged against the promises of Leasehold.
//!
//! `history` is the format, `check` the invariants in O(n log n), `wgl` a slow and independent second opinion. None of
//! them knows the product's types: a history is text, and can be judged again years later.

pub mod check;
pub mod history;
pub mod mutants;
pub mod sim;
pub mod tree;
pub mod wgl;
