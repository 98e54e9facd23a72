//! Measures, one sub-command for each thing that is measured. Each prints its bar (the number it has to reach) beside
//! what it measured, and fails if the bar is missed.

mod cpu;
mod decide;
mod keeper;
mod sqlite;

use clap::Parser;

/// Measures Leasehold.
#[derive(Debug, Parser)]
#[command(name = "leasehold-bench", version)]
enum Bench {
    /// The rules alone: commands a second on one core, and the memory of a lease
    Decide(decide::Args),
    /// A keeper at rest: its calls to the store, and the part of a core it takes
    Keeper(keeper::Args),
    /// The SQLite store beside a bare loop of commits on the same disk
    Sqlite(sqlite::Args),
}

fn main() -> anyhow::Result<()> {
    match Bench::parse() {
        Bench::Decide(args) => decide::run(&args),
        Bench::Keeper(args) => keeper::run(&args),
        Bench::Sqlite(args) => sqlite::run(&args),
    }
}
