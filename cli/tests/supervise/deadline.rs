//! INV-32: nothing of the tree is alive after the deadline, and nothing dies before it, with supervisor and guard
//! alive, killed and stopped (FB-79, FB-80, H6, H8).

use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::rig::{FAR, NEAR, Rig, Times, boot_nanos, send};

/// How long after `kill_at` the tree may be seen alive. Generous, for a busy machine; the figure seen is printed.
const SLACK: u64 = 3_000_000_000;
const MILLI: u64 = 1_000_000;

/// Trees that get away from a careless supervisor: name, least number of processes, script.
const TREES: [(&str, usize, &str); 7] = [
    ("a child that waits", 2, "sleep 600 & wait"),
    ("SIGTERM ignored", 2, "trap '' TERM; sleep 600; :"),
    (
        "double fork",
        3,
        "(sh -c 'sleep 600 & exec sleep 600' &); sleep 600; :",
    ),
    ("setsid", 2, "setsid sleep 600 & wait"),
    (
        "setsid, double fork, SIGTERM ignored",
        4,
        "trap '' TERM; (setsid sh -c '(sleep 600 &); sleep 600; :' &); sleep 600; :",
    ),
    ("stopped", 2, "sleep 600 & kill -STOP $!; wait"),
    // Four lines of processes of which each starts the next and ends; they end by themselves after 1000.
    (
        "fork storm",
        2,
        "trap '' TERM; hop() { [ $1 -gt 0 ] || return; sleep 0.01; (hop $(($1 - 1)) &); }
         for line in 1 2 3 4; do hop 1000 & done; sleep 600; :",
    ),
];

/// Runs every tree at the same time, and those that need it most with a control group too.
fn every_tree(times: Times, test: impl Fn(&mut Rig, &str) + Sync) {
    let _turn = crate::rig::turn();
    let walked = TREES.iter().map(|tree| (tree, "walk"));
    let grouped = TREES[4..].iter().map(|tree| (tree, ""));
    thread::scope(|scope| {
        for ((name, size, script), flags) in walked.chain(grouped) {
            let test = &test;
            scope.spawn(move || {
                let mut rig = Rig::shell(times, flags, script);
                rig.wait_for_tree(*size);
                test(&mut rig, &format!("{name} {flags}"));
                assert_eq!(rig.tree(), Vec::<i32>::new(), "{name} {flags}");
            });
        }
    });
}

/// Watches the tree to its death: not before `stop_at`, not after `kill_at`. Deadlines may still be moved at first.
fn dies_in_its_time(rig: &Rig, name: &str) {
    loop {
        let dead = rig.tree().is_empty();
        let seen_at = boot_nanos();
        // Read after the look: only later deadlines are in it, which makes the first assertion stricter.
        let kill_at = rig.kill_at();
        let stop_at = kill_at - (NEAR.kill - NEAR.stop) * MILLI;
        if dead {
            assert!(
                seen_at >= stop_at,
                "{name}: killed before its deadline: {}",
                rig.text("report")
            );
            let late = i128::from(seen_at) - i128::from(kill_at);
            println!("{name}: dead {} ms after kill_at", late / i128::from(MILLI));
            assert!(late <= i128::from(SLACK), "{name}: killed too late");
            return;
        }
        assert!(
            seen_at <= kill_at + SLACK,
            "{name}: alive after its deadline"
        );
        thread::sleep(Duration::from_millis(10));
    }
}

/// Lets the first deadline pass, which was extended in time, so that every later death is due to a later one.
fn outlives_the_first_deadline(rig: &Rig, name: &str) {
    thread::sleep(Duration::from_millis(NEAR.kill + 300));
    assert!(
        !rig.tree().is_empty(),
        "{name}: the extension was not heard: {}",
        rig.text("report")
    );
}

#[test]
fn dead_by_the_deadline_with_all_well() {
    // H3, INV-32
    every_tree(NEAR, |rig, name| {
        outlives_the_first_deadline(rig, name);
        dies_in_its_time(rig, name);
        rig.end();
        let exit = rig.exit();
        assert_eq!(
            (&exit["cause"], &exit["verified"]),
            (&"Deadline".into(), &true.into())
        );
    });
}

#[test]
fn dead_by_the_deadline_with_the_supervisor_stopped() {
    // H6, INV-32
    every_tree(NEAR, |rig, name| {
        outlives_the_first_deadline(rig, name);
        rig.signal_driver(Signal::STOP);
        dies_in_its_time(rig, name);
        rig.signal_driver(Signal::CONT);
        rig.end();
        let exit = rig.exit();
        assert_eq!(
            (&exit["cause"], &exit["verified"]),
            (&"Deadline".into(), &true.into())
        );
    });
}

#[test]
fn dead_by_the_deadline_with_the_guard_stopped() {
    // A14, INV-32
    every_tree(NEAR, |rig, name| {
        send(rig.guard().unsigned_abs(), Signal::STOP);
        outlives_the_first_deadline(rig, name);
        dies_in_its_time(rig, name);
        rig.end();
        let exit = rig.exit();
        assert_eq!(
            (&exit["cause"], &exit["verified"]),
            (&"Deadline".into(), &true.into())
        );
    });
}

#[test]
fn dead_at_once_with_the_supervisor_killed() {
    // H6, INV-32
    every_tree(FAR, |rig, name| {
        let guard = rig.guard();
        rig.signal_driver(Signal::KILL);
        let killed_at = boot_nanos();
        let took = rig.wait_for_death() - killed_at;
        println!("{name}: dead {} ms after the supervisor", took / MILLI);
        assert!(took < SLACK, "{name}: {took} ns");
        rig.end();
        crate::rig::wait_for("the end of the guard", || {
            let left = crate::rig::stat(guard, 3);
            left.is_none_or(|state| state == "Z").then_some(())
        });
    });
}

#[test]
fn dead_at_once_with_the_guard_killed() {
    // A14, INV-32
    every_tree(FAR, |rig, name| {
        send(rig.guard().unsigned_abs(), Signal::KILL);
        let killed_at = boot_nanos();
        let took = rig.wait_for_death() - killed_at;
        println!("{name}: dead {} ms after the guard", took / MILLI);
        assert!(took < SLACK, "{name}: {took} ns");
        assert_eq!(rig.code(), 137, "{name}");
        let exit = rig.exit();
        assert_eq!(
            (&exit["cause"], &exit["verified"]),
            (&"GuardDied".into(), &true.into())
        );
    });
}

#[test]
fn the_child_itself_dies_when_both_are_killed() {
    // A14: only PDEATHSIG is left, so only the child; what it started is not promised.
    let rig = Rig::shell(FAR, "walk", "sleep 600; :");
    rig.wait_for_tree(2);
    let child = rig.child();
    rig.signal_driver(Signal::STOP);
    send(rig.guard().unsigned_abs(), Signal::KILL);
    rig.signal_driver(Signal::KILL);
    crate::rig::wait_for("the death of the child", || {
        (!rig.tree().contains(&child)).then_some(())
    });
}

#[test]
fn the_death_of_orphans_is_not_the_supervisors() {
    // Each orphan's death wakes the guard by a signal, at any moment of its work.
    let loops = "for i in 1 2 3 4; do
        (n=0; while [ $n -lt 300 ]; do (: & : & : & :) & n=$((n + 1)); wait; done) & done; wait";
    let mut rig = Rig::shell(FAR, "", &format!("{loops}; {loops}; exit 6"));
    assert_eq!(rig.code(), 6);
    assert_eq!(rig.exit()["cause"], "Child");
}

#[test]
fn without_a_deadline_nothing_is_killed_by_time() {
    // --on-lost ignore
    let never = Times {
        stop: 0,
        kill: 0,
        every: 100,
        until: 300,
    };
    let mut rig = Rig::shell(never, "", "sleep 1; exit 5");
    assert_eq!(rig.code(), 5);
}
