//! The cluster in simulated time: the same seed plays the same story to the byte, and torture's checker judges it.
//!
//! `make simraft` plays many seeds; `SEEDS=7..8` with `SHOW=1` prints one story.

mod run;
mod runtime;
mod world;

pub(crate) use runtime::Runtime;

use std::ops::Range;

use leasehold_torture::{
    check::{Counts, Rules, Timing, judge},
    wgl,
};

use run::{Story, play};

/// Clocks run up to 2 % fast or slow, so two differ by up to 4 % and a little.
const RATE: u32 = 42_000;

fn rules() -> Rules {
    Rules {
        dense: true,
        timing: Some(Timing {
            clock_error: 0,
            rate_error: RATE,
        }),
        ..Rules::default()
    }
}

fn check(seed: u64, story: &Story) -> Counts {
    let verdict = judge(&story.history, &rules());
    if let Some(finding) = verdict.findings.first() {
        let evidence: Vec<_> = finding
            .evidence
            .iter()
            .map(|(_, line)| line.as_str())
            .collect();
        panic!(
            "seed {seed}: {} of {}: {}\n{}",
            finding.invariant,
            finding.about,
            finding.what,
            evidence.join("\n")
        );
    }
    for (lease, answer) in wgl::check(&story.history, true, 30_000) {
        if let wgl::Answer::NotLinearizable { culprit, .. } = answer {
            panic!(
                "seed {seed}: {lease}: no order of the calls explains {}",
                culprit.1
            );
        }
    }
    verdict.counts
}

fn bytes(story: &Story) -> Vec<u8> {
    let mut bytes = Vec::new();
    story.history.write(&mut bytes).unwrap();
    bytes
}

fn seeds() -> Range<u64> {
    match std::env::var("SEEDS") {
        Ok(text) => {
            let (from, until) = text.split_once("..").expect("SEEDS=FROM..UNTIL");
            from.parse().unwrap()..until.parse().unwrap()
        }
        Err(_) => 0..12,
    }
}

/// INV-1 to INV-7, INV-10, L11: partitions, crashes that forget what was not synced, slow disks, clocks that differ,
/// messages that are lost, doubled and late; and all of it happened.
#[test]
fn clusters_keep_every_promise_under_every_fault() {
    let (mut all, mut seen) = (Counts::default(), run::Faults::default());
    let seeds = seeds();
    let many = seeds.end - seeds.start >= 12;
    for seed in seeds {
        let story = play(seed);
        if std::env::var_os("SHOW").is_some() {
            println!("{}", String::from_utf8_lossy(&bytes(&story)));
        }
        let counts = check(seed, &story);
        all.ops += counts.ops;
        all.grants += counts.grants;
        all.unknown += counts.unknown;
        seen.add(&story.faults);
    }
    println!("{all:?} {seen:?}");
    if many {
        assert!(all.grants > 200 && all.unknown > 10, "{all:?}");
        assert!(seen.all_happened(), "a fault never happened: {seen:?}");
    }
}

#[test]
fn the_same_seed_plays_the_same_story() {
    for seed in [3, 8] {
        let (one, other) = (bytes(&play(seed)), bytes(&play(seed)));
        assert!(one == other, "seed {seed} played two stories");
        assert!(one.len() > 10_000);
    }
}
