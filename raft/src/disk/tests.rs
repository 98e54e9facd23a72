//! The files of a member: what each version looks like, and what is refused.

use std::{fmt::Write as _, fs, path::Path, sync::Arc};

use leasehold_core::{
    Acquire, Command, Holder, Key, LockDelay, Op, RequestId, Session, Stamp, StoreTime, Ttl, Value,
    WallTime,
};
use openraft::{
    storage::{IOFlushed, RaftLogStorage},
    type_config::TypeConfigExt,
};
use rusqlite::Connection;
use tempfile::{TempDir, tempdir};

use super::*;
use crate::{
    codec::{Content, Members},
    config::Config,
    log::Log,
    machine::State,
    store::RaftStore,
    types::{Act, Address, Batch, Types, log_id},
    writer::{Ask, Done, Writer},
};

const NEWCOMER: Identity = Identity {
    node: 7,
    cluster: None,
};

/// One of each kind, the same every time.
fn items() -> Vec<Item> {
    let acquire = Acquire {
        session: Session::from_bits(0x0123_4567_89ab_cdef).unwrap(),
        request_id: RequestId::from_bits(2).unwrap(),
        holder: Holder::new("host-1").unwrap(),
        info: None,
        ttl: Ttl::from_millis(15_000).unwrap(),
        lock_delay: LockDelay::NONE,
    };
    let put = Op::Put {
        key: Key::new("k").unwrap(),
        value: Value::new(b"v").unwrap(),
        proof: None,
    };
    let lease = Op::Lease {
        name: "nightly".parse().unwrap(),
        command: Command::Acquire(acquire),
    };
    let stamp = Stamp {
        now: StoreTime::from_nanos(5),
        wall: WallTime::from_nanos(6),
    };
    let acts = vec![Act::Op(lease), Act::Op(put), Act::Collect];
    let members = Members {
        voters: vec![[1, 2].into(), [2, 3].into()],
        nodes: (1..4)
            .map(|node| (node, Address(format!("h:{node}"))))
            .collect(),
    };
    let contents = [
        Content::Members(members),
        Content::Blank,
        Content::Batch(Batch::new(1, stamp, acts)),
    ];
    let numbered = contents.into_iter().zip(0..);
    numbered
        .map(|(content, index)| Item {
            id: Id { term: 1, index },
            content,
        })
        .collect()
}

fn entries() -> Vec<Entry> {
    items()
        .into_iter()
        .map(|item| item.entry().unwrap())
        .collect()
}

/// A folder with the entries in its log.
fn folder() -> TempDir {
    let folder = tempdir().unwrap();
    let (mut disk, found) = Disk::open(folder.path(), NEWCOMER).unwrap();
    assert_eq!((found.identity, found.entries.len()), (NEWCOMER, 0));
    disk.write(&[Change::Append(entries())]).unwrap();
    folder
}

fn refusal(folder: &Path) -> String {
    Disk::open(folder, NEWCOMER)
        .expect_err("it is refused")
        .to_string()
}

fn edit(folder: &Path, sql: &str) {
    let db = Connection::open(folder.join("log.db")).unwrap();
    assert_eq!(db.execute(sql, []).unwrap(), 1);
}

/// The format on the disk, byte by byte. A new version gets a new file, and this one must still be read or be refused.
#[test]
fn the_format_on_the_disk_is_that_of_its_version() {
    let ballot = Ballot {
        term: 3,
        node: 7,
        committed: true,
    };
    let identity = Identity {
        node: 7,
        cluster: Some(9),
    };
    let mut text = String::new();
    let mut line = |name: &str, sealed: Vec<u8>| {
        let hex: String = sealed.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(text, "{name} {hex}").unwrap();
    };
    for item in items() {
        let sealed = codec::seal(&item);
        assert_eq!(codec::unseal::<Item>(&sealed), Ok(item.clone()));
        line(&format!("entry {}", item.id.index), sealed);
    }
    line("vote", codec::seal(&ballot));
    line("identity", codec::seal(&identity));
    let mut state = State::default();
    for entry in entries() {
        state.apply(&entry).unwrap();
    }
    line("snapshot", state.to_image().as_bytes().to_vec());

    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("golden/disk-{}.txt", codec::DISK));
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &text).unwrap();
    }
    assert_eq!(
        text,
        fs::read_to_string(&path).unwrap(),
        "UPDATE=1 rewrites it"
    );
}

#[test]
fn what_was_written_is_found_again() {
    let folder = folder();
    let (mut disk, found) = Disk::open(
        folder.path(),
        Identity {
            node: 8,
            cluster: Some(1),
        },
    )
    .unwrap();
    assert_eq!(found.identity, NEWCOMER, "a folder keeps its member");
    assert_eq!(found.entries, entries());
    let vote = Ballot {
        term: 2,
        node: 7,
        committed: false,
    };
    disk.write(&[
        Change::Truncate(2),
        Change::Vote(vote),
        Change::Purge(Id { term: 1, index: 0 }),
    ])
    .unwrap();
    drop(disk);
    let (_, found) = Disk::open(folder.path(), NEWCOMER).unwrap();
    assert_eq!(
        (found.vote, found.purged),
        (Some(vote), Some(Id { term: 1, index: 0 }))
    );
    assert_eq!(found.entries, entries()[1..2]);
}

/// A crash in the middle of a commit leaves half a record at the end of SQLite's log: what was answered is there, and
/// the rest is as if it had never been.
#[test]
fn a_torn_tail_is_cut_off() {
    let folder = tempdir().unwrap();
    let copy = tempdir().unwrap();
    let (mut disk, _) = Disk::open(folder.path(), NEWCOMER).unwrap();
    let entries = entries();
    disk.write(&[Change::Append(entries[..2].to_vec())])
        .unwrap();
    let wal = folder.path().join("log.db-wal");
    let answered = fs::metadata(&wal).unwrap().len();
    disk.write(&[Change::Append(entries[2..].to_vec())])
        .unwrap();
    let whole = fs::metadata(&wal).unwrap().len();
    assert!(whole > answered);
    for length in [answered, answered + 1, (answered + whole) / 2, whole - 1] {
        for name in ["log.db", "log.db-wal"] {
            fs::copy(folder.path().join(name), copy.path().join(name)).unwrap();
        }
        let torn = File::options()
            .write(true)
            .open(copy.path().join("log.db-wal"))
            .unwrap();
        torn.set_len(length).unwrap();
        let (_, found) = Disk::open(copy.path(), NEWCOMER).unwrap();
        assert_eq!(found.entries, entries[..2], "cut at {length} of {whole}");
    }
}

/// R8: a member that forgot a part of what it promised must not go on.
#[test]
fn a_damaged_middle_is_refused_with_what_to_do() {
    let changes = [
        "DELETE FROM log WHERE place = 1",
        "UPDATE log SET entry = (SELECT entry FROM log WHERE place = 0) WHERE place = 1",
        "UPDATE log SET entry = x'01' WHERE place = 1",
        "UPDATE log SET entry = substr(entry, 1, length(entry) - 1) WHERE place = 1",
        "UPDATE log SET entry = CAST(entry || x'00' AS BLOB) WHERE place = 2",
        "DELETE FROM meta WHERE name = 'identity'",
    ];
    for change in changes {
        let folder = folder();
        edit(folder.path(), change);
        let refusal = refusal(folder.path());
        assert!(refusal.contains("is damaged"), "{change}: {refusal}");
        assert!(
            refusal.contains("join as a new member"),
            "{change}: {refusal}"
        );
    }
    let folder = folder();
    let path = folder.path().join("log.db");
    let mut bytes = fs::read(&path).unwrap();
    for byte in bytes.iter_mut().skip(4096).step_by(97) {
        *byte ^= 0x55;
    }
    fs::write(&path, bytes).unwrap();
    assert!(refusal(folder.path()).contains("is damaged"));
}

#[test]
fn files_of_others_and_of_other_versions_are_refused() {
    let folder = folder();
    let db = Connection::open(folder.path().join("log.db")).unwrap();
    db.pragma_update(None, "user_version", 9).unwrap();
    drop(db);
    assert!(refusal(folder.path()).contains("it has format 9"));

    let other = tempdir().unwrap();
    let db = Connection::open(other.path().join("log.db")).unwrap();
    db.execute_batch("CREATE TABLE mine (x)").unwrap();
    drop(db);
    assert!(refusal(other.path()).contains("another program's database"));
}

#[test]
fn one_folder_is_one_member_at_a_time() {
    let folder = tempdir().unwrap();
    let first = Disk::open(folder.path(), NEWCOMER).unwrap();
    assert!(refusal(folder.path()).contains("in use by another process"));
    drop(first);
    Disk::open(folder.path(), NEWCOMER).unwrap();
}

/// R8: what waits shares a commit, and is told when it is on the disk, in the order in which it came.
#[tokio::test]
async fn many_appends_share_one_commit() {
    let folder = tempdir().unwrap();
    let (disk, found) = Disk::open(folder.path(), NEWCOMER).unwrap();
    let done = Arc::new(Done::default());
    let (asks, thread) = Writer::start(disk, done.clone()).unwrap();
    let mut log = Log::new(found, asks.clone(), done);
    let mut answers = Vec::new();
    for index in 0..500 {
        let entry = Item {
            id: Id { term: 1, index },
            content: Content::Blank,
        }
        .entry()
        .unwrap();
        let (signal, answer) = Types::oneshot();
        log.append([entry], IOFlushed::<Types>::signal(signal))
            .await
            .unwrap();
        answers.push(answer);
    }
    for answer in answers {
        answer.await.unwrap().unwrap();
    }
    let (entries, commits) = log.size();
    assert_eq!(entries, 500);
    assert!(commits < 250, "500 appends took {commits} commits");
    asks.send(Ask::Stop).unwrap();
    thread.join().unwrap();
    let (_, found) = Disk::open(folder.path(), NEWCOMER).unwrap();
    assert_eq!(found.entries.len(), 500);
}

/// SQ5: after the first commit that failed nothing is written and nothing is answered as if it were; the member says so.
#[tokio::test]
async fn a_disk_that_failed_once_is_not_trusted_again() {
    let folder = tempdir().unwrap();
    let store = RaftStore::start(Config::new(folder.path())).await.unwrap();
    store.init().await.unwrap();
    let op = || Op::Put {
        key: Key::new("k").unwrap(),
        value: Value::new(b"v").unwrap(),
        proof: None,
    };
    leasehold::Store::apply(&*store, op()).await.unwrap();
    // An entry that is there already: SQLite refuses the commit, as it would on a full or broken disk.
    let twice = Item {
        id: Id { term: 1, index: 0 },
        content: Content::Blank,
    }
    .entry()
    .unwrap();
    store
        .node_for_tests()
        .log
        .send_for_tests(Change::Append(vec![twice]));
    for _ in 0..2 {
        let error = leasehold::Store::apply(&*store, op()).await.unwrap_err();
        assert!(
            matches!(
                error,
                StoreError::Unknown { .. } | StoreError::Unavailable { .. }
            ),
            "{error:?}"
        );
    }
    let report = store.report();
    assert!(report.failed.is_some(), "{report:?}");
    let error = leasehold::Store::status(&*store, &"x".parse().unwrap())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("has stopped"), "{error}");
    store.stop().await;
    drop(store);
    let (_, found) = Disk::open(folder.path(), NEWCOMER).unwrap();
    assert!(found.entries.len() >= 2, "what was answered is there");
    assert_eq!(found.entries[0].log_id, log_id(0, 0));
}
