//! `doctor`: what this setup guarantees and what in it breaks a promise, each with its fix. It changes nothing.

use std::time::Duration;

use leasehold::{
    LeaseName, Ttl,
    store::{Finding, Level, Profile, Store},
};

use crate::{
    app::App,
    exit::{self, Exit, Failure},
    history, out, show, twins,
};

/// How many leases and events are looked at.
const SAMPLE: usize = 10_000;
/// How often the store's answer is timed; the slowest counts.
const CALLS: u32 = 5;
/// A call that takes a longer part of the ttl leaves no room for a second try (A15: one attempt has ttl/6).
const ATTEMPT_PART: u32 = 6;

/// See the module.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit code 1 if a promise is broken; warnings alone are 0.

Examples:
  leasehold doctor
  leasehold --store sqlite:/var/lib/jobs/leases.db doctor --json")]
pub(crate) struct Doctor {}

impl Doctor {
    pub(crate) async fn run(self, app: &App) -> Result<Exit, Failure> {
        let store = app.open().await?;
        let mut findings = self.about(app, store.profile())?;
        findings.extend(store.examine().await?);
        findings.push(self.speed(app, &*store).await?);
        if store.profile().history {
            let events = history::newest(&*store, None, 0, SAMPLE).await?;
            let leases = store.list("", SAMPLE).await?;
            findings.extend(twins::findings(&leases, events.iter()));
        }
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
        for finding in &findings {
            match app.json {
                true => out::json(finding)?,
                false => out::text_as_it_is(&text(finding))?,
            }
        }
        let faults = findings
            .iter()
            .filter(|finding| finding.level == Level::Fault)
            .count();
        Ok(Exit(if faults == 0 { exit::DONE } else { exit::NO }))
    }

    fn about(&self, app: &App, profile: &Profile) -> Result<Vec<Finding>, Failure> {
        let place = app.place()?;
        let scope = match app.is_default() {
            true => ", the default: a lease excludes only this user's processes on this machine",
            false => "",
        };
        Ok(vec![
            good(format!("the store is {place}{scope}")),
            good(format!("who judges expiry: {}", profile.clock)),
            good(format!("where tokens come from: {}", profile.tokens)),
            good(format!("what a crash keeps: {}", profile.durability)),
        ])
    }

    /// How long a question takes, and so the shortest ttl that leaves room for a second try.
    async fn speed(&self, app: &App, store: &dyn Store) -> Result<Finding, Failure> {
        let name = LeaseName::new("doctor")?;
        let mut slowest = Duration::ZERO;
        for _ in 0..CALLS {
            let sent = app.clock.now();
            store.status(&name).await?;
            slowest = slowest.max(app.clock.now().since(sent));
        }
        let shortest = slowest * ATTEMPT_PART;
        let what = format!(
            "a call to the store takes {}, the slowest of {CALLS}",
            precise(slowest)
        );
        if shortest <= Ttl::MIN.get() {
            return Ok(good(what));
        }
        Ok(Finding {
            level: match shortest > Ttl::DEFAULT.get() {
                true => Level::Fault,
                false => Level::Warning,
            },
            what: format!(
                "{what}: a lease shorter than {} is lost when one call fails",
                show::span(shortest)
            ),
            fix: Some("use a longer --ttl, or find out what makes the store slow".to_owned()),
        })
    }
}

fn good(what: String) -> Finding {
    Finding {
        level: Level::Good,
        what,
        fix: None,
    }
}

fn precise(time: Duration) -> String {
    match time.as_millis() {
        0 => format!("{} µs", time.as_micros()),
        millis => format!("{millis} ms"),
    }
}

fn text(finding: &Finding) -> String {
    let word = match finding.level {
        Level::Good => out::green("ok     "),
        Level::Warning => out::yellow("warning"),
        Level::Fault => out::red("fault  "),
    };
    let fix = finding
        .fix
        .as_ref()
        .map_or_else(String::new, |fix| format!("         fix: {fix}\n"));
    format!("{word}  {}\n{fix}", finding.what)
}
