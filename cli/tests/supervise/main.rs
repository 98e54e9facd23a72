//! A supervised child and its whole tree are dead by the deadline and not before, whatever is done to the processes that
//! watch it (H3 to H8, INV-32, A14). Real processes, found by a mark in their environment.

mod codes;
mod deadline;
mod frozen;
mod inherits;
mod rig;
mod signals;
mod terminal;
