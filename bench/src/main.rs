//! Measures, one sub-command for each thing that is measured. Each prints its bar (the number it has to reach) beside
//! what it measured, and fails if the bar is missed.

mod cpu;
mod decide;
mod keeper;
mod postgres;
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
    /// The PostgreSQL store beside bare updates of one row, its fences beside unfenced writes
    Postgres(postgres::Args),
    #[command(hide = true)]
    PostgresHolder(postgres::Process),
    /// The SQLite store beside a bare loop of commits on the same disk
    Sqlite(sqlite::Args),
}

fn main() -> anyhow::Result<()> {
    match Bench::parse() {
        Bench::Decide(args) => decide::run(&args),
        Bench::Keeper(args) => keeper::run(&args),
        Bench::Postgres(args) => postgres::run(&args),
        Bench::PostgresHolder(process) => process.run(),
        Bench::Sqlite(args) => sqlite::run(&args),
    }
}
