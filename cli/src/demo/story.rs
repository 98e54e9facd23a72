//! The story of the demo in three steps: a lease is taken, its holder freezes and is replaced, and wakes up too late.
//!
//! Every result is what a process answered; the story only checks that the fence held.

use std::time::Duration;

use anyhow::bail;
use leasehold::{
    Key, LeaseName, Token, Ttl,
    core::{Answer, Outcome},
};

use super::{
    actor::Actor,
    cast::Cast,
    picture::Picture,
    text,
    time::Time,
    voice::Voice,
    wire::{Ask, Reply, Target},
};

/// What the story is about.
pub(crate) struct Plot {
    /// The lease.
    pub(crate) lease: LeaseName,
    /// Where the plain report goes.
    pub(crate) plain: Key,
    /// Where the fenced one goes.
    pub(crate) fenced: Key,
    /// For how long a takes the lease.
    pub(crate) ttl_a: Ttl,
    /// For how long a is frozen, at the least.
    pub(crate) freeze: Duration,
    /// For how long b takes the lease.
    pub(crate) ttl_b: Ttl,
    /// Whether the store keeps pairs, and so reports.
    pub(crate) reports: bool,
    /// Whether the store tells afterwards what happened.
    pub(crate) history: bool,
}

/// Plays it. `time` passes on the store's own clock, whoever moves it.
pub(crate) async fn play(
    plot: &Plot,
    cast: &mut Cast,
    time: &mut Time,
    voice: &mut Voice,
) -> anyhow::Result<()> {
    voice.pause().await;
    let a_token = first_step(plot, cast, voice).await?;
    voice.pause().await;
    let b_token = second_step(plot, cast, time, voice).await?;
    let b_from = time.passed();
    voice.pause().await;
    third_step(plot, cast, a_token, voice).await?;
    voice.heading(text::PICTURE);
    let picture = Picture {
        a_until: plot.ttl_a.get(),
        a_token,
        b_from,
        b_until: b_from + plot.ttl_b.get(),
        b_token,
        reports: plot.reports,
    };
    voice.show(&picture.draw(voice.columns(), voice.unicode()));
    Ok(())
}

/// a gets the lease, b does not.
async fn first_step(plot: &Plot, cast: &mut Cast, voice: &mut Voice) -> anyhow::Result<Token> {
    voice.heading(text::STEP_1);
    voice.say(&text::step_1(plot));
    let token = match acquire(&mut cast.a, plot, plot.ttl_a).await? {
        Answer::Granted(grant) => grant.token,
        other => bail!("a was to get the lease, and was told {other:?}"),
    };
    voice.result("a holds the lease, token", &token.to_string())?;
    let answer = acquire(&mut cast.b, plot, plot.ttl_a).await?;
    voice.result("b asks for the lease", &in_words(&answer)?)?;
    Ok(token)
}

/// a checks its lease and freezes; its time runs out; b gets the lease and writes.
async fn second_step(
    plot: &Plot,
    cast: &mut Cast,
    time: &mut Time,
    voice: &mut Voice,
) -> anyhow::Result<Token> {
    voice.heading(text::STEP_2);
    let left = check(&mut cast.a, plot).await?;
    cast.a.freeze().await?;
    // It lies there unread until a wakes up: nothing but the freeze is between the check and the write.
    cast.a.tell(Ask::GoOn).await?;
    voice.say(&text::freeze(plot, left));
    voice.pause().await;
    time.pass(plot.freeze, cast.db.as_mut()).await?;
    let token = take_over(plot, cast, time).await?;
    voice.say(&text::take_over(plot));
    voice.result("b holds the lease, token", &token.to_string())?;
    if plot.reports {
        check(&mut cast.b, plot).await?;
        let [plain, fenced] = written(cast.b.ask(Ask::GoOn).await?)?;
        for (what, outcome) in [("plain", plain), ("fenced", fenced)] {
            if outcome != Outcome::Done {
                bail!(
                    "the {what} write of b was to pass, and was {}",
                    written_in_words(&outcome)?
                );
            }
        }
    }
    Ok(token)
}

/// a goes on as if nothing had happened.
async fn third_step(
    plot: &Plot,
    cast: &mut Cast,
    a_token: Token,
    voice: &mut Voice,
) -> anyhow::Result<()> {
    voice.heading(text::STEP_3);
    voice.say(&text::wake_up(plot));
    cast.a.thaw()?;
    let reply = cast.a.hear().await?;
    if plot.reports {
        let [plain, fenced] = written(reply)?;
        voice.result("a's plain write", &written_in_words(&plain)?)?;
        voice.result("a's fenced write", &written_in_words(&fenced)?)?;
        for (what, key) in [
            ("plain report", &plot.plain),
            ("fenced report", &plot.fenced),
        ] {
            let reply = cast.a.ask(Ask::Read { key: key.clone() }).await?;
            let Reply::Text(text) = reply else {
                bail!("a was to read a report, and told {reply:?}");
            };
            voice.result(what, text.as_deref().unwrap_or("nothing"))?;
        }
        if fenced == Outcome::Done {
            bail!("this store does not fence: it accepted token {a_token} after a larger one");
        }
        voice.say(text::LOST);
        voice.say(text::SAFE);
    }
    let answer = acquire(&mut cast.a, plot, plot.ttl_a).await?;
    voice.result("a asks again", &in_words(&answer)?)?;
    Ok(())
}

async fn acquire(actor: &mut Actor, plot: &Plot, ttl: Ttl) -> anyhow::Result<Answer> {
    let lease = plot.lease.clone();
    match actor.ask(Ask::Acquire { lease, ttl }).await? {
        Reply::Lease(answer) => Ok(answer),
        other => bail!(
            "{} was to ask for the lease, and told {other:?}",
            actor.name()
        ),
    }
}

/// Lets a node check its lease and stand there; answers how much time it was told is left.
async fn check(actor: &mut Actor, plot: &Plot) -> anyhow::Result<Duration> {
    let target = |key: &Key, fenced| Target {
        key: key.clone(),
        fenced,
    };
    let to = match plot.reports {
        true => vec![target(&plot.plain, false), target(&plot.fenced, true)],
        false => Vec::new(),
    };
    let lease = plot.lease.clone();
    match actor.ask(Ask::Report { lease, to }).await? {
        Reply::Checked {
            status: Some(status),
            mine: true,
        } => Ok(status.remaining),
        Reply::Checked { .. } => {
            let name = actor.name();
            bail!("the lease of {name} ran out before it was checked: is this machine very busy?")
        }
        other => bail!(
            "{} was to check its lease, and told {other:?}",
            actor.name()
        ),
    }
}

/// Asks for b until it gets the lease. On the demo's own clock that is at once.
async fn take_over(plot: &Plot, cast: &mut Cast, time: &mut Time) -> anyhow::Result<Token> {
    let mut answer = acquire(&mut cast.b, plot, plot.ttl_b).await?;
    for _ in 1..time.tries() {
        if matches!(answer, Answer::Granted(_)) {
            break;
        }
        time.pass(Duration::from_millis(200), cast.db.as_mut())
            .await?;
        answer = acquire(&mut cast.b, plot, plot.ttl_b).await?;
    }
    match answer {
        Answer::Granted(grant) => Ok(grant.token),
        answer => bail!("b was to get the lease, and was told {answer:?}"),
    }
}

fn written(reply: Reply) -> anyhow::Result<[Outcome; 2]> {
    match reply {
        Reply::Wrote(outcomes) => outcomes.try_into().map_err(|got: Vec<_>| {
            anyhow::anyhow!("two writes were to be done, not {}", got.len())
        }),
        other => bail!("two writes were to be done, and the answer is {other:?}"),
    }
}

/// What a node that asked for the lease was told.
pub(crate) fn in_words(answer: &Answer) -> anyhow::Result<String> {
    match answer {
        Answer::Granted(grant) => Ok(format!("holds it, token {}", grant.token)),
        Answer::Held(held) => Ok(format!("held by {}", held.holder)),
        other => bail!("unexpected answer to an acquire: {other:?}"),
    }
}

fn written_in_words(outcome: &Outcome) -> anyhow::Result<String> {
    match outcome {
        Outcome::Done => Ok("ok".to_owned()),
        Outcome::Refused(why) => Ok(format!("refused: {why}")),
        other => bail!("unexpected answer to a write: {other:?}"),
    }
}
