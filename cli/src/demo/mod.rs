//! `leasehold demo`: leases and fencing, shown with real processes. This file is the driver.
//!
//! It starts three processes of this same program, speaks with them over their standard input and output only, and
//! leaves none of them behind, however it ends.

mod actor;
mod cast;
mod connection;
mod db;
mod node;
mod peer;
mod picture;
mod real;
mod split;
mod story;
mod text;
mod time;
mod voice;
mod wire;

use std::{ffi::OsString, process::ExitCode, time::Duration};

use anyhow::{Context, bail};
use leasehold::{Key, LeaseName, Ttl};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use crate::{
    app::App,
    exit::{Exit, Failure},
    stop::Stop,
};

use cast::Cast;
use story::Plot;
use time::Time;
use voice::Voice;

/// How long the driver waits for an answer; the nodes wait half of it for the store.
const PATIENCE: Duration = Duration::from_secs(10);

/// The first argument of the processes that the driver starts.
const DB: &str = "demo-db";
const NODE: &str = "demo-node";

/// See the module.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Results go to standard output, the story around them to standard error. With --store the story is \
played on that store, in real time and under names of its own; what it wrote is deleted again. \
LEASEHOLD_STORE does not do that.

Examples:
  leasehold demo
  leasehold demo --split
  leasehold demo --store sqlite:demo.db")]
pub(crate) struct Demo {
    /// Show instead what two nodes do that cannot see each other, without a lease and with one
    #[arg(long)]
    split: bool,
    /// Print the results only, not the story around them
    #[arg(short, long)]
    quiet: bool,
    /// Wait for Enter at each step
    #[arg(long)]
    step: bool,
}

impl Demo {
    pub(crate) async fn run(self, app: &App) -> Result<Exit, Failure> {
        let url = app.typed_url();
        if url.is_some() && (self.split || self.step) {
            let what = "--split and --step have a store of their own: leave --store away";
            return Err(Failure::usage(what));
        }
        let mut stop = Stop::new()?;
        let mut voice = Voice::new(self.quiet || app.json, app.json, self.step);
        let end = match url {
            Some(url) => real::play(url, app, &mut voice, &mut stop).await,
            None => tokio::select! {
                biased;
                signal = stop.asked() => Err(Failure::stopped(signal).into()),
                end = self.play(&mut voice) => end,
            },
        };
        end.map(|()| Exit::DONE).map_err(failure)
    }

    async fn play(&self, voice: &mut Voice) -> anyhow::Result<()> {
        let mut cast = Cast::with_store().await?;
        let end = match self.split {
            true => apart(&mut cast, voice).await,
            false => on_own_store(&mut cast, voice).await,
        };
        cast.end().await;
        end
    }
}

/// What kind of failure it was, if it says so.
fn failure(error: anyhow::Error) -> Failure {
    error
        .downcast()
        .unwrap_or_else(|error| Failure::failed(format!("{error:#}")))
}

/// If this process is one that a driver started: its whole life.
pub(crate) fn inner_stage() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    let stage = args.next()?;
    let serve = match stage.to_str()? {
        DB => |_: &str| db::main(),
        NODE => node::main,
        _ => return None,
    };
    let name = args.next().and_then(|name| name.into_string().ok());
    let name = name.unwrap_or_default();
    match follow(&name, args.next()).and_then(|()| serve(&name)) {
        Ok(()) => Some(ExitCode::SUCCESS),
        Err(error) => {
            eprintln!("{name}: {error:#}");
            Some(ExitCode::from(125))
        }
    }
}

/// Ends when the driver does, even while stopped; `driver` tells whether it has ended already.
fn follow(name: &str, driver: Option<OsString>) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let parent = Pid::as_raw(getppid()).to_string();
    if driver.is_none_or(|driver| driver != *parent) {
        bail!("this is started by `leasehold demo`, which is gone");
    }
    // For `ps` and `top`, which may show this name and not the first argument.
    let name = std::ffi::CString::new(name).context("a name with a zero byte")?;
    rustix::thread::set_name(&name)?;
    Ok(())
}

async fn apart(cast: &mut Cast, voice: &mut Voice) -> anyhow::Result<()> {
    voice.heading(text::split::TITLE);
    voice.say(text::split::INTRO);
    introduce(cast, voice, &["a store; nobody asks it yet", "@a", "@b"]);
    split::play(cast, voice).await
}

/// The story on the demo's own store, whose clock the driver moves: every run is the same.
async fn on_own_store(cast: &mut Cast, voice: &mut Voice) -> anyhow::Result<()> {
    let plot = Plot {
        lease: LeaseName::new("nightly")?,
        plain: Key::new("plain_report")?,
        fenced: Key::new("fenced_report")?,
        ttl_a: Ttl::from_millis(10_000)?,
        freeze: Duration::from_secs(15),
        ttl_b: Ttl::from_millis(10_000)?,
        reports: true,
        history: true,
    };
    voice.heading(text::TITLE);
    voice.say(text::INTRO);
    let roles = [
        "the store, on a clock of its own",
        "@a, a client of the store",
        "@b, another one",
    ];
    introduce(cast, voice, &roles);
    voice.say(text::BY_HAND);
    story::play(&plot, cast, &mut Time::by_hand(), voice).await?;
    farewell(voice);
    voice.say(text::MORE);
    Ok(())
}

/// Who is on stage, so that the reader can look at them with `ps`.
fn introduce(cast: &Cast, voice: &mut Voice, roles: &[&str]) {
    let rows = cast.all().zip(roles).map(|(actor, role)| {
        let name = format!("{:<8}  process {:<7}", actor.name(), actor.pid());
        (name, *role)
    });
    voice.list(&rows.collect::<Vec<_>>());
}

fn farewell(voice: &mut Voice) {
    voice.heading(text::REMEMBER);
    voice.say(text::LESSON);
    voice.say(text::NEXT);
    voice.show(&[format!("  {}", text::COMMAND)]);
}
