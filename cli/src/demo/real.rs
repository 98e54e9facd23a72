//! `demo --store URL`: the same story on a real store, in real time, under names of its own.
//!
//! However it ends, what it wrote is deleted and its lease is free.

use std::time::Duration;

use anyhow::{Context, bail};
use leasehold::{
    Holder, Key, LeaseName, LockDelay, Ttl,
    core::{Acquire, Answer, Command, Op, Outcome, Proof, Release, State},
    store::{Profile, SharedStore},
};
use tokio::time::timeout;

use crate::{app::App, exit::Failure, stop::Stop};

use super::{
    PATIENCE,
    cast::Cast,
    story::{self, Plot},
    text,
    time::Time,
    voice::Voice,
    wire::{Ask, Place},
};

/// Short, since the reader waits for it to run out.
const TTL_A: Duration = Duration::from_secs(2);

/// Plays the story on the store at `url`, which is the one of `app`.
pub(crate) async fn play(
    url: &str,
    app: &App,
    voice: &mut Voice,
    stop: &mut Stop,
) -> anyhow::Result<()> {
    let store = app.open().await?;
    if store.profile().scheme == "memory" {
        let what = "the store \"memory:\" cannot be shared by the three processes of the demo; \
            use sqlite:PATH, or `leasehold demo` alone";
        return Err(Failure::usage(what).into());
    }
    let plot = plot(store.profile())?;
    let mut cast = Cast::without_store()?;
    let end = tokio::select! {
        biased;
        signal = stop.asked() => Err(Failure::stopped(signal).into()),
        end = on_stage(url, &plot, &mut cast, voice) => end,
    };
    // First nobody acts any more, then nothing is left of what they did.
    cast.end().await;
    let tidied = timeout(2 * PATIENCE, tidy(&store, &plot)).await;
    let tidied = tidied.unwrap_or_else(|_| bail!("the store does not answer"));
    let lease = &plot.lease;
    let tidied = tidied.with_context(|| format!("could not delete what the lease {lease} guards"));
    end.and(tidied)
}

/// Names that nobody else has, times that this store can do.
fn plot(profile: &Profile) -> anyhow::Result<Plot> {
    let name = format!("demo-{:08x}", crate::ask::new_session()?.fingerprint());
    let ttl = Ttl::new(TTL_A)?.max(profile.min_ttl);
    Ok(Plot {
        lease: LeaseName::new(&name)?,
        plain: Key::new(&format!("{name}/plain_report"))?,
        fenced: Key::new(&format!("{name}/fenced_report"))?,
        ttl_a: ttl,
        freeze: ttl.get() * 3 / 2,
        // Long enough for all that b and a do afterwards, on a busy machine too.
        ttl_b: Ttl::new(ttl.get() * 5 / 2)?,
        reports: profile.pairs,
        history: profile.history,
    })
}

async fn on_stage(
    url: &str,
    plot: &Plot,
    cast: &mut Cast,
    voice: &mut Voice,
) -> anyhow::Result<()> {
    voice.heading(text::TITLE);
    voice.say(text::INTRO);
    super::introduce(
        cast,
        voice,
        &["@a, a client of your store", "@b, another one"],
    );
    voice.say(&text::real(plot));
    cast.use_store(&Place::Url(url.to_owned())).await?;
    story::play(plot, cast, &mut Time::real(), voice).await?;
    let lease = plot.lease.clone();
    cast.b.ask(Ask::Release { lease }).await?;
    super::farewell(voice);
    voice.say(&text::tidied(plot));
    Ok(())
}

/// Deletes the reports and leaves the lease free. The nodes are dead, so taking their lease away harms nobody.
async fn tidy(store: &SharedStore, plot: &Plot) -> anyhow::Result<()> {
    let name = plot.lease.clone();
    let Some(status) = store.status(&name).await? else {
        return Ok(());
    };
    if status.state != State::Free {
        command(store, &name, Command::ForceRelease { now: true }).await?;
    }
    if !plot.reports {
        return Ok(());
    }
    let session = crate::ask::new_session()?;
    let asked = Command::Acquire(Acquire {
        session,
        request_id: crate::ask::new_request_id()?,
        holder: Holder::new("lease_demo")?,
        info: None,
        ttl: Ttl::DEFAULT.max(store.profile().min_ttl),
        lock_delay: LockDelay::NONE,
    });
    let token = match command(store, &name, asked).await? {
        Answer::Granted(grant) => grant.token,
        other => bail!("the lease is not free: {other:?}"),
    };
    let lease = name.clone();
    let deletes = [
        (&plot.plain, None),
        (&plot.fenced, Some(Proof { lease, token })),
    ];
    for (key, proof) in deletes {
        let key = key.clone();
        match store.apply(Op::Delete { key, proof }).await? {
            Outcome::Done => {}
            other => bail!("a report stays: {other:?}"),
        }
    }
    command(
        store,
        &name,
        Command::Release(Release::Tenure { token, session }),
    )
    .await?;
    Ok(())
}

async fn command(
    store: &SharedStore,
    name: &LeaseName,
    command: Command,
) -> anyhow::Result<Answer> {
    let name = name.clone();
    match store.apply(Op::Lease { name, command }).await? {
        Outcome::Lease(answer) => Ok(answer),
        other => bail!("the store answered another question: {other:?}"),
    }
}
