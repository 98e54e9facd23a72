//! `demo --split`: why nodes cannot decide among themselves who acts, and why something outside them can.

use anyhow::bail;
use leasehold::{LeaseName, Ttl, core::Answer};

use super::{
    actor::Actor,
    cast::Cast,
    node::short,
    story::in_words,
    text::split as text,
    voice::Voice,
    wire::{Ask, Reply},
};

/// Together, apart without a lease, apart with one.
pub(crate) async fn play(cast: &mut Cast, voice: &mut Voice) -> anyhow::Result<()> {
    voice.pause().await;
    voice.heading(text::STEP_1);
    voice.say(text::RULE);
    introduce(&mut cast.a, &mut cast.b).await?;
    introduce(&mut cast.b, &mut cast.a).await?;
    decide_alone(cast, voice).await?;

    voice.pause().await;
    voice.heading(text::STEP_2);
    voice.say(text::CUT);
    cast.a.do_it(Ask::Cut).await?;
    cast.b.do_it(Ask::Cut).await?;
    let running = decide_alone(cast, voice).await?;
    voice.result("without a lease", &run_the_job(running))?;
    voice.say(text::TWICE);

    voice.pause().await;
    voice.heading(text::STEP_3);
    voice.say(text::LEASE);
    let running = ask_outside(cast, voice).await?;
    voice.result("with a lease", &run_the_job(running))?;
    voice.say(text::ONCE);
    voice.show(&figure(voice.columns(), voice.unicode()));
    Ok(())
}

/// Makes `seen` visible to `other`.
async fn introduce(seen: &mut Actor, other: &mut Actor) -> anyhow::Result<()> {
    match seen.ask(Ask::Show).await? {
        Reply::Visible { port } => other.do_it(Ask::Meet { port }).await,
        reply => bail!("{} was to show itself, and told {reply:?}", seen.name()),
    }
}

/// Each node looks around and decides by whom it sees. Answers how many run the job.
async fn decide_alone(cast: &mut Cast, voice: &mut Voice) -> anyhow::Result<usize> {
    let mut running = 0;
    for node in [&mut cast.a, &mut cast.b] {
        let (names, runs) = match node.ask(Ask::Look).await? {
            Reply::Sees { names, runs } => (names, runs),
            reply => bail!("{} was to look around, and told {reply:?}", node.name()),
        };
        running += usize::from(runs);
        let does = if runs { "runs the job" } else { "stands by" };
        let what = format!("{} sees", short(node.name()));
        voice.result(&what, &format!("{}, so it {does}", names.join(" and ")))?;
    }
    Ok(running)
}

/// Each node asks for the lease instead. Answers how many run the job.
async fn ask_outside(cast: &mut Cast, voice: &mut Voice) -> anyhow::Result<usize> {
    let lease = LeaseName::new("nightly")?;
    let ttl = Ttl::from_millis(10_000)?;
    let mut running = 0;
    for node in [&mut cast.a, &mut cast.b] {
        let lease = lease.clone();
        let answer = match node.ask(Ask::Acquire { lease, ttl }).await? {
            Reply::Lease(answer) => answer,
            reply => bail!(
                "{} was to ask for the lease, and told {reply:?}",
                node.name()
            ),
        };
        running += usize::from(matches!(answer, Answer::Granted(_)));
        let what = format!("{} asks for the lease", short(node.name()));
        voice.result(&what, &in_words(&answer)?)?;
    }
    Ok(running)
}

fn run_the_job(nodes: usize) -> String {
    match nodes {
        1 => "1 runs the job".to_owned(),
        nodes => format!("{nodes} run the job"),
    }
}

/// Both cases, beside each other if there is room.
fn figure(columns: usize, unicode: bool) -> Vec<String> {
    let (without, with) = match unicode {
        true => (
            ["lease_a ──✗── lease_b", "  runs          runs", "", ""],
            [
                "lease_a ──✗── lease_b",
                "  runs       stands by",
                "    │             │",
                "    └── lease_db ─┘",
            ],
        ),
        false => (
            ["lease_a --x-- lease_b", "  runs          runs", "", ""],
            [
                "lease_a --x-- lease_b",
                "  runs       stands by",
                "    |             |",
                "    +-- lease_db -+",
            ],
        ),
    };
    let without = ["without a lease", ""].into_iter().chain(without);
    let with = ["with a lease", ""].into_iter().chain(with);
    if columns < 52 {
        return without.chain(with).map(str::to_owned).collect();
    }
    let rows = without.zip(with);
    rows.map(|(left, right)| format!("{left:<29}{right}").trim_end().to_owned())
        .collect()
}
