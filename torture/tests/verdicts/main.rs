//! The checker on histories made by hand: broken ones for every promise, and fine ones close by.

mod leases;
mod noise;
mod resources;
mod scenes;
mod search;
mod times;
