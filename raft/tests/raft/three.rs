//! Three members in one process, each with its own thread, files and port: leaders change, members come and go.

use std::{sync::Arc, time::Duration};

use leasehold::{
    Store, StoreError,
    store::contract::{self, Time},
    testing::VirtualClock,
};
use leasehold_core::{Answer, Command, Release, State};
use leasehold_raft::{Config, RaftStore};

use crate::rig::{Asker, Cluster, answer, config, until};

/// The whole contract asked of a member that does not lead: every call goes to the leader and back.
#[tokio::test]
async fn three_members_keep_the_contract_through_a_follower() {
    let clock = VirtualClock::new();
    let shared = clock.clone();
    let cluster = Cluster::of(3, |config| Config {
        clock: shared.clone(),
        ..config
    });
    let mut cluster = cluster.await;
    let follower = cluster.follower().await;
    let advance = |by: Duration| clock.advance(by);
    let report = contract::all(&*follower, Time::Virtual(&advance)).await;
    assert_eq!(report.skipped, []);
    cluster.end().await;
}

/// R2, R3: log time goes on from the log. The new leader's clock is days ahead of the old one's, or days behind; the
/// lease lasts its ttl on the clock of whoever leads, and nothing that was counted is forgotten.
#[tokio::test]
async fn a_change_of_leaders_never_shortens_a_lease() {
    let clocks: Vec<_> = (0..3).map(|_| VirtualClock::new()).collect();
    let day = Duration::from_secs(86_400);
    clocks[1].advance(day * 30);
    clocks[2].advance(day * 60);
    let next = std::sync::atomic::AtomicUsize::new(0);
    let cluster = Cluster::of(3, |config| Config {
        clock: clocks[next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)].clone(),
        ..config
    });
    let mut cluster = cluster.await;
    let (holder, rival) = (Asker::new("nightly"), Asker::new("nightly"));
    let (first, leader) = cluster.leader().await;
    holder.granted(&*leader, 10_000).await;
    for step in 1..=2 {
        let (_, leader) = cluster.leader().await;
        let to = (first + step) % 3;
        leader.transfer(cluster.members[to].node()).await.unwrap();
        let asked = cluster.members[to].apply(rival.acquire(10_000)).await;
        let Answer::Held(held) = answer(asked) else {
            panic!("after {step} changes somebody else got it")
        };
        assert!(held.hint <= Duration::from_secs(10) && held.hint > Duration::from_secs(1));
        // A part of the ttl passes under each leader, and comes into the log with the next entry.
        clocks[to].advance(Duration::from_secs(4));
        let asked = cluster.members[to].apply(rival.acquire(10_000)).await;
        assert!(matches!(answer(asked), Answer::Held(_)));
    }
    let last = (first + 2) % 3;
    let status = cluster.members[last]
        .status(&holder.name)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(status.state, State::Held, "eight of ten seconds are over");
    clocks[last].advance(Duration::from_secs(2));
    rival.granted(&*cluster.members[last], 10_000).await;
    cluster.end().await;
}

/// L5: an observer that saw a lease end does not see it held by the same token later, whoever leads then.
#[tokio::test]
async fn what_was_seen_to_have_ended_has_ended_for_every_leader() {
    let clocks: Vec<_> = (0..3).map(|_| VirtualClock::new()).collect();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let cluster = Cluster::of(3, |config| Config {
        clock: clocks[next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)].clone(),
        ..config
    });
    let mut cluster = cluster.await;
    let holder = Asker::new("nightly");
    let (first, leader) = cluster.leader().await;
    holder.granted(&*leader, 10_000).await;
    clocks[first].advance(Duration::from_secs(10));
    let seen = leader.status(&holder.name).await.unwrap().unwrap();
    assert_eq!(seen.state, State::Free);
    let to = (first + 1) % 3;
    leader.transfer(cluster.members[to].node()).await.unwrap();
    let seen = cluster.members[to]
        .status(&holder.name)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(seen.state, State::Free);
    cluster.end().await;
}

/// A member that was away so long that the log no longer reaches back gets the state itself, and goes on from there.
#[tokio::test]
async fn a_member_that_was_away_for_long_gets_a_snapshot() {
    let few = |config: Config| Config {
        snapshot_every: 20,
        ..config
    };
    let mut cluster = Cluster::of(3, few).await;
    let (place, _) = cluster.leader().await;
    let away = (place + 1) % 3;
    let (node, listen) = (
        cluster.members[away].node(),
        cluster.members[away].address().parse().unwrap(),
    );
    let folder = cluster.stop(away).await;
    let holders: Vec<_> = (0..200)
        .map(|i| Asker::new(&format!("lease-{i}")))
        .collect();
    for holder in &holders {
        holder.granted(&*cluster.members[0], 600_000).await;
    }
    let begins = || async {
        let (_, leader) = cluster.leader().await;
        let report = leader.report();
        (report.log < 100 && report.snapshot > Some(100)).then_some(())
    };
    until("the log is cut", begins).await;

    let back = RaftStore::start(Config {
        listen: Some(listen),
        ..few(config(folder.path()))
    });
    let back = back.await.unwrap();
    assert_eq!(back.node(), node);
    let caught_up = || async {
        (holders
            .iter()
            .all(|holder| back.peek(&holder.name).is_some()))
        .then_some(())
    };
    until("it has caught up", caught_up).await;
    assert!(back.report().snapshot > Some(100), "{:?}", back.report());
    let history = back.history(None, 0, 1_000).await.unwrap();
    assert_eq!(history.len(), 200, "the history came with it");

    // And what came by snapshot is on its disk.
    back.stop().await;
    drop(back);
    let again = RaftStore::start(Config {
        listen: Some(listen),
        ..few(config(folder.path()))
    });
    let again = again.await.unwrap();
    assert!(again.peek(&holders[0].name).is_some());
    again.stop().await;
    cluster.end().await;
}

/// A dead member is removed and another takes its place; nobody comes back under an id that left.
#[tokio::test]
async fn a_dead_member_is_replaced_and_its_id_never_comes_back() {
    let mut cluster = Cluster::of(3, |config| config).await;
    let holder = Asker::new("nightly");
    let grant = holder.granted(&*cluster.members[0], 600_000).await;
    let (place, _) = cluster.leader().await;
    let (dead, listen) = (
        cluster.members[place].node(),
        cluster.members[place].address().to_owned(),
    );
    let folder = cluster.stop(place).await;

    cluster.leader().await;
    cluster.members[0].remove(dead).await.unwrap();
    cluster.members[0]
        .remove(dead)
        .await
        .expect("twice is once");
    let (fresh, its_folder) = {
        let folder = tempfile::tempdir().unwrap();
        (
            RaftStore::start(config(folder.path())).await.unwrap(),
            folder,
        )
    };
    fresh.join(cluster.members[1].address()).await.unwrap();
    cluster.members.push(fresh.clone());
    cluster.folders.push(its_folder);
    let voters = |store: &Arc<RaftStore>| {
        let members = store.report().members;
        members.iter().filter(|member| member.voter).count()
    };
    assert_eq!(voters(&cluster.leader().await.1), 3);
    let status = fresh.status(&holder.name).await.unwrap().unwrap();
    assert_eq!(status.token, Some(grant.token));

    let ghost = RaftStore::start(Config {
        listen: Some(listen.parse().unwrap()),
        ..config(folder.path())
    });
    let ghost = ghost.await.unwrap();
    let error = ghost.join(fresh.address()).await.unwrap_err();
    assert!(error.to_string().contains("no id comes back"), "{error}");
    // It knows that it votes once did, but nobody asks it any more and its votes count for nothing.
    assert_eq!(voters(&cluster.leader().await.1), 3);
    ghost.stop().await;
    cluster.end().await;
}

/// Without a majority nothing is granted and nothing is renewed; what was asked then is not known to have been done.
#[tokio::test]
async fn nothing_moves_without_a_majority() {
    let short = |config: Config| Config {
        patience: Duration::from_secs(1),
        ..config
    };
    let mut cluster = Cluster::of(3, short).await;
    let holder = Asker::new("nightly");
    let (place, leader) = cluster.leader().await;
    let grant = holder.granted(&*leader, 600_000).await;
    let mut away = Vec::new();
    for other in (0..3).rev().filter(|other| *other != place) {
        let listen = cluster.members[other].address().parse().unwrap();
        away.push((cluster.stop(other).await, listen));
    }
    let session = holder.session;
    let release = holder.command(Command::Release(Release::Tenure {
        token: grant.token,
        session,
    }));
    let error = leader.apply(release.clone()).await.unwrap_err();
    assert!(
        matches!(
            error,
            StoreError::Unknown { .. } | StoreError::Unavailable { .. }
        ),
        "{error:?}"
    );
    let error = leader.status(&holder.name).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    // Old news is to be had.
    assert_eq!(leader.peek(&holder.name).unwrap().token, Some(grant.token));

    for (folder, listen) in away {
        let back = RaftStore::start(Config {
            listen: Some(listen),
            ..short(config(folder.path()))
        });
        cluster.members.push(back.await.unwrap());
        cluster.folders.push(folder);
    }
    let released = || async {
        match leader.apply(release.clone()).await {
            Ok(outcome) => Some(answer(Ok(outcome))),
            Err(StoreError::Invalid { what }) => panic!("{what}"),
            Err(_) => None,
        }
    };
    let released = until("a majority is back", released).await;
    assert!(
        matches!(released, Answer::Released | Answer::AlreadyOver),
        "{released:?}"
    );
    cluster.end().await;
}

/// A member of another cluster is no member of this one.
#[tokio::test]
async fn members_of_other_clusters_are_turned_away() {
    let (mut one, mut other) = (
        Cluster::of(1, |config| config).await,
        Cluster::of(1, |config| config).await,
    );
    let error = other.members[0]
        .join(one.members[0].address())
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("you belong to cluster"),
        "{error}"
    );
    let error = one.members[0].init().await.unwrap_err();
    assert!(
        error.to_string().contains("belongs to a cluster already"),
        "{error}"
    );
    one.end().await;
    other.end().await;
}

/// R9, A21, INV-8: a restored cluster is another one, and issues only tokens above whatever was issued meanwhile.
#[tokio::test]
async fn a_restored_cluster_is_another_one_with_larger_tokens() {
    let mut cluster = Cluster::of(1, |config| config).await;
    let old = cluster.members[0].clone();
    let (holder, rival) = (Asker::new("nightly"), Asker::new("nightly"));
    holder.granted(&*old, 2_000).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("copy");
    old.snapshot(&file).await.unwrap();
    // What the copy does not know.
    let force = || holder.command(Command::ForceRelease { now: true });
    answer(old.apply(force()).await);
    let late = rival.granted(&*old, 2_000).await.token;

    let fresh = config(&folder.path().join("member"));
    let listen = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let fresh = Config {
        listen: Some(listen),
        ..fresh
    };
    leasehold_raft::restore(&file, &fresh, listen.to_string()).unwrap();
    let error = leasehold_raft::restore(&file, &fresh, listen.to_string()).unwrap_err();
    assert!(error.to_string().contains("needs a new folder"), "{error}");
    let store = RaftStore::start(fresh).await.unwrap();
    assert_ne!(store.report().cluster, old.report().cluster);
    let asked = answer(store.apply(rival.acquire(2_000)).await);
    assert!(matches!(asked, Answer::Quarantined { .. }), "{asked:?}");
    let granted = || async {
        match answer(store.apply(rival.acquire(60_000)).await) {
            Answer::Granted(grant) => Some(grant.token),
            _ => None,
        }
    };
    assert!(until("the quarantine is over", granted).await > late);
    // It grows like any other cluster.
    let second = tempfile::tempdir().unwrap();
    let joined = RaftStore::start(config(second.path())).await.unwrap();
    joined.join(store.address()).await.unwrap();
    assert!(joined.status(&holder.name).await.unwrap().is_some());
    joined.stop().await;
    store.stop().await;
    cluster.end().await;
}
