//! What a crash, a failover and a reload keep: every token that was answered (INV-7, INV-8, T4, PG9).

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use leasehold::{
    Holder, LeaseName, LockDelay, RequestId, Session as Key, Store, Ttl,
    core::{Acquire, Answer, Command, Op, Outcome, Release},
};

use crate::{
    server::Server,
    session::{Session, pass},
};

/// INV-7, M8, E8b: also where the server was told not to wait for its disk.
#[tokio::test]
async fn a_crash_loses_no_answered_token() {
    let settings = "synchronous_commit = off\nwal_writer_delay = 10s\nwal_writer_flush_after = 0";
    let Some(server) = Server::ready_with(settings).await else {
        return;
    };
    let mut answered = HashMap::new();
    let session = Session::open(&server).await;
    for round in 0..40 {
        let lease = format!("job-{}", round % 4);
        let token = session
            .granted(&lease, &format!("holder-{round}"), 60_000)
            .await;
        answered.insert(lease.clone(), token);
        session
            .must(&format!("SELECT answer FROM leasehold.release('{lease}', {token}, md5('holder-{round}')::uuid, NULL)"))
            .await;
    }
    server.stop("immediate");
    server.run();
    let session = Session::open(&server).await;
    for (lease, token) in answered {
        let stored = session
            .must(&format!(
                "SELECT token FROM leasehold.lease WHERE name = '{lease}'"
            ))
            .await;
        assert!(
            stored.parse().unwrap_or(0) >= token,
            "{lease}: {stored} is behind {token}"
        );
    }
}

/// A primary whose last grants its standby never saw, gone; the standby is the primary now. The token that was lost.
async fn lost_grants(policy: &str) -> Option<(Server, i64)> {
    let primary = Server::ready().await?;
    let session = Session::open(&primary).await;
    session
        .must(&format!("UPDATE leasehold.meta SET policy = '{policy}'"))
        .await;
    assert_eq!(session.granted("job", "a", 2000).await, 1);
    let standby = primary.standby();
    standby.stop("fast");
    let mut token = 1;
    for _ in 0..5 {
        session
            .must("SELECT leasehold.force_release('job', true)")
            .await;
        token = session.granted("job", "b", 2000).await;
    }
    primary.stop("immediate");
    standby.run();
    standby.promote();
    Some((standby, token))
}

/// INV-8, E9, F14b, PG9.
#[tokio::test]
async fn a_promoted_standby_repeats_no_token() {
    let Some((server, lost)) = lost_grants("quarantine").await else {
        return;
    };
    let session = Session::open(&server).await;
    let shown = session
        .must("SELECT state FROM leasehold.status WHERE name = 'job'")
        .await;
    assert_eq!(shown, "quarantined");
    session.must("BEGIN").await;
    let zombie = session
        .refused("SELECT leasehold.fence('job', 1)", "LH001")
        .await;
    assert!(zombie.contains("before a failover"), "{zombie}");
    session.must("ROLLBACK").await;
    let answer = session.acquire("job", "c", 2000).await;
    assert!(answer.starts_with("quarantined"), "{answer}");
    let renewed =
        "SELECT answer FROM leasehold.renew('job', 1, md5('a')::uuid, 2000, 1, gen_random_uuid())";
    assert_eq!(session.must(renewed).await, "taken");
    assert!(session.granted("job", "c", 2000).await > lost);
}

/// PG9: where replication loses nothing, holders live on.
#[tokio::test]
async fn trusted_replication_keeps_the_holder() {
    let Some((server, _)) = lost_grants("trust_sync").await else {
        return;
    };
    let session = Session::open(&server).await;
    // Before anybody touched it, a fenced write waits for the first touch.
    session.must("BEGIN").await;
    session
        .refused("SELECT leasehold.fence('job', 1)", "LH001")
        .await;
    session.must("ROLLBACK").await;
    let renewed =
        "SELECT answer FROM leasehold.renew('job', 1, md5('a')::uuid, 2000, 1, gen_random_uuid())";
    assert_eq!(session.must(renewed).await, "renewed");
    session.must("BEGIN").await;
    session.must("SELECT leasehold.fence('job', 1)").await;
    session.must("COMMIT").await;
}

/// A9: a table that was written anew, in the same cluster, is another history.
#[tokio::test]
async fn a_reloaded_table_is_quarantined() {
    let Some(server) = Server::ready().await else {
        return;
    };
    let session = Session::open(&server).await;
    assert_eq!(session.granted("job", "a", 1000).await, 1);
    session
        .must(
            "CREATE TABLE kept AS SELECT * FROM leasehold.lease; SET session_replication_role = replica; \
             TRUNCATE leasehold.lease; INSERT INTO leasehold.lease SELECT * FROM kept; RESET session_replication_role",
        )
        .await;
    let answer = session.acquire("job", "b", 1000).await;
    assert!(answer.starts_with("quarantined"), "{answer}");
    assert!(session.granted("job", "b", 1000).await > 1_700_000_000_000);
    session
        .refused("DELETE FROM leasehold.lease", "LH002")
        .await;
    session.refused("TRUNCATE leasehold.lease", "LH002").await;
}

const HOLDERS: usize = 50;
const LEASES: usize = 10;

/// What one holder was told and what it wrote.
#[derive(Debug)]
struct Told {
    lease: String,
    token: u64,
    who: usize,
}

/// INV-1, INV-8, INV-20: the primary dies under fifty holders, the standby takes over; no token twice, no old write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_holders_survive_a_failover() {
    let Some(primary) = Server::ready().await else {
        return;
    };
    let session = Session::open(&primary).await;
    session
        .must("CREATE TABLE effect(id bigserial PRIMARY KEY, lease text, token bigint, who int); SELECT leasehold.protect('effect', 'none'); SELECT leasehold.unprotect('effect')")
        .await;
    let standby = primary.standby();
    let hosts = [primary.port(), standby.port()];
    let url = format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres?target_session_attrs=read-write",
        hosts[0], hosts[1]
    );
    let store = leasehold::connect(&url).await.unwrap();
    let (told, over) = (
        Arc::new(Mutex::new(Vec::new())),
        Arc::new(AtomicBool::new(false)),
    );
    let mut holders = Vec::new();
    for who in 0..HOLDERS {
        let (store, told, over, url) = (store.clone(), told.clone(), over.clone(), url.clone());
        holders.push(tokio::spawn(async move {
            hold(who, &*store, &url, &told, &over).await;
        }));
    }
    pass(4000).await;
    primary.stop("immediate");
    let before = told.lock().unwrap().len();
    standby.promote();
    pass(9000).await;
    over.store(true, Ordering::Relaxed);
    for holder in holders {
        holder.await.unwrap();
    }
    let told = std::mem::take(&mut *told.lock().unwrap());
    let mut tokens = HashMap::new();
    for Told { lease, token, who } in &told {
        if let Some(other) = tokens.insert((lease.clone(), *token), *who) {
            panic!("token {token} of {lease} went to {other} and to {who}");
        }
    }
    println!(
        "{before} grants before the failover, {} after",
        told.len() - before
    );
    assert!(before > 0 && told.len() > before, "both servers granted");
    let session = Session::open(&standby).await;
    let old = session
        .must("SELECT count(*) FROM effect a JOIN effect b USING (lease) WHERE a.id < b.id AND a.token > b.token")
        .await;
    assert_eq!(old, "0", "a write of an old tenure");
    assert_ne!(session.must("SELECT count(*) FROM effect").await, "0");
}

/// Asks, writes under the fence, gives back; asks again with the same ids after every doubt.
async fn hold(
    who: usize,
    store: &dyn Store,
    url: &str,
    told: &Mutex<Vec<Told>>,
    over: &AtomicBool,
) {
    let lease = format!("job-{}", who % LEASES);
    let name = LeaseName::new(&lease).unwrap();
    let key = Key::from_bits(who as u128 + 1).unwrap();
    let mut wish = 0;
    while !over.load(Ordering::Relaxed) {
        let request_id = RequestId::from_bits((who as u128 + 1) << 32 | (wish + 1)).unwrap();
        let acquire = Op::Lease {
            name: name.clone(),
            command: Command::Acquire(Acquire {
                session: key,
                request_id,
                holder: Holder::new(&format!("holder-{who}")).unwrap(),
                info: None,
                ttl: Ttl::from_millis(1000).unwrap(),
                lock_delay: LockDelay::NONE,
            }),
        };
        match store.apply(acquire).await {
            Ok(Outcome::Lease(Answer::Granted(grant))) => {
                let token = grant.token;
                told.lock().unwrap().push(Told {
                    lease: lease.clone(),
                    token: token.get(),
                    who,
                });
                write(url, &lease, token.get(), who).await;
                let release = Command::Release(Release::Tenure {
                    token,
                    session: key,
                });
                let _ = store
                    .apply(Op::Lease {
                        name: name.clone(),
                        command: release,
                    })
                    .await;
                wish += 1;
            }
            Ok(Outcome::Lease(Answer::AlreadyUsed)) => wish += 1,
            _ => {}
        }
        tokio::time::sleep(Duration::from_millis(50 + (who as u64 * 7) % 100)).await;
    }
}

/// One fenced write by a client of its own; that the server is gone is no news.
async fn write(url: &str, lease: &str, token: u64, who: usize) {
    let Ok((mut client, connection)) = tokio_postgres::connect(url, tokio_postgres::NoTls).await
    else {
        return;
    };
    tokio::spawn(connection);
    let Ok(step) = client.transaction().await else {
        return;
    };
    if step
        .batch_execute(&format!("SELECT leasehold.fence('{lease}', {token})"))
        .await
        .is_ok()
        && step
            .batch_execute(&format!(
                "INSERT INTO effect(lease, token, who) VALUES ('{lease}', {token}, {who})"
            ))
            .await
            .is_ok()
    {
        let _ = step.commit().await;
    }
}
