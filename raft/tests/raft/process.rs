//! Members in processes of their own: killed, stopped, and started again.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, resume_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt;
use leasehold::{
    Store, StoreError,
    clock::{BootClock, Clock},
    store::contract::{self, Time},
};
use leasehold_core::{Answer, Command, Outcome, Renew, RenewId, Ttl};
use leasehold_raft::{Config, RaftStore};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::{
    child::{Member, free_address},
    rig::{Asker, config, random, until},
};

/// One member in this process and two in their own.
struct Three {
    here: Arc<RaftStore>,
    others: Vec<Member>,
    _folders: Vec<TempDir>,
}

impl Three {
    async fn start() -> Self {
        let folders: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
        let here = RaftStore::start(config(folders[0].path())).await.unwrap();
        here.init().await.unwrap();
        let join = |folder: &TempDir| {
            let (folder, address) = (folder.path().to_owned(), here.address().to_owned());
            tokio::task::spawn_blocking(move || {
                Member::start(&folder, free_address(), Some(&address))
            })
        };
        let mut others = Vec::new();
        for folder in &folders[1..] {
            others.push(join(folder).await.unwrap());
        }
        Self {
            here,
            others,
            _folders: folders,
        }
    }

    /// Lets the first of the others lead, and sees it lead.
    async fn let_the_first_lead(&self) {
        let first = self.others[0].node;
        let leads = || async {
            let _ = self.here.transfer(first).await;
            (self.here.report().leads == Some(first)).then_some(())
        };
        until("the first of the others leads", leads).await;
    }
}

/// Real processes keep the contract too, in real time. A change of leaders extends leases, which the suite does not wait
/// for: on a machine that stood still for that long it is run again.
#[tokio::test]
async fn three_processes_keep_the_contract() {
    let three = Three::start().await;
    let mut runs = 0;
    let report = loop {
        runs += 1;
        let term = three.here.report().term;
        let run = AssertUnwindSafe(contract::all(&*three.here, Time::Real));
        match run.catch_unwind().await {
            Ok(report) => break report,
            Err(_) if three.here.report().term != term && runs < 5 => {}
            Err(panic) => resume_unwind(panic),
        }
    };
    assert_eq!(report.skipped.len(), 1, "{report:?}");
    three.here.stop().await;
}

/// PRODUCT 7: the leader is killed under a thousand holders. Each of them asks until it is answered, as a keeper does, and
/// none learns that it lost. What the numbers were is printed; only what must be is judged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_holders_lose_nothing_when_the_leader_is_killed() {
    const HOLDERS: usize = 1_000;
    let mut three = Three::start().await;
    let clock = BootClock::new();
    three.let_the_first_lead().await;
    let mut holders = Vec::new();
    for number in 0..HOLDERS {
        holders.push(Asker::new(&format!("holder-{number}")));
    }
    let ttl = 60_000;
    let granted = three
        .here
        .apply_all(holders.iter().map(|holder| holder.acquire(ttl)).collect());
    for outcome in granted.await {
        assert!(
            matches!(outcome, Ok(Outcome::Lease(Answer::Granted(_)))),
            "{outcome:?}"
        );
    }
    let (renewed, writes) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut tasks = Vec::new();
    for holder in holders {
        let (store, renewed) = (three.here.clone(), renewed.clone());
        tasks.push(tokio::spawn(async move {
            for number in 1..=8 {
                renew(&*store, &holder, number, ttl).await;
                renewed.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        }));
    }
    // And one that writes as fast as it goes, to see when that works again.
    let writer = {
        let (store, writes) = (three.here.clone(), writes.clone());
        tokio::spawn(async move {
            let asker = Asker::new("writer");
            loop {
                if store.apply(asker.acquire(ttl)).await.is_ok() {
                    writes.fetch_add(1, Ordering::Relaxed);
                }
            }
        })
    };
    tokio::time::sleep(Duration::from_millis(700)).await;
    let leader = three.others.remove(0);
    let before = writes.load(Ordering::Relaxed);
    let killed = clock.now();
    let (folder, listen) = leader.kill();
    // Those that were on their way may still be counted.
    until("writing again", || async {
        (writes.load(Ordering::Relaxed) > before + 2).then_some(())
    })
    .await;
    let again = clock.now().since(killed);
    for task in tasks {
        task.await.expect("no holder loses");
    }
    writer.abort();
    println!(
        "{} renewals of {HOLDERS} holders, none lost; writing again {again:?} after the kill (an election takes up to {:?})",
        renewed.load(Ordering::Relaxed),
        config(&folder).election * 2,
    );
    assert_eq!(renewed.load(Ordering::Relaxed), 8 * HOLDERS as u64);
    // The dead one comes back by itself.
    let back = tokio::task::spawn_blocking(move || Member::start(&folder, listen, None));
    let mut back = back.await.unwrap();
    back.tell("look holder-7");
    let said = tokio::task::spawn_blocking(move || back.line());
    assert_eq!(said.await.unwrap(), "token 1");
    three.here.stop().await;
}

/// As a keeper renews: the same ids until there is an answer, and the answer must be yes.
async fn renew(store: &dyn Store, holder: &Asker, number: u64, ttl: u64) {
    let op = holder.command(Command::Renew(Renew {
        token: leasehold_core::Token::new(1).unwrap(),
        session: holder.session,
        ttl: Ttl::from_millis(ttl).unwrap(),
        number,
        renew_id: RenewId::from_bits(random()).unwrap(),
    }));
    let renewed = || async {
        match store.apply(op.clone()).await {
            Ok(Outcome::Lease(Answer::Renewed { .. })) => Some(()),
            Ok(other) => panic!("{} lost: {other:?}", holder.name),
            Err(StoreError::Invalid { what }) => panic!("{what}"),
            Err(_) => None,
        }
    };
    until("it is renewed", renewed).await;
}

/// R5, INV-12: a leader that was stopped wakes up in another world. What it is asked then it answers by that world: it
/// grants nothing that somebody else has, and reads nothing that is old.
#[tokio::test]
async fn a_leader_that_was_stopped_wakes_and_grants_nothing_stale() {
    let mut three = Three::start().await;
    three.let_the_first_lead().await;
    let (first, next) = (Asker::new("nightly"), Asker::new("nightly"));
    first.granted(&*three.here, 1_000).await;
    three.others[0].signal(Signal::STOP);
    // The others elect another, and the lease goes to somebody else.
    let taken = || async {
        match three.here.apply(next.acquire(600_000)).await {
            Ok(Outcome::Lease(Answer::Granted(grant))) => Some(grant.token.get()),
            _ => None,
        }
    };
    assert_eq!(until("the lease is taken over", taken).await, 2);
    // It hears this in the moment in which it wakes.
    let mut sleeper = three.others.remove(0);
    sleeper.tell("take nightly");
    sleeper.tell("look nightly");
    sleeper.signal(Signal::CONT);
    let said = tokio::task::spawn_blocking(move || [sleeper.line(), sleeper.line()]);
    assert_eq!(said.await.unwrap(), ["held 2", "token 2"]);
    three.here.stop().await;
}

/// INV-7: all members are killed at once while they work. What was answered is there when they come back, and tokens go
/// on from there.
#[tokio::test]
async fn all_killed_at_once_forget_nothing_that_was_answered() {
    let folders: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let paths: Vec<_> = folders
        .iter()
        .map(|folder| folder.path().to_owned())
        .collect();
    let addresses = [free_address(), free_address(), free_address()];
    let run = tokio::task::spawn_blocking(move || {
        let first = addresses[0].to_string();
        let start = |number: usize| {
            let join = (number > 0).then_some(first.as_str());
            Member::start(&paths[number], addresses[number], join)
        };
        let mut members: Vec<Member> = (0..3).map(start).collect();
        let mut answered: BTreeMap<String, String> = BTreeMap::new();
        for round in 0..3 {
            for number in 0..30 {
                let name = format!("lease-{round}-{number}");
                let member = &mut members[number % 3];
                member.tell(&format!("take {name}"));
                if number < 20 {
                    answered.insert(name, member.line());
                }
            }
            // Ten are on their way.
            members.drain(..).for_each(|member| drop(member.kill()));
            let fresh: Vec<_> = (0..3)
                .map(|number| {
                    let (path, address) = (paths[number].clone(), addresses[number]);
                    std::thread::spawn(move || Member::start(&path, address, None))
                })
                .collect();
            members = fresh
                .into_iter()
                .map(|member| member.join().unwrap())
                .collect();
        }
        for (name, said) in &answered {
            assert_eq!(said, "granted 1", "{name}");
            members[1].tell(&format!("look {name}"));
            assert_eq!(members[1].line(), "token 1", "{name} was forgotten");
            members[2].tell(&format!("take {name}"));
            assert_eq!(members[2].line(), "held 1", "{name} was given twice");
        }
        answered.len()
    });
    assert_eq!(run.await.unwrap(), 60);
}

/// The same member twice would vote twice.
#[tokio::test]
async fn a_member_does_not_run_twice() {
    let folder = tempfile::tempdir().unwrap();
    let store = RaftStore::start(config(folder.path())).await.unwrap();
    let twice = RaftStore::start(Config {
        listen: None,
        ..config(folder.path())
    });
    let error = twice.await.unwrap_err();
    assert!(
        error.to_string().contains("in use by another process"),
        "{error}"
    );
    store.stop().await;
}
