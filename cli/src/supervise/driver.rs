//! Only for tests (`cli/tests/supervise.rs`): a supervisor without a lease, driven by its arguments.
//!
//! `__supervise REPORT STOP KILL EVERY UNTIL FLAGS -- COMMAND...`: deadlines lie STOP and KILL ms ahead and are moved
//! ahead again every EVERY ms until UNTIL ms have passed; KILL 0 means no deadline. SIGTERM stops the job with KILL ms of grace, other signals are
//! passed on. What happens is appended to the file REPORT, a line each, since the child owns the standard streams.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Signal;

use super::alarm::now;
use super::{Deadline, Exit, Job, Parent, Reason, Signals, Supervised};

pub(super) fn main(args: &[OsString]) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let end = runtime
        .context("start the runtime")
        .and_then(|r| r.block_on(Driver::new(args)?.run()));
    match end {
        Ok(exit) => ExitCode::from(exit.status.exit_code()),
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(125)
        }
    }
}

struct Driver {
    report: File,
    stop: Duration,
    kill: Duration,
    every: Duration,
    until: Duration,
    flags: String,
    command: Vec<OsString>,
}

impl Driver {
    fn new(args: &[OsString]) -> Result<Driver> {
        let [report, stop, kill, every, until, flags, _, command @ ..] = args else {
            anyhow::bail!("for tests only: REPORT STOP KILL EVERY UNTIL FLAGS -- COMMAND...");
        };
        let report = File::options().append(true).create(true).open(report)?;
        let millis = |arg: &OsString| -> Result<Duration> {
            let millis = arg.to_str().context("milliseconds")?.parse();
            Ok(Duration::from_millis(millis.context("milliseconds")?))
        };
        Ok(Driver {
            report,
            stop: millis(stop)?,
            kill: millis(kill)?,
            every: millis(every)?,
            until: millis(until)?,
            flags: flags.to_string_lossy().into_owned(),
            command: command.to_vec(),
        })
    }

    async fn run(mut self) -> Result<Exit> {
        let mut signals = Signals::listen()?;
        let parent = Parent::watch()?;
        let job = Job {
            command: self.command.clone(),
            env: vec![
                ("LEASEHOLD_TOKEN".into(), Some("7".into())),
                ("LEASEHOLD_TEST_SECRET".into(), None),
            ],
            cgroup: !self.has("walk"),
        };
        let began = now();
        let deadline = self.deadline();
        let job = Supervised::start(&job, deadline).await?;
        self.say(&format!(
            "started pid={} kill_at={}",
            job.pid().unwrap_or(0),
            deadline.kill_at.as_nanos()
        ));
        let mut renewals = tokio::time::interval(self.every);
        let mut renewing = true;
        let exit = loop {
            tokio::select! {
                exit = job.wait() => break exit,
                _ = renewals.tick(), if renewing => {
                    let deadline = self.deadline();
                    renewing = now().since(began) < self.until && job.extend(deadline);
                    if renewing {
                        self.say(&format!("extended kill_at={}", deadline.kill_at.as_nanos()));
                    }
                }
                signal = signals.next() => match signal {
                    Signal::TERM => job.stop(Reason::Asked, now().plus(self.kill)),
                    other => job.signal(other),
                },
                () = parent.died(), if self.has("parent") => {
                    job.stop(Reason::ParentDied, now());
                    self.flags.clear();
                }
            }
        };
        self.say(&format!("ended {}", serde_json::to_string(&exit)?));
        Ok(exit)
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.split(',').any(|one| one == flag)
    }

    fn deadline(&self) -> Deadline {
        if self.kill.is_zero() {
            return Deadline::NEVER;
        }
        let now = now();
        Deadline {
            stop_at: now.plus(self.stop),
            kill_at: now.plus(self.kill),
        }
    }

    fn say(&mut self, line: &str) {
        // A test that misses a line fails by itself.
        let _ = self.report.write_all(format!("{line}\n").as_bytes());
    }
}
