//! Three members, of which one is killed, stopped or alone; an etcd without space; a history that was compacted. Each
//! is a clear error, and none makes two holders (L14).

use std::time::Duration;

use etcd_client::Client;
use leasehold::{Keeper, SharedStore, StoreError, core::Answer, store::Level};
use rustix::process::Signal;

use crate::{
    asker::{Asker, lease},
    server::{Server, Settings, Version},
};

struct Cluster {
    members: Vec<Server>,
    store: SharedStore,
}

impl Cluster {
    async fn start() -> Option<Cluster> {
        let settings = Settings {
            heartbeat: 200,
            election: 2000,
            ..Settings::default()
        };
        let mut members = Server::members(&Version::newest()?, &settings, 3);
        members.iter_mut().for_each(Server::run);
        for member in &members {
            member.ready().await;
        }
        let places: Vec<String> = members.iter().map(Server::place).collect();
        let store = leasehold::connect(&format!("etcd://{}", places.join(",")))
            .await
            .unwrap();
        Some(Cluster { members, store })
    }

    /// The index of the member that leads.
    async fn head(&self) -> usize {
        for _ in 0..600 {
            for (index, member) in self.members.iter().enumerate() {
                let asked = async {
                    let mut client = Client::connect([member.place()], None).await?;
                    client.status().await
                };
                if let Ok(Ok(status)) = tokio::time::timeout(Duration::from_secs(3), asked).await
                    && status.leader() == status.header().unwrap().member_id()
                {
                    return index;
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("nobody leads")
    }

    /// While something befalls the members, somebody holds and somebody else asks: as soon as the second is granted the
    /// first must have stopped, on its own clock, and the token be larger.
    async fn nobody_is_two(&self) {
        let keeper = Keeper::new(self.store.clone(), lease("job")).ttl(crate::asker::ttl(4));
        let guard = keeper.acquire().await.unwrap();
        let other = Asker::new(&self.store, "job", 4);
        let mut renewed = 0;
        let mut last = guard.deadline();
        for _ in 0..600 {
            if renewed > 5 {
                break;
            }
            match other.ask().await {
                Ok(Answer::Granted(grant)) => {
                    assert!(guard.check().is_err(), "two hold");
                    assert!(grant.token > guard.token());
                    return;
                }
                Ok(_) | Err(StoreError::Unavailable { .. } | StoreError::Unknown { .. }) => {}
                Err(error) => panic!("{error}"),
            }
            if guard.deadline() > last {
                last = guard.deadline();
                renewed += 1;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        guard.release().await.unwrap();
        assert!(other.take().await > leasehold::Token::FIRST);
    }
}

/// FB-4, FB-77: the leader is killed.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_leader_makes_no_second_holder() {
    let Some(mut cluster) = Cluster::start().await else {
        return;
    };
    let first = Asker::new(&cluster.store, "first", 60);
    let token = first.take().await;
    let head = cluster.head().await;
    cluster.members[head].kill();
    cluster.nobody_is_two().await;
    for number in 1..600 {
        match first.renew(token, number).await {
            Ok(answer) => {
                assert!(
                    matches!(answer, Answer::Renewed { .. }),
                    "{answer:?}: a change of the leader ends nothing"
                );
                return;
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
    panic!("no answer within a minute");
}

/// FB-7, FB-24: the leader is stopped for longer than the ttl, and wakes up as a leader.
#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_leader_makes_no_second_holder() {
    let Some(cluster) = Cluster::start().await else {
        return;
    };
    let head = cluster.head().await;
    cluster.members[head].signal(Signal::STOP);
    let playing = cluster.nobody_is_two();
    playing.await;
    cluster.members[head].signal(Signal::CONT);
    cluster.nobody_is_two().await;
}

/// L14: without a quorum nothing is granted, nothing is kept, and the error says what is missing.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_quorum_nobody_gets_and_nobody_keeps() {
    let Some(cluster) = Cluster::start().await else {
        return;
    };
    let asker = Asker::new(&cluster.store, "job", 4);
    let token = asker.take().await;
    for member in &cluster.members[1..] {
        member.signal(Signal::STOP);
    }
    let (kept, asked) = (
        asker.renew(token, 1).await,
        Asker::new(&cluster.store, "other", 4).ask().await,
    );
    for error in [kept.unwrap_err(), asked.unwrap_err()] {
        assert!(
            matches!(
                error,
                StoreError::Unavailable { .. } | StoreError::Unknown { .. }
            ),
            "{error}"
        );
    }
    for member in &cluster.members[1..] {
        member.signal(Signal::CONT);
    }
    let next = Asker::new(&cluster.store, "job", 4);
    assert!(next.take().await > token);
}

/// ET11: without space nobody gets a lease; whoever has one keeps it and gives it back.
#[tokio::test]
async fn without_space_leases_are_kept_but_not_given() {
    for version in Version::all() {
        let settings = Settings {
            quota: 4 << 20,
            ..Settings::default()
        };
        let server = Server::with(&version, settings).await;
        let store = leasehold::connect(&server.url()).await.unwrap();
        let (asker, other) = (
            Asker::new(&store, "job", 60),
            Asker::new(&store, "other", 60),
        );
        let token = asker.take().await;
        let mut client = Client::connect([server.place()], None).await.unwrap();
        let mut full = false;
        for number in 0..1000 {
            if client
                .put(format!("big/{number}"), vec![b'x'; 200_000], None)
                .await
                .is_err()
            {
                full = true;
                break;
            }
        }
        assert!(full, "the quota is reached");
        let error = other.ask().await.unwrap_err();
        assert!(
            matches!(&error, StoreError::Unavailable { what } if what.contains("NOSPACE")),
            "{error}"
        );
        let findings = store.examine().await.unwrap();
        assert!(
            findings
                .iter()
                .any(|one| one.level == Level::Fault && one.what.contains("space")),
            "{findings:?}"
        );
        let answer = asker.renew(token, 1).await.unwrap();
        assert!(matches!(answer, Answer::Renewed { .. }), "{answer:?}");
        assert_eq!(asker.release(token).await, Answer::Released);
        let status = store.status(&lease("job")).await.unwrap().unwrap();
        assert_eq!(status.state, leasehold::core::State::Free);
    }
}

/// FB-97, FB-69: a waiter whose watch is at a compacted revision still hears, or asks.
#[tokio::test]
async fn a_compacted_history_keeps_no_waiter_from_its_lease() {
    let Some(version) = Version::newest() else {
        return;
    };
    let server = Server::start(&version).await;
    let store = leasehold::connect(&server.url()).await.unwrap();
    let (a, b) = (Asker::new(&store, "job", 60), Asker::new(&store, "job", 60));
    let token = a.take().await;
    for _ in 0..2 {
        assert!(matches!(b.ask().await.unwrap(), Answer::Held(_)));
    }
    for number in 0..20 {
        server.ctl(["put", "noise", &number.to_string()]);
    }
    let mut client = Client::connect([server.place()], None).await.unwrap();
    let revision = client
        .get("noise", None)
        .await
        .unwrap()
        .header()
        .unwrap()
        .revision();
    client.compact(revision, None).await.unwrap();
    assert_eq!(a.release(token).await, Answer::Released);
    assert!(b.take().await > token);
    let answer = b.ask().await.unwrap();
    assert!(matches!(answer, Answer::Granted(_)), "L2.1: {answer:?}");
}
