//! The simulation itself: its runs repeat, a sample of seeds keeps every promise, every fault happened, and what is not
//! fenced was seen to break. `make sim` plays ten thousand.

use std::path::Path;

use leasehold_torture::{
    check::control,
    history::{History, LEGEND, View, draw},
    sim,
};

/// How many seeds `cargo test` plays.
const SAMPLE: u64 = 600;

/// A small run in which a frozen holder wakes up after its lease went to another.
const GOLDEN: u64 = 146;

fn bytes(history: &History) -> Vec<u8> {
    let mut out = Vec::new();
    history.write(&mut out).expect("a vector takes everything");
    out
}

#[test]
fn a_seed_makes_the_same_bytes_twice() {
    let mut all = Vec::new();
    for seed in [0, 1, 7, 42, 1_000_003, u64::MAX] {
        let once = bytes(&sim::run(seed));
        assert!(once == bytes(&sim::run(seed)), "seed {seed}");
        all.push(once);
    }
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 6, "different seeds make different runs");
}

/// INV-1 to INV-34, M2, M3; 10.3: faults that never happened were not survived, and a control that never broke controls
/// nothing.
#[test]
fn a_sample_of_seeds_keeps_every_promise() {
    let summary = sim::batch(0..SAMPLE, 2, &|_, _| {});
    assert_eq!(summary.runs, SAMPLE);
    let (seed, broken) = match summary.failed.first_key_value() {
        None => {
            assert_eq!(summary.missing(), Vec::<&str>::new());
            assert!(summary.violated > SAMPLE / 50, "{summary:?}");
            assert!(summary.counts.refused > 0, "{summary:?}");
            return;
        }
        Some(first) => first,
    };
    let history = sim::run(*seed);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path = folder.join(format!("seed-{seed}.history"));
    std::fs::write(&path, bytes(&history)).unwrap();
    panic!(
        "{} of {SAMPLE} seeds failed; seed {seed} broke {broken:?}\n{}\nits history: {}",
        summary.failed.len(),
        sim::judge(&history).explain(&history),
        path.display()
    );
}

/// Each once broke a promise, or did not end.
#[test]
fn seeds_that_once_failed_keep_every_promise() {
    for seed in [1029, 1836, 2107, 2865, 5752, 6401, 6609, 7531, 7818, 7923] {
        let verdict = sim::judge(&sim::run(seed));
        assert!(verdict.is_ok(), "seed {seed}: {verdict}");
    }
}

/// A history in a file is judged as it was when it was made.
#[test]
fn a_history_is_judged_the_same_from_its_file() {
    for seed in [2, 3] {
        let history = sim::run(seed);
        let read = History::read(&bytes(&history)[..]).unwrap();
        assert_eq!(read, history);
        assert_eq!(sim::judge(&read), sim::judge(&history));
    }
}

/// For reviewers: what a run looks like. `UPDATE=1 cargo test -p leasehold-torture --test sim` writes it anew.
#[test]
fn a_small_run_looks_like_this() {
    let history = sim::run(GOLDEN);
    assert!(!control(&history).is_empty(), "the unfenced list is broken");
    let drawn = format!(
        "{}\n\n{LEGEND}\n{}",
        history.made_by,
        draw(&history, &View::all(&history))
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sim-golden.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &drawn).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert!(drawn == expected, "it changed:\n{drawn}");
}
