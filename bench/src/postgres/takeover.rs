//! How long a waiter waits after a release, which it hears of by LISTEN, and after an expiry, which nobody tells it of.

use std::{sync::Arc, time::Duration};

use leasehold::{
    Keeper, LeaseName, SharedStore, Ttl,
    clock::{BootClock, Clock},
};

use super::{leases, server::Server};

pub(super) async fn run(server: &Server) -> anyhow::Result<bool> {
    let clock = BootClock::new();
    let (one, two) = (
        leasehold::connect(&server.url()).await?,
        leasehold::connect(&server.url()).await?,
    );
    let mut released = Vec::new();
    for number in 0..20 {
        released.push(after_release(&one, &two, &clock, number).await?);
    }
    let mut expired = Vec::new();
    for number in 0..10 {
        expired.push(after_expiry(&one, &two, &clock, number).await?);
    }
    say("from a release to the next grant", &mut released);
    say("from an expiry to the next grant", &mut expired);
    Ok(true)
}

async fn after_release(
    one: &SharedStore,
    two: &SharedStore,
    clock: &Arc<BootClock>,
    number: u64,
) -> anyhow::Result<Duration> {
    let name = LeaseName::new(&format!("released {number}"))?;
    let first = Keeper::new(one.clone(), name.clone()).acquire().await?;
    let waiter = Keeper::new(two.clone(), name);
    let waits = tokio::spawn(async move { waiter.acquire().await });
    // It has asked, heard that the lease is held, and waits.
    tokio::time::sleep(Duration::from_millis(700)).await;
    let began = clock.now();
    first.release().await?;
    let second = waits.await??;
    let took = clock.now().since(began);
    second.release().await?;
    Ok(took)
}

async fn after_expiry(
    one: &SharedStore,
    two: &SharedStore,
    clock: &Arc<BootClock>,
    number: u64,
) -> anyhow::Result<Duration> {
    let name = LeaseName::new(&format!("expired {number}"))?;
    let ttl = Ttl::from_millis(2000)?;
    leases::granted(&one.apply(leases::acquire(&name, number, ttl)?).await?)?;
    let granted = clock.now();
    let second = Keeper::new(two.clone(), name).acquire().await?;
    let took = clock.now().since(granted.plus(Duration::from_millis(2000)));
    second.release().await?;
    Ok(took)
}

fn say(what: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let (middle, longest) = (times.get(times.len() / 2), times.last());
    if let (Some(middle), Some(longest)) = (middle, longest) {
        println!(
            "{middle:>9.1?}    {what}: half of {}; the longest {longest:.1?}",
            times.len()
        );
    }
}
