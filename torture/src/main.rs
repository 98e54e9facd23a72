//! `torture`: plays seeds of the simulation, and judges histories.

use std::{
    fs::{self, File},
    io::{self, BufReader, IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    str::FromStr,
};

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use leasehold_torture::{
    history::{History, LEGEND, View, draw},
    sim::{self, Summary},
};

/// Tests Leasehold with faults: one history, one checker.
#[derive(Parser)]
#[command(name = "torture", version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Play seeds in virtual time: one prints its history, many are judged
    Sim {
        /// Play this seed and print its history; the verdict goes to the standard error
        #[arg(long, required_unless_present = "seeds", conflicts_with = "seeds")]
        seed: Option<u64>,
        /// Play and judge the seeds from A up to, not with, B
        #[arg(long, value_name = "A..B")]
        seeds: Option<Seeds>,
        /// How many runs at a time
        #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
        jobs: u8,
        /// Print the time line instead of the history
        #[arg(long, conflicts_with = "seeds")]
        draw: bool,
    },
    /// Judge the history in a file
    Judge {
        /// As `torture sim --seed` prints it
        file: PathBuf,
        /// Print the time line too
        #[arg(long)]
        draw: bool,
    },
}

#[derive(Clone)]
struct Seeds(u64, u64);

impl FromStr for Seeds {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts = text.split_once("..").context("seeds are given as A..B")?;
        let (from, to) = (parts.0.parse()?, parts.1.parse()?);
        ensure!(from < to, "A..B needs an A below B, such as 0..1000");
        Ok(Self(from, to))
    }
}

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Sim {
            seed: Some(seed),
            draw,
            ..
        } => one(seed, draw),
        Command::Sim {
            seeds: Some(seeds),
            jobs,
            ..
        } => many(&seeds, jobs.into()),
        Command::Sim { .. } => Ok(false),
        Command::Judge { file, draw } => judge(&file, draw),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) if is_broken_pipe(&e) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("torture: {e:#}");
            ExitCode::from(2)
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<io::Error>();
    io.is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

fn one(seed: u64, drawn: bool) -> Result<bool> {
    let history = sim::run(seed);
    match drawn {
        true => write!(io::stdout().lock(), "{}", picture(&history))?,
        false => history.write(io::stdout().lock())?,
    }
    tell(&history)
}

fn judge(file: &Path, drawn: bool) -> Result<bool> {
    let name = file.display();
    let input = File::open(file).with_context(|| format!("cannot read {name}"))?;
    let history = History::read(BufReader::new(input)).with_context(|| format!("in {name}"))?;
    if drawn {
        write!(io::stdout().lock(), "{}", picture(&history))?;
    }
    tell(&history)
}

fn picture(history: &History) -> String {
    format!("{LEGEND}\n{}", draw(history, &View::all(history)))
}

fn tell(history: &History) -> Result<bool> {
    let verdict = sim::judge(history);
    match verdict.is_ok() {
        true => eprintln!("{verdict}"),
        false => eprintln!("{}", verdict.explain(history)),
    }
    Ok(verdict.is_ok())
}

fn many(seeds: &Seeds, jobs: usize) -> Result<bool> {
    let shown = io::stderr().is_terminal();
    let total = seeds.1 - seeds.0;
    let summary = sim::batch(seeds.0..seeds.1, jobs, &|done, failed| {
        if shown && done.is_multiple_of(50) {
            eprint!("\r{done} of {total} seeds, {failed} failed");
        }
    });
    if shown {
        eprintln!();
    }
    let kept = keep(&summary)?;
    print_summary(&summary, &kept)?;
    let is_whole = summary.runs >= 500;
    let seen = !is_whole || (summary.missing().is_empty() && summary.violated > 0);
    Ok(summary.failed.is_empty() && seen)
}

/// Writes the history and the drawing of the first failures into the folder for temporary files.
fn keep(summary: &Summary) -> Result<Vec<PathBuf>> {
    let folder = std::env::temp_dir().join("leasehold-torture");
    let mut kept = Vec::new();
    let whole = summary
        .failed
        .iter()
        .filter(|(_, broken)| !broken.contains(sim::PANIC));
    for (seed, _) in whole.take(3) {
        fs::create_dir_all(&folder)?;
        let history = sim::run(*seed);
        let path = folder.join(format!("seed-{seed}.history"));
        history.write(File::create(&path)?)?;
        let told = sim::judge(&history).explain(&history);
        fs::write(path.with_extension("txt"), told)?;
        kept.push(path);
    }
    Ok(kept)
}

fn print_summary(summary: &Summary, kept: &[PathBuf]) -> Result<()> {
    let mut out = io::stdout().lock();
    let c = &summary.counts;
    writeln!(
        out,
        "{} seeds, {} failed; {} with the unfenced control violated; {} calls, {} grants, {} fenced effects, {} refusals, \
         {} tenures, {} faults",
        summary.runs,
        summary.failed.len(),
        summary.violated,
        c.ops,
        c.grants,
        c.fenced,
        c.refused,
        c.tenures,
        c.faults
    )?;
    let missing = summary.missing();
    if !missing.is_empty() {
        writeln!(out, "never happened: {}", missing.join(", "))?;
    }
    for (seed, broken) in summary.failed.iter().take(200) {
        let names: Vec<_> = broken.iter().copied().collect();
        let names = names.join(" ");
        writeln!(
            out,
            "seed {seed} broke {names}: cargo run -p leasehold-torture -- sim --seed {seed}"
        )?;
    }
    for path in kept {
        writeln!(
            out,
            "its history: {} (and .txt with the time line)",
            path.display()
        )?;
    }
    Ok(())
}
