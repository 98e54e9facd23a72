//! 10 000 leases of ttl 15 s, renewed by ten processes, 1000 in a statement each: none may be lost.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, bail};
use leasehold::{
    Ttl,
    clock::{BootClock, Clock},
    core::{Answer, Outcome},
};

use super::{leases, server::Server};

const PROCESSES: u64 = 10;
const LEASES: u64 = 1000;

/// One of the ten processes; started by `postgres`.
#[derive(Debug, clap::Args)]
pub(crate) struct Process {
    url: String,
    number: u64,
    seconds: u64,
}

pub(super) fn run(server: &Server, seconds: u64) -> anyhow::Result<bool> {
    let program = std::env::current_exe()?;
    let mut children = Vec::new();
    for number in 0..PROCESSES {
        children.push(
            Command::new(&program)
                .args(["postgres-holder", &server.url()])
                .args([number.to_string(), seconds.to_string()])
                .stdout(Stdio::piped())
                .spawn()?,
        );
    }
    let (mut renewed, mut lost, mut failed, mut longest) = (0, 0, 0, 0);
    for child in children {
        let output = child.wait_with_output()?;
        let text = String::from_utf8(output.stdout)?;
        let numbers: Vec<u64> = text
            .split_whitespace()
            .map(str::parse)
            .collect::<Result<_, _>>()
            .context("a process failed")?;
        let [a, b, c, d] = numbers[..] else {
            bail!("a process said {text:?}");
        };
        (renewed, lost, failed) = (renewed + a, lost + b, failed + c);
        longest = longest.max(d);
    }
    println!(
        "{lost:>9}    leases lost of {}, held by {PROCESSES} processes for {seconds} s with ttl 15 s, bar 0; \
         {renewed} renewals, {failed} to be asked again, the slowest statement {longest} ms",
        PROCESSES * LEASES
    );
    Ok(lost == 0 && renewed > 0)
}

impl Process {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        tokio::runtime::Runtime::new()?.block_on(self.hold())
    }

    async fn hold(&self) -> anyhow::Result<()> {
        let clock = BootClock::new();
        let store = leasehold::connect(&self.url).await?;
        let prefix = format!("many {}", self.number);
        // Longer than ten processes take to begin; from the first renewal after it on the ttl is 15 s.
        let tokens =
            leases::acquire_all(&store, &prefix, LEASES, Ttl::from_millis(45_000)?).await?;
        let end = clock.now().plus(Duration::from_secs(self.seconds));
        let (mut done, mut lost, mut failed, mut longest) = (0_u64, 0_u64, 0_u64, Duration::ZERO);
        let mut nth = vec![1; tokens.len()];
        while clock.now() < end {
            let began = clock.now();
            let ops = tokens.iter().enumerate();
            let ops = ops.map(|(index, token)| {
                leases::renewal(&prefix, index as u64, *token, nth[index], Ttl::DEFAULT)
            });
            let outcomes = store.apply_all(ops.collect::<anyhow::Result<_>>()?).await;
            longest = longest.max(clock.now().since(began));
            for (nth, outcome) in nth.iter_mut().zip(outcomes) {
                match outcome {
                    Ok(Outcome::Lease(Answer::Renewed { .. })) => {
                        done += 1;
                        *nth += 1;
                    }
                    Ok(_) => lost += 1,
                    // The same renewal once more (A3).
                    Err(_) => failed += 1,
                }
            }
            let next = began.plus(Duration::from_secs(5));
            tokio::time::sleep(next.since(clock.now())).await;
        }
        println!("{done} {lost} {failed} {}", longest.as_millis());
        Ok(())
    }
}
