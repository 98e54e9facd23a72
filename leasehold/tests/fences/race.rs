//! Holders that overlap, on real connections: what the list shows is in the order of tokens, complete, and nothing more.
//! The same run without the check must show the fault, or the test would prove nothing (10.3).

use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use leasehold::fence::{
    FenceError,
    sqlite::{barrier, check},
};

use crate::{append, begin, database, list, open, proof, reports};

/// What the holders were told.
#[derive(Default)]
struct Told {
    written: Mutex<Vec<(u64, String)>>,
    refused: AtomicU64,
}

/// Tenures follow one another; the holder of each does not know that it is over and writes on.
fn hold(path: &Path, tokens: &AtomicU64, fenced: bool, told: &Told) {
    let mut db = open(path);
    for _ in 0..12 {
        let token = tokens.fetch_add(1, Ordering::Relaxed) + 1;
        if fenced {
            // A holder that froze before its first step is refused at the barrier.
            match barrier(&mut db, &reports(), &proof(token)) {
                Ok(()) => {}
                Err(FenceError::Refused(_)) => continue,
                Err(error) => panic!("{error}"),
            }
        }
        for step in 0..12 {
            let tx = begin(&mut db);
            match if fenced {
                check(&tx, &reports(), &proof(token))
            } else {
                Ok(())
            } {
                Ok(()) => {}
                Err(FenceError::Refused(_)) => {
                    told.refused.fetch_add(1, Ordering::Relaxed);
                    break;
                }
                Err(error) => panic!("{error}"),
            }
            // INV-23: read, think, write.
            let text = format!("{token}.{step} after {}", list(&tx).len());
            append(&tx, token, &text);
            tx.commit().unwrap();
            told.written.lock().unwrap().push((token, text));
            thread::sleep(Duration::from_micros(token * 37 % 400));
        }
    }
}

fn run(fenced: bool) -> (Vec<(u64, String)>, Told) {
    let (_folder, path) = database();
    let (tokens, told) = (AtomicU64::new(0), Arc::new(Told::default()));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| hold(&path, &tokens, fenced, &told));
        }
    });
    let told = Arc::into_inner(told).unwrap();
    (list(&open(&path)), told)
}

fn in_order(list: &[(u64, String)]) -> bool {
    list.is_sorted_by_key(|(token, _)| *token)
}

#[test]
fn fenced_writes_are_in_the_order_of_tokens_and_none_is_lost() {
    let (list, told) = run(true);
    assert!(in_order(&list), "INV-20: {list:?}");
    let mut written = told.written.into_inner().unwrap();
    let mut stored = list.clone();
    written.sort();
    stored.sort();
    assert_eq!(
        written, stored,
        "INV-22, INV-23: what was acknowledged is there once, and nothing else"
    );
    for (before, (_, text)) in list.iter().enumerate() {
        assert!(
            text.ends_with(&format!("after {before}")),
            "INV-23: a lost update: {text}"
        );
    }
    assert!(
        told.refused.into_inner() > 0,
        "no holder outlived its tenure: nothing was tested"
    );
}

#[test]
fn without_the_check_the_fault_is_seen() {
    let (list, _) = run(false);
    assert!(!in_order(&list), "the race is too tame to show a fault");
}
