//! Databases that were put back (E8, E9, FB-7, T7, A9): what can be told is quarantined and tokens jump; what cannot is
//! for the operator's bump (T6, A10).

use std::{fs, process::Command};

use leasehold::{
    Token,
    core::{Answer, Op, Outcome},
};

use crate::{
    ask::{Shared, acquire, answer, granted, granted_at_last, release},
    server::Server,
    session::Session,
};

/// Grants and gives back until this many tokens are out; the last one is kept.
async fn issue(store: &Shared, from: u64, to: u64) {
    for token in from..=to {
        let who = 100 + u128::from(token);
        assert_eq!(granted(store, "job", who, 1500).await, token);
        if token < to {
            answer(store, release("job", who, token)).await.unwrap();
        }
    }
}

/// What every kind of restore that can be told leads to: nobody holds for a ttl, no old token passes, the next is larger
/// than any that was ever out.
async fn is_quarantined(server: &Server, newest: u64) {
    let (store, session) = (server.store().await, Session::open(server).await);
    session.must("BEGIN").await;
    let fence = "SELECT leasehold.fence('job', 20)";
    let refused = session.refused(fence, "LH001").await;
    assert!(refused.contains("before a failover"), "{refused}");
    session.must("ROLLBACK").await;
    let first = answer(&store, acquire("job", 1, 1500)).await.unwrap();
    assert!(matches!(first, Answer::Quarantined { .. }), "{first:?}");
    let late = answer(&store, acquire("job", 120, 1500)).await.unwrap();
    assert!(
        matches!(late, Answer::Quarantined { .. }),
        "its old holder as well: {late:?}"
    );
    let next = granted_at_last(&store, "job", 1, 1500).await;
    assert!(next > newest && next > 1_700_000_000_000, "{next}");
    // Names that nobody touched before are as they were: their first token is in nobody's hands.
    assert_eq!(granted(&store, "new", 1, 1500).await, 1);
}

/// FB-7, T7: tokens 1 to 30, a dump at 20, loaded into a new server. Ledger and fences come along.
#[tokio::test]
async fn a_dump_that_is_loaded_elsewhere_is_quarantined() {
    let Some(old) = Server::ready().await else {
        return;
    };
    let store = old.store().await;
    issue(&store, 1, 20).await;
    let session = Session::open(&old).await;
    session
        .must("SELECT leasehold.raise('printer', 'far', 7)")
        .await;
    session
        .must("CREATE TABLE report(v int); SELECT leasehold.protect('report', 'job')")
        .await;
    let dump = old.folder().join("dump.sql");
    let to = dump.display().to_string();
    old.must("pg_dump", ["-d", &old.url(), "-f", &to]);
    answer(&store, release("job", 120, 20)).await.unwrap();
    issue(&store, 21, 30).await;

    let new = Server::start(&crate::server::Version::one().unwrap());
    let loaded = new.script(&fs::read_to_string(&dump).unwrap());
    let lines: Vec<&str> = loaded
        .lines()
        .filter(|line| !line.contains("restricted"))
        .take(20)
        .collect();
    assert!(!loaded.contains("ERROR"), "{lines:#?}");
    let again = leasehold::store::postgres::migrate(&new.url())
        .await
        .unwrap();
    assert_eq!(again, Some(1));
    is_quarantined(&new, 30).await;
    let session = Session::open(&new).await;
    session
        .refused("SELECT leasehold.raise('printer', 'far', 6)", "LH001")
        .await;
    session
        .refused("INSERT INTO report VALUES (1)", "LH001")
        .await;
    session
        .refused("DELETE FROM leasehold.lease", "LH002")
        .await;
}

/// FB-7, T7: a base backup that is recovered is another timeline.
#[tokio::test]
async fn a_backup_that_is_recovered_is_quarantined() {
    let Some(server) = Server::ready().await else {
        return;
    };
    let store = server.store().await;
    issue(&store, 1, 20).await;
    let backup = server.backup();
    answer(&store, release("job", 120, 20)).await.unwrap();
    issue(&store, 21, 30).await;
    server.stop("immediate");
    backup.configure("restore_command = 'false'\nrecovery_target = 'immediate'\nrecovery_target_action = 'promote'");
    fs::write(
        std::path::Path::new(&backup.data()).join("recovery.signal"),
        "",
    )
    .unwrap();
    backup.run();
    for _ in 0..600 {
        let session = Session::open(&backup).await;
        if session.must("SELECT pg_is_in_recovery()").await == "f" {
            break;
        }
        crate::session::pass(100).await;
    }
    is_quarantined(&backup, 30).await;
}

/// T7, A10: the files of a stopped server, put back as they were, are the truth for all that anybody can tell. The
/// operator says that they are not.
#[tokio::test]
async fn files_that_are_put_back_need_a_bump() {
    let Some(server) = Server::ready().await else {
        return;
    };
    issue(&server.store().await, 1, 20).await;
    server.stop("fast");
    let kept = server.folder().join("kept");
    let copy = |from: &std::path::Path, to: &std::path::Path| {
        let copied = Command::new("cp").arg("-a").arg(from).arg(to).status();
        assert!(copied.unwrap().success());
    };
    let data = std::path::PathBuf::from(server.data());
    copy(&data, &kept);
    server.run();
    let store = server.store().await;
    let next = granted_at_last(&store, "job", 121, 1500).await;
    assert_eq!(next, 21);
    answer(&store, release("job", 121, 21)).await.unwrap();
    issue(&store, 22, 30).await;
    server.stop("immediate");
    fs::remove_dir_all(&data).unwrap();
    copy(&kept, &data);
    server.run();
    let store = server.store().await;
    assert_eq!(
        granted_at_last(&store, "job", 7, 1500).await,
        21,
        "nobody can tell: token 21 again"
    );

    let session = Session::open(&server).await;
    let clock = session
        .must("SELECT leasehold.micros(clock_timestamp()) / 1000")
        .await;
    let above = Token::new(clock.parse().unwrap()).unwrap();
    assert_eq!(
        store.apply(Op::Bump { above }).await.unwrap(),
        Outcome::Done
    );
    session.must("BEGIN").await;
    session
        .refused("SELECT leasehold.fence('job', 21)", "LH001")
        .await;
    session.must("ROLLBACK").await;
    let next = granted_at_last(&store, "job", 8, 1500).await;
    assert!(next > above.get(), "{next}");
    assert!(granted(&store, "new", 8, 1500).await > above.get(), "T5");
}
