//! What went wrong for others, replayed on the rules: each test names its number in the list of field bugs (FB).

mod desk;

use std::{collections::BTreeSet, time::Duration};

use desk::{A, B, C, Desk, Process, TTL, name, taken, token};
use leasehold_core::{
    Answer, BootTime, Command, Entry, Fence, Grant, Lost, Record, Refusal, State, StoreTime, Table,
    Term, Timing, Ttl, WallTime, decide,
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// FB-1: a token that starts over when the record is deleted, on release or by a sweeper. L8, T1, T5, INV-9.
#[test]
fn tokens_grow_across_release_and_collection() {
    let mut desk = Desk::default();
    let a = desk.granted("orders", A);
    desk.release("orders", A, a);
    let b = desk.granted("orders", B);
    let mut receiver = Fence {
        lease: name("orders"),
        highest: b,
    };
    desk.release("orders", B, b);
    desk.pass(DAY);
    let stamp = desk.stamp();
    assert_eq!(desk.table.collect(stamp, Entry::KEPT), 1);
    assert_eq!(desk.status("orders"), None, "it is forgotten");
    let c = desk.granted("orders", C);
    assert!(a < b && b < c, "{a} {b} {c}");
    let stale = Refusal::Stale {
        token: a,
        highest: b,
    };
    assert_eq!(receiver.admit(&name("orders"), a), Err(stale));
    assert_eq!(receiver.admit(&name("orders"), c), Ok(()));
}

/// FB-2: the first token was 0, a takeover gave 1, a release and a new acquire gave 0 again.
#[test]
fn no_token_is_zero_and_a_release_after_a_takeover_does_not_start_over() {
    let mut desk = Desk::default();
    let first = desk.granted("orders", A);
    desk.pass(TTL);
    let takeover = desk.granted("orders", B);
    desk.release("orders", B, takeover);
    let next = desk.granted("orders", A);
    assert!(first.get() >= 1 && first < takeover && takeover < next);
}

/// FB-6: the same owner name came back to its own expired or released lease and kept the token, so that the writes of its
/// paused earlier self passed. L3.
#[test]
fn the_same_name_coming_back_gets_a_new_token() {
    let again = Process { session: 0xa2, ..A };
    for released in [false, true] {
        let mut desk = Desk::default();
        let old = desk.granted("orders", A);
        assert_eq!(desk.write("orders", old), Ok(()));
        if released {
            desk.release("orders", A, old);
        } else {
            desk.pass(TTL);
        }
        let new = desk.granted("orders", again);
        assert!(new > old);
        let stale = Refusal::Stale {
            token: old,
            highest: new,
        };
        assert_eq!(desk.write("orders", old), Err(stale));
        assert_eq!(desk.renew("orders", A, old, 1), taken(again, new));
        let renewed = desk.renew("orders", again, new, 1);
        assert!(matches!(renewed, Answer::Renewed { .. }), "{renewed:?}");
        assert_eq!(
            desk.status("orders").and_then(|s| s.token),
            Some(new),
            "a live one keeps it"
        );
    }
}

/// FB-8: an example that only asked for "another writer" let random numbers pass. F4.
#[test]
fn a_receiver_compares_by_order_and_not_by_difference() {
    let lease = name("orders");
    let mut receiver = Fence {
        lease: lease.clone(),
        highest: token(5),
    };
    assert_eq!(receiver.admit(&lease, token(5)), Ok(()));
    assert_eq!(receiver.admit(&lease, token(7)), Ok(()));
    let stale = Refusal::Stale {
        token: token(6),
        highest: token(7),
    };
    assert_eq!(receiver.admit(&lease, token(6)), Err(stale.clone()));
    assert_eq!(receiver.raise(&lease, token(6)), Err(stale.clone()));
    assert_eq!(receiver.check(&lease, token(6)), Err(stale));
    assert_eq!(receiver.admit(&lease, token(7)), Ok(()));
    assert_eq!(receiver.highest, token(7));
}

/// FB-9: each process counted its own fence numbers, a new one at each read.
#[test]
fn two_servers_over_one_store_make_one_series_and_looking_mints_nothing() {
    let mut desk = Desk::default();
    let mut last = None;
    for round in 0..10 {
        let by = [A, B][round % 2];
        let token = desk.granted("orders", by);
        let before = desk.table.snapshot();
        for _ in 0..10 {
            assert_eq!(desk.status("orders").and_then(|s| s.token), Some(token));
            desk.table.list("", 10, desk.now);
        }
        assert_eq!(desk.table.snapshot(), before, "looking changed something");
        assert_eq!(
            Some(token),
            last.map_or(Some(token), |last: leasehold_core::Token| last.next())
        );
        last = Some(token);
        desk.release("orders", by, token);
    }
}

/// FB-12: one record for each name that ever was, 25 million of them in production.
#[test]
fn a_million_short_lived_names_leave_a_small_table_and_tokens_still_grow() {
    let mut desk = Desk::default();
    let used = desk.granted("once", A);
    desk.release("once", A, used);
    let twice = desk.granted("once", A);
    desk.release("once", A, twice);
    for number in 0..1_000_000 {
        let lease = format!("job-{number}");
        let token = desk.granted(&lease, A);
        desk.release(&lease, A, token);
        desk.events.clear();
        if number % 100_000 == 0 {
            desk.pass(DAY);
            let stamp = desk.stamp();
            desk.table.collect(stamp, Entry::KEPT);
            assert!(desk.table.len() <= 100_000, "{} rows", desk.table.len());
        }
    }
    desk.pass(DAY);
    let stamp = desk.stamp();
    desk.table.collect(stamp, Entry::KEPT);
    assert_eq!(desk.table.len(), 0);
    assert!(
        desk.table.snapshot().len() < 50,
        "a floor and four times are left"
    );
    assert!(desk.granted("once", A) > twice);
    assert!(desk.granted("job-0", A) > token(1));
}

/// FB-14: the fence was checked in seventeen places and incremented in none. The mutants take the increment away.
#[test]
fn every_hand_over_raises_the_token_by_one() {
    let mut desk = Desk::default();
    let mut tokens = Vec::new();
    for round in 0..100 {
        let by = [A, B, C][round % 3];
        let token = desk.granted("orders", by);
        if round % 2 == 0 {
            desk.release("orders", by, token);
        } else {
            desk.pass(TTL);
        }
        tokens.push(token.get());
    }
    assert_eq!(
        tokens,
        (1..=100).collect::<Vec<u64>>(),
        "dense, and never twice (T2)"
    );
}

/// FB-42: a deadline stamped by one wall clock and judged by another. C1, C2: only the store's clock decides.
#[test]
fn a_wall_clock_that_is_wrong_takes_nothing_over_early() {
    for step in [TTL * 9 / 10, TTL * 100] {
        let mut desk = Desk {
            wall: WallTime::from_nanos(1_767_225_600_000_000_000),
            ..Desk::default()
        };
        let a = desk.granted("orders", A);
        desk.wall = desk.wall.plus(step);
        assert!(
            matches!(desk.acquire("orders", B), Answer::Held(_)),
            "early by {step:?}"
        );
        desk.wall = desk.wall.minus(step * 2);
        desk.pass(TTL - Duration::from_nanos(1));
        assert!(
            matches!(desk.acquire("orders", B), Answer::Held(_)),
            "early by {step:?}"
        );
        desk.pass(Duration::from_nanos(1));
        assert!(desk.granted("orders", B) > a, "nor late");
    }
}

/// FB-42, R2: should the store's own clock go back, its time stands still; it never counts the same second twice.
#[test]
fn a_store_clock_that_goes_back_shortens_nothing() {
    let mut desk = Desk::default();
    desk.pass(TTL);
    desk.granted("orders", A);
    desk.now = StoreTime::ZERO;
    let Answer::Held(held) = desk.acquire("orders", B) else {
        panic!("a took it at 10 s; it is still 10 s")
    };
    assert_eq!(held.hint, TTL);
}

/// FB-46: now was computed, then a pause, then the write used the stale now. The store counts from its evaluation, the
/// holder from before it sent: however long the request took, the holder stops first (C3).
#[test]
fn a_slow_request_is_granted_from_its_evaluation_and_trusted_from_its_sending() {
    let mut desk = Desk::default();
    let sent = BootTime::ZERO;
    let request = A.acquire(1);
    let pause = Duration::from_secs(4);
    desk.pass(pause);
    let Answer::Granted(grant) = desk.command("orders", Command::Acquire(request)) else {
        panic!("it is free")
    };
    let record = desk.table.record(&name("orders")).expect("it is held");
    assert_eq!(
        record.expires,
        StoreTime::ZERO.plus(pause + TTL),
        "no less than was asked"
    );
    let timing = Timing::new(grant.ttl).expect("the usual times fit");
    let term = Term::granted(&grant, sent, BootTime::ZERO.plus(pause), &timing);
    assert!(
        term.deadline().since(BootTime::ZERO) <= TTL,
        "trusted from the sending on: {:?}",
        term.deadline()
    );
}

/// FB-53: the ttl was computed anew when a snapshot was loaded. Whatever the new machine's clock says, what is left is
/// neither below nothing nor above a ttl, and the floor is still there.
#[test]
fn a_snapshot_keeps_what_is_left_of_a_ttl_and_the_floor() {
    let mut desk = Desk::default();
    let old = desk.granted("forgotten", A);
    desk.release("forgotten", A, old);
    desk.pass(DAY);
    let stamp = desk.stamp();
    desk.table.collect(stamp, Entry::KEPT);
    let held = desk.granted("orders", A);
    let half = TTL / 2;
    desk.pass(half);
    desk.table.advance(desk.now);
    let expires = desk.table.record(&name("orders")).expect("held").expires;
    let bytes = desk.table.snapshot();

    let hour = Duration::from_secs(3600);
    for machine in [desk.now.plus(hour), desk.now.minus(hour), StoreTime::ZERO] {
        let mut table = Table::restore(&bytes).expect("it wrote it itself");
        assert_eq!(
            table.record(&name("orders")).expect("held").expires,
            expires
        );
        assert_eq!(table.floor(), Some(old));
        // A store that restores counts on from the table's time, by what its machine's clock has gone on since (R2).
        let base = table.now();
        let clock = |machine_now: StoreTime| base.plus(machine_now.since(machine));
        let status = table.status(&name("orders"), clock(machine));
        let status = status.expect("it is held");
        assert_eq!((status.state, status.remaining), (State::Held, half));
        let mut again = Desk {
            now: clock(machine.plus(half)),
            table: std::mem::take(&mut table),
            ..Desk::default()
        };
        assert!(
            again.granted("orders", B) > held,
            "over when it was to be over"
        );
        assert!(again.granted("forgotten", B) > old);
    }
}

/// FB-56: host names as identity; twins both led.
#[test]
fn two_processes_of_one_name_are_two_holders() {
    let twin = Process { session: 0xa2, ..A };
    let mut desk = Desk::default();
    let first = desk.granted("orders", A);
    let Answer::Held(held) = desk.acquire("orders", twin) else {
        panic!("the twin was let in")
    };
    assert!(!held.yours && held.token == first);
    assert_eq!(desk.renew("orders", twin, first, 1), taken(A, first));
    assert_eq!(desk.release("orders", twin, first), taken(A, first));
    let hashes: BTreeSet<u32> = [A, twin].map(|by| by.session().fingerprint()).into();
    assert_eq!(hashes.len(), 2, "people can tell them apart");
    let renewed = desk.renew("orders", A, first, 1);
    assert!(matches!(renewed, Answer::Renewed { .. }), "{renewed:?}");
}

/// FB-63: an old holder deleted or renewed its successor's lease. L6, L7, INV-3, INV-5.
#[test]
fn an_old_holder_touches_nothing_of_its_successor() {
    let mut desk = Desk::default();
    let old = desk.granted("orders", A);
    desk.renew("orders", A, old, 1);
    desk.pass(TTL * 2);
    let new = desk.granted("orders", B);
    let before = desk.table.record(&name("orders")).cloned();
    assert_eq!(desk.release("orders", A, old), Answer::AlreadyOver);
    for number in 1..=3 {
        assert_eq!(desk.renew("orders", A, old, number), taken(B, new));
    }
    // Not even with the new token, which is no secret (T10).
    assert_eq!(desk.renew("orders", A, new, 1), taken(B, new));
    assert_eq!(desk.release("orders", A, new), taken(B, new));
    assert_eq!(
        desk.table.record(&name("orders")).cloned(),
        before,
        "B is intact"
    );
}

/// 1.2, INV-13: at the end the store refuses; it never wraps. FB-11 is the same with 16 and 32 bits.
#[test]
fn the_last_token_is_the_last() {
    let record = Record::new(Some(leasehold_core::Token::MAX));
    let (after, answer) = decide(
        record.clone(),
        Command::Acquire(A.acquire(1)),
        StoreTime::ZERO,
    );
    assert_eq!((after, answer), (record, Answer::TokenExhausted));
    for at in [
        u64::from(u16::MAX),
        i32::MAX as u64,
        u64::from(u32::MAX),
        1 << 53,
    ] {
        let record = Record::new(Some(token(at)));
        let (_, answer) = decide(record, Command::Acquire(A.acquire(1)), StoreTime::ZERO);
        let Answer::Granted(Grant { token: next, .. }) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!(next.get(), at + 1);
    }
}

/// L5 at the nanosecond: valid until just before its end, then lost, though nobody took it.
#[test]
fn a_late_renewal_is_refused() {
    let mut desk = Desk::default();
    let held = desk.granted("orders", A);
    desk.pass(TTL - Duration::from_nanos(1));
    assert!(matches!(
        desk.renew("orders", A, held, 1),
        Answer::Renewed { .. }
    ));
    desk.pass(TTL);
    assert_eq!(
        desk.renew("orders", A, held, 2),
        Answer::Lost(Lost::Expired)
    );
    assert_eq!(desk.status("orders").map(|s| s.state), Some(State::Free));
}

/// A2: a late duplicate of a 2 s acquire cut a lease that was renewed to 60 s, and let a stranger in.
#[test]
fn a_late_duplicate_of_a_short_acquire_does_not_cut_a_long_renewal() {
    let mut desk = Desk::default();
    let mut short = A.acquire(1);
    short.ttl = Ttl::from_millis(2_000).expect("it is a ttl");
    let Answer::Granted(grant) = desk.command("orders", Command::Acquire(short.clone())) else {
        panic!("it is free")
    };
    let mut long = A.renew(grant.token, 1);
    long.ttl = Ttl::from_millis(60_000).expect("it is a ttl");
    desk.command("orders", Command::Renew(long));
    desk.command("orders", Command::Acquire(short));
    let record = desk.table.record(&name("orders")).expect("it is held");
    assert_eq!(
        record.ttl.as_millis(),
        60_000,
        "a replay does not change the ttl"
    );
    desk.pass(Duration::from_secs(59));
    assert!(matches!(desk.acquire("orders", B), Answer::Held(_)));
}
