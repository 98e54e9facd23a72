//! What the engine may believe, and when: a thread that writes is played by hand.

use std::{
    future::Future,
    pin::pin,
    sync::mpsc::{Receiver, channel},
    task::{Context, Poll, Waker},
};

use openraft::{entry::RaftEntry, type_config::TypeConfigExt};

use super::*;
use crate::types::log_id;

/// A log, and the end at which its thread would be.
fn log() -> (Log, Receiver<Ask>, Arc<Done>) {
    let (thread, asks) = channel();
    let done = Arc::new(Done::default());
    let found = Found {
        identity: Identity {
            node: 1,
            cluster: None,
        },
        vote: None,
        purged: None,
        entries: Vec::new(),
    };
    (Log::new(found, thread, done.clone()), asks, done)
}

fn entry(index: u64) -> Entry {
    Entry::new(log_id(1, index), Payload::Blank)
}

fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// R8: a vote that could be forgotten is no vote; the engine may send it when it is on the disk, and not if that failed.
#[test]
fn a_vote_counts_when_it_is_on_the_disk() {
    for kept in [true, false] {
        let (mut log, asks, _) = log();
        let (vote, mut reader) = (Vote::new(2, 1), log.clone());
        let mut saving = pin!(log.save_vote(&vote));
        assert!(poll(saving.as_mut()).is_none());
        let Ok(Ask::Write(Change::Vote(ballot), Told::Caller(reply))) = asks.try_recv() else {
            panic!("the thread is asked to write the vote, and to tell")
        };
        assert_eq!(ballot, Ballot::from(&vote));
        assert!(poll(saving.as_mut()).is_none(), "it is not on the disk yet");
        let fault = || Err(io::Error::other("a broken disk"));
        reply.send(if kept { Ok(()) } else { fault() }).unwrap();
        assert_eq!(poll(saving.as_mut()).unwrap().is_ok(), kept);
        let read = poll(pin!(reader.read_vote())).unwrap().unwrap();
        assert_eq!(read, kept.then_some(vote));
    }
}

/// R8: entries may be read at once, and are told to be durable by the thread alone.
#[test]
fn entries_are_durable_when_the_thread_says_so() {
    let (mut log, asks, _) = log();
    let (signal, answer) = Types::oneshot();
    poll(pin!(
        log.append([entry(0), entry(1)], IOFlushed::signal(signal))
    ))
    .unwrap()
    .unwrap();
    let read = poll(pin!(log.try_get_log_entries(0..9))).unwrap().unwrap();
    assert_eq!(read.len(), 2);
    let mut answer = pin!(answer);
    assert!(
        poll(answer.as_mut()).is_none(),
        "nothing is on the disk yet"
    );
    let Ok(Ask::Write(Change::Append(entries), Told::Engine(callback))) = asks.try_recv() else {
        panic!("the thread is asked to write, and to tell the engine")
    };
    assert_eq!(entries, read);
    callback.io_completed(Ok(()));
    assert!(poll(answer).unwrap().unwrap().is_ok());
}

/// What is not yet on the disk stays in memory however much it is; older entries are read from the disk, without a gap.
#[test]
fn only_durable_entries_leave_the_memory() {
    let (mut log, asks, done) = log();
    let count = u64::try_from(CACHE / weight(&entry(0))).unwrap() + 10;
    let append = |log: &mut Log, entries: Vec<Entry>| {
        let (signal, _) = Types::oneshot();
        poll(pin!(log.append(entries, IOFlushed::signal(signal))))
            .unwrap()
            .unwrap();
    };
    append(&mut log, (0..count).map(entry).collect());
    assert_eq!(log.recent().first(), 0, "none is durable");
    done.durable.store(5, Ordering::Release);
    append(&mut log, vec![entry(count)]);
    assert_eq!(log.recent().first(), 5, "those are");

    let mut reader = log.clone();
    let mut reading = pin!(reader.try_get_log_entries(2..8));
    assert!(poll(reading.as_mut()).is_none());
    let asked = asks.try_iter().find_map(|ask| match ask {
        Ask::Read(from, until, reply) => Some((from, until, reply)),
        _ => None,
    });
    let (from, until, reply) = asked.expect("the disk is asked");
    assert_eq!((from, until), (2, 5));
    reply.send(Ok((from..until).map(entry).collect())).unwrap();
    let read = poll(reading).unwrap().unwrap();
    let indices: Vec<u64> = read.iter().map(|entry| entry.log_id.index).collect();
    assert_eq!(indices, [2, 3, 4, 5, 6, 7]);
}
