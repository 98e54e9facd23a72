//! Tables that belong to a lease: no client writes to them without the fence (A19, F22).

use std::{path::PathBuf, process::Command};

use crate::{server::Server, session::Session};

const TABLES: &str = "
    CREATE TABLE plain(id int PRIMARY KEY, v int);
    CREATE TABLE child(id int REFERENCES plain ON DELETE CASCADE);
    CREATE TABLE parted(id int, v int) PARTITION BY RANGE (id);
    CREATE TABLE parted_low PARTITION OF parted FOR VALUES FROM (0) TO (10);
    CREATE TABLE heir() INHERITS (plain);
    INSERT INTO plain VALUES (0, 0); INSERT INTO child VALUES (0); INSERT INTO parted VALUES (0, 0);
    SELECT leasehold.protect('plain', 'job'); SELECT leasehold.protect('parted', 'job');
    SELECT leasehold.protect('child', 'job');
    CREATE TABLE parted_high PARTITION OF parted FOR VALUES FROM (10) TO (20);";

const WRITES: [&str; 14] = [
    "INSERT INTO plain VALUES (1, 1)",
    "UPDATE plain SET v = 2",
    "UPDATE plain SET v = 2 WHERE false",
    "DELETE FROM plain WHERE id = 0",
    "TRUNCATE plain CASCADE",
    "COPY plain FROM PROGRAM 'echo 7,7' WITH (FORMAT csv)",
    "INSERT INTO plain VALUES (0, 9) ON CONFLICT (id) DO UPDATE SET v = 9",
    "WITH x AS (INSERT INTO plain VALUES (3, 3) RETURNING id) SELECT * FROM x",
    "INSERT INTO heir VALUES (4, 4)",
    "INSERT INTO parted VALUES (1, 1)",
    "INSERT INTO parted_low VALUES (2, 2)",
    "UPDATE parted_low SET v = 3",
    "TRUNCATE parted_low",
    "INSERT INTO parted_high VALUES (11, 2)",
];

/// A19, F22, INV-22.
#[tokio::test]
async fn a_protected_table_refuses_every_write_without_the_fence() {
    let Some(server) = Server::ready().await else {
        return;
    };
    let session = Session::open(&server).await;
    session.must(TABLES).await;
    let token = session.granted("job", "me", 60_000).await;
    let other = session.granted("other", "me", 60_000).await;
    for write in WRITES {
        let refused = session.refused(write, "LH001").await;
        assert!(refused.contains("belongs to the lease job"), "{refused}");
        session.must("BEGIN").await;
        session
            .must(&format!("SELECT leasehold.fence('other', {other})"))
            .await;
        session.refused(write, "LH001").await;
        session.must("ROLLBACK").await;
        session.must("BEGIN").await;
        session
            .must(&format!("SELECT leasehold.fence('job', {token})"))
            .await;
        session.must(write).await;
        session.must("ROLLBACK").await;
    }
    session
        .must("SELECT leasehold.unprotect('plain'); SELECT leasehold.unprotect('parted')")
        .await;
    session
        .must("UPDATE plain SET v = 5; INSERT INTO parted_low VALUES (5, 5)")
        .await;
    session
        .refused("DELETE FROM plain WHERE id = 0", "LH001")
        .await;
}

/// A19: lock and pass go together.
#[tokio::test]
async fn a_pass_ends_with_its_transaction_or_savepoint() {
    let Some(server) = Server::ready().await else {
        return;
    };
    let session = Session::open(&server).await;
    session.must(TABLES).await;
    let token = session.granted("job", "me", 60_000).await;
    let fence = format!("SELECT leasehold.fence('job', {token})");
    session.must("BEGIN").await;
    session.must("SAVEPOINT s").await;
    session.must(&fence).await;
    session.must("UPDATE plain SET v = 1").await;
    session.must("ROLLBACK TO SAVEPOINT s").await;
    session.refused("UPDATE plain SET v = 2", "LH001").await;
    session.must("ROLLBACK").await;

    session.must("BEGIN").await;
    session.must(&fence).await;
    let passed = session.must("SHOW leasehold.passed").await;
    session.must("UPDATE plain SET v = 3").await;
    session.must("COMMIT").await;
    session.refused("UPDATE plain SET v = 4", "LH001").await;
    // A pass that was kept is none in the next transaction.
    session
        .must(&format!(
            "SET leasehold.passed = E'{}\\n'",
            passed.replace('\n', "\\n").replace('\t', "\\t")
        ))
        .await;
    session.refused("UPDATE plain SET v = 5", "LH001").await;
    assert_eq!(session.must("SELECT v FROM plain").await, "3");
}

/// The story of the frozen holder, told by psql and by Python.
#[tokio::test]
async fn psql_and_psycopg_are_fenced() {
    let Some(server) = Server::ready().await else {
        return;
    };
    let session = Session::open(&server).await;
    session.must(TABLES).await;
    let old = session.granted("job", "old", 60_000).await;
    session
        .must("SELECT leasehold.force_release('job', true)")
        .await;
    let new = session.granted("job", "new", 60_000).await;
    let script = |token: i64, value: i64| {
        format!(
            "BEGIN;\nSELECT leasehold.fence('job', {token});\nUPDATE plain SET v = {value};\nCOMMIT;\n"
        )
    };
    assert!(
        server.script(&script(new, 10)).contains("v10")
            || session.must("SELECT v FROM plain").await == "10"
    );
    let refused = server.script(&script(old, 11));
    assert!(
        refused.contains(&format!("token {old} is older than {new}")),
        "{refused}"
    );
    assert_eq!(session.must("SELECT v FROM plain").await, "10");

    let Some(python) = psycopg() else {
        crate::server::skipped("no psycopg; run `make setup`");
        return;
    };
    let python = |token: i64, value: i64| {
        let program = format!(
            "import psycopg\nwith psycopg.connect('{}') as c:\n  try:\n    with c.transaction():\n      \
             c.execute('SELECT leasehold.fence(%s, %s)', ('job', {token}))\n      \
             c.execute('UPDATE plain SET v = %s', ({value},))\n    print('written')\n  \
             except psycopg.Error as e:\n    print(e.sqlstate, e)\n",
            server.url()
        );
        let output = Command::new("python3")
            .env("PYTHONPATH", &python)
            .args(["-c", &program])
            .output()
            .expect("python3 runs");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    assert_eq!(python(new, 20).trim(), "written");
    let refused = python(old, 21);
    assert!(
        refused.starts_with("LH001")
            && refused.contains(&format!("token {old} is older than {new}")),
        "{refused}"
    );
    assert_eq!(session.must("SELECT v FROM plain").await, "20");
}

fn psycopg() -> Option<PathBuf> {
    let home = std::env::var_os("HOME")
        .map(PathBuf::from)
        .unwrap_or_default();
    let caches = [PathBuf::from("/var/cache"), home.join(".cache")];
    caches
        .iter()
        .map(|cache| cache.join("leasehold/psycopg"))
        .find(|folder| folder.join("psycopg").is_dir())
}
