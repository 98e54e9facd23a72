//! Do several processes call themselves by one name? The lease is safe from that (the session tells them apart), people
//! are not: "held by web-1" then says nothing (FB-56).

use std::collections::{BTreeMap, BTreeSet};

use leasehold::{
    Holder, LeaseName, Token,
    core::{Lost, State, Status, What},
    store::{Finding, Level, Recorded},
};

/// Names that more than one session holds by now, and names whose owner lost to itself.
pub(crate) fn findings<'a>(
    leases: &[Status],
    events: impl Iterator<Item = &'a Recorded>,
) -> Vec<Finding> {
    let held = at_once(leases).into_iter().map(|(holder, names)| {
        format!(
            "{holder} holds {} with different sessions",
            names.join(" and ")
        )
    });
    let lost = to_itself(events).into_iter().map(|(holder, name)| {
        format!("{holder} lost {name} to another process that is also called {holder}")
    });
    held.chain(lost)
        .map(|what| Finding {
            level: Level::Warning,
            what,
            fix: Some(
                "give every process a --holder of its own, so that people can tell them apart"
                    .to_owned(),
            ),
        })
        .collect()
}

fn at_once(leases: &[Status]) -> Vec<(&Holder, Vec<&str>)> {
    let mut held: BTreeMap<&Holder, BTreeMap<u32, &str>> = BTreeMap::new();
    for lease in leases.iter().filter(|lease| lease.state == State::Held) {
        if let (Some(holder), Some(session)) = (&lease.holder, lease.session_hash) {
            held.entry(holder)
                .or_default()
                .entry(session)
                .or_insert(lease.name.as_str());
        }
    }
    held.into_iter()
        .filter(|(_, sessions)| sessions.len() > 1)
        .map(|(holder, sessions)| {
            let mut names: Vec<&str> = sessions.into_values().collect();
            names.sort_unstable();
            (holder, names)
        })
        .collect()
}

/// A renewal that was refused because a holder of the same name has a larger token: both were alive at that moment.
fn to_itself<'a>(events: impl Iterator<Item = &'a Recorded>) -> BTreeSet<(Holder, LeaseName)> {
    let mut granted: BTreeMap<(&LeaseName, Token), &Holder> = BTreeMap::new();
    let mut twins = BTreeSet::new();
    for event in events.map(|recorded| &recorded.event) {
        match &event.what {
            What::Granted { holder, token, .. } => {
                granted.insert((&event.lease, *token), holder);
            }
            What::Lost {
                token,
                why: Lost::Taken { by: Some(by), .. },
            } if granted.get(&(&event.lease, *token)) == Some(&by) => {
                twins.insert((by.clone(), event.lease.clone()));
            }
            _ => {}
        }
    }
    twins
}
