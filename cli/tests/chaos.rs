//! Real jobs under one lease while their supervisors, guards and commands are killed and stopped at random. Every job and
//! what it started write their token into one file, which the kernel keeps in order: a token that comes after a larger
//! one was written by a job that should have been dead (INV-32).
//!
//! `make chaos` plays longer: `LEASEHOLD_CHAOS` is the time in seconds, `LEASEHOLD_CHAOS_SEED` where chance begins,
//! `LEASEHOLD_CHAOS_STORE` another store.
#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(clippy::disallowed_methods, reason = "tests measure")]

mod common;

use std::{
    env, fs,
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

use common::Place;
use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

const HOLDERS: usize = 4;
const TTL: &str = "3s";
/// Longer than the ttl, so that a stopped supervisor loses its lease about every second time.
const LONGEST_STOP: u64 = 6_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// Deaf to SIGTERM, with a child in a session of its own. `$0` is the number of rounds.
const JOB: &str = "trap '' TERM
    setsid sh -c 'while :; do echo $LEASEHOLD_TOKEN >> log; sleep 0.01; done' &
    i=0; while [ $i -lt $0 ]; do echo $LEASEHOLD_TOKEN >> log; sleep 0.01; i=$((i + 1)); done";

#[derive(Clone, Copy, Debug)]
enum Fault {
    KillSupervisor,
    KillGuard,
    KillCommand,
    StopSupervisor,
    StopGuard,
}

struct Chaos {
    place: Place,
    on_lost: &'static str,
    /// The longest command, in rounds of about 10 ms.
    longest: u32,
    chance: ChaCha8Rng,
    runs: Vec<Child>,
    faults: Vec<Fault>,
}

impl Chaos {
    fn new(on_lost: &'static str, longest: u32) -> Self {
        let seed = env::var("LEASEHOLD_CHAOS_SEED").map_or_else(
            |_| u64::from(std::process::id()),
            |seed| seed.parse().unwrap(),
        );
        println!("LEASEHOLD_CHAOS_SEED={seed}");
        Self {
            place: Place::new(),
            on_lost,
            longest,
            chance: ChaCha8Rng::seed_from_u64(seed),
            runs: Vec::new(),
            faults: Vec::new(),
        }
    }

    fn start(&mut self) -> Child {
        let rounds = self.chance.random_range(20..self.longest).to_string();
        let mut run = self.place.command();
        if let Ok(store) = env::var("LEASEHOLD_CHAOS_STORE") {
            run.env("LEASEHOLD_STORE", store);
        }
        run.args([
            "run",
            "chaos",
            "--ttl",
            TTL,
            "--on-lost",
            self.on_lost,
            "--",
            "sh",
            "-c",
            JOB,
            &rounds,
        ]);
        run.stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null());
        run.spawn().unwrap()
    }

    /// Replaces the runs that ended.
    fn fill(&mut self) {
        let alive = |run: &mut Child| run.try_wait().unwrap().is_none();
        self.runs.retain_mut(alive);
        while self.runs.len() < HOLDERS {
            let run = self.start();
            self.runs.push(run);
        }
    }

    /// One fault at a time: supervisor and guard struck in the same moment are not promised to end the job.
    fn strike(&mut self, fault: Fault) {
        // Only who holds has a guard; who waits is struck as well, now and then.
        let holds = |run: &Child| child_of(run.id(), "__guard").is_some();
        let victim = match self.runs.iter().position(holds) {
            Some(holder) if self.chance.random_bool(0.8) => holder,
            _ => self.chance.random_range(0..self.runs.len()),
        };
        let supervisor = self.runs[victim].id();
        let guard = child_of(supervisor, "__guard");
        let stop = Duration::from_millis(self.chance.random_range(100..LONGEST_STOP));
        let struck = match (fault, guard) {
            (Fault::KillSupervisor, _) => {
                send(supervisor, Signal::KILL);
                self.runs[victim].wait().unwrap();
                // It ends what is left of the job before it goes.
                guard.is_none_or(|guard| wait_for(|| !is_there(guard)))
            }
            (Fault::StopSupervisor, _) => {
                send(supervisor, Signal::STOP);
                thread::sleep(stop);
                send(supervisor, Signal::CONT)
            }
            (Fault::KillGuard, Some(guard)) => {
                send(guard, Signal::KILL)
                    && wait_for(|| self.runs[victim].try_wait().unwrap().is_some())
            }
            (Fault::StopGuard, Some(guard)) => {
                let stopped = send(guard, Signal::STOP);
                thread::sleep(stop);
                stopped && send(guard, Signal::CONT)
            }
            (Fault::KillCommand, Some(guard)) => {
                child_of(guard, "").is_some_and(|command| send(command, Signal::KILL))
            }
            (_, None) => false,
        };
        if struck {
            self.faults.push(fault);
        }
    }

    fn play(&mut self, faults: &[Fault], time: Duration) {
        let began = Instant::now();
        while began.elapsed() < time {
            self.fill();
            thread::sleep(Duration::from_millis(self.chance.random_range(20..400)));
            let fault = *faults.choose(&mut self.chance).unwrap();
            self.strike(fault);
        }
    }

    /// The tokens in the order in which they were written.
    fn tokens(&self) -> Vec<u64> {
        let log = fs::read_to_string(self.place.path("log")).unwrap_or_default();
        log.lines().map(|line| line.parse().unwrap()).collect()
    }
}

impl Drop for Chaos {
    fn drop(&mut self) {
        for run in &mut self.runs {
            send(run.id(), Signal::CONT);
            send(run.id(), Signal::TERM);
        }
        for run in &mut self.runs {
            if !wait_for(|| run.try_wait().is_ok_and(|end| end.is_some())) {
                let _ = run.kill();
                let _ = run.wait();
            }
        }
    }
}

/// Tokens that were written after a larger one.
fn late(tokens: &[u64]) -> Vec<(u64, u64)> {
    let pairs = tokens.windows(2).map(|pair| (pair[0], pair[1]));
    pairs.filter(|(before, after)| after < before).collect()
}

fn child_of(parent: u32, named: &str) -> Option<u32> {
    let mut look = Command::new("pgrep");
    look.args(["-P", &parent.to_string()]);
    if !named.is_empty() {
        look.args(["-f", named]);
    }
    let found = look.output().expect("pgrep, of Debian's procps");
    String::from_utf8(found.stdout)
        .unwrap()
        .lines()
        .next()?
        .parse()
        .ok()
}

fn is_there(pid: u32) -> bool {
    fs::exists(format!("/proc/{pid}")).unwrap_or(false)
}

fn send(pid: u32, signal: Signal) -> bool {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .expect("a pid");
    pidfd_open(pid, PidfdFlags::empty())
        .is_ok_and(|process| pidfd_send_signal(&process, signal).is_ok())
}

fn wait_for(mut seen: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        if seen() {
            return true;
        }
        thread::sleep(Duration::from_millis(5));
    }
    false
}

#[test]
fn no_job_outlives_its_lease_whoever_is_struck() {
    let time = env::var("LEASEHOLD_CHAOS").map_or(20, |seconds| seconds.parse().unwrap());
    let mut chaos = Chaos::new("term", 600);
    let all = [
        Fault::KillSupervisor,
        Fault::KillGuard,
        Fault::KillCommand,
        Fault::StopSupervisor,
        Fault::StopGuard,
    ];
    chaos.play(&all, Duration::from_secs(time));
    let tokens = chaos.tokens();
    let newest = tokens.last().copied().unwrap_or(0);
    println!(
        "{} faults, {newest} tokens, {} writes",
        chaos.faults.len(),
        tokens.len()
    );
    assert_eq!(
        late(&tokens),
        [],
        "a job outlived its lease; faults: {:?}",
        chaos.faults
    );
    assert!(
        newest > 3 && chaos.faults.len() > 3,
        "nothing happened: {:?}",
        chaos.faults
    );
}

/// What is left alone after a loss is seen by the same look.
#[test]
fn a_job_that_outlives_its_lease_is_seen() {
    let mut chaos = Chaos::new("ignore", 3_000);
    let began = Instant::now();
    while late(&chaos.tokens()).is_empty() {
        assert!(began.elapsed() < 3 * PATIENCE, "no write came late");
        chaos.play(&[Fault::StopSupervisor], Duration::from_secs(8));
    }
}
