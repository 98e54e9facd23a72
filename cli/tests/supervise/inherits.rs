//! What the child inherits, and that no standard stream can hold up the kill.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;

use crate::rig::{BINARY, FAR, NEAR, Rig, arguments, send, skipped, wait_for};

fn output(rig: &mut Rig) -> String {
    let mut text = String::new();
    let stdout = rig.driver.stdout.as_mut().expect("a pipe");
    stdout.read_to_string(&mut text).expect("UTF-8");
    text
}

#[test]
fn the_child_sees_what_the_caller_gave_and_nothing_of_ours() {
    let script = "env | grep -a LEASEHOLD_ | grep -v MARK; cat /proc/$$/comm; \
                  grep -a SigBlk /proc/self/status; exec ls /proc/self/fd";
    let mut rig = Rig::spawn(FAR, "", &["sh", "-c", script], |supervisor| {
        supervisor.stdout(Stdio::piped());
    });
    // Whoever started the tests may have left more open than the three.
    let here = Command::new("ls")
        .arg("/proc/self/fd")
        .output()
        .expect("ls");
    let here = String::from_utf8(here.stdout).expect("UTF-8");
    let wanted = format!("LEASEHOLD_TOKEN=7\nsh\nSigBlk:\t0000000000000000\n{here}");
    assert_eq!(output(&mut rig), wanted);
    assert_eq!(rig.code(), 0);
}

#[test]
fn standard_input_reaches_the_child() {
    let mut rig = Rig::spawn(FAR, "", &["cat"], |supervisor| {
        supervisor.stdin(Stdio::piped()).stdout(Stdio::piped());
    });
    let mut stdin = rig.driver.stdin.take().expect("a pipe");
    stdin.write_all(b"one line\n").expect("the child reads");
    drop(stdin);
    assert_eq!(output(&mut rig), "one line\n");
    assert_eq!(rig.code(), 0);
}

#[test]
fn closed_standard_streams_hold_up_nothing() {
    let job = "trap '' TERM; sleep 600; :";
    let mut rig = Rig::program(
        "sh",
        |_| {},
        |report| {
            let run = "exec \"$0\" \"$@\" <&- >&- 2>&-".to_owned();
            let mut args = vec!["-c".to_owned(), run, BINARY.to_owned()];
            args.extend(arguments(report, NEAR, "", &["sh", "-c", job]));
            args
        },
    );
    rig.wait_for_tree(2);
    assert_eq!(rig.code(), 137);
    assert_eq!(rig.exit()["verified"], true);
}

#[test]
fn full_pipes_hold_up_nothing() {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).expect("a pipe");
    let mut filler = File::from(writer.try_clone().expect("a copy"));
    while filler.write(&[b'x'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).expect("a blocking pipe");
    let other: OwnedFd = writer.try_clone().expect("a copy");
    let job = "trap '' TERM; while :; do echo stuck >&2; done";
    let mut rig = Rig::spawn(NEAR, "walk", &["sh", "-c", job], |supervisor| {
        supervisor.stdout(writer).stderr(other);
    });
    rig.wait_for_tree(1);
    // Alone, the guard must not be held up either.
    rig.signal_driver(Signal::STOP);
    assert!(rig.wait_for_death() < rig.kill_at() + 3_000_000_000);
    rig.signal_driver(Signal::CONT);
    assert_eq!(rig.code(), 137);
    assert_eq!(rig.exit()["verified"], true);
    drop(reader);
}

#[test]
fn the_control_group_is_used_where_it_can_be_made_and_goes_away() {
    // H8
    let rig = Rig::shell(FAR, "", "sleep 600; :");
    rig.wait_for_tree(2);
    let Some(folder) = cgroup(&rig) else { return };
    // Even a killed supervisor leaves no folder behind.
    rig.signal_driver(Signal::KILL);
    rig.wait_for_death();
    wait_for("the folder's removal", || (!folder.exists()).then_some(()));
}

#[test]
fn what_outlived_supervisor_and_guard_is_killed_by_the_next_one() {
    // INV-32
    let rig = Rig::shell(FAR, "", "sleep 600; :");
    rig.wait_for_tree(2);
    let Some(folder) = cgroup(&rig) else { return };
    let both = [rig.guard().unsigned_abs(), rig.driver.id()];
    for signal in [Signal::STOP, Signal::KILL] {
        both.iter().for_each(|&pid| send(pid, signal));
    }
    wait_for("the death of the child alone", || {
        (rig.tree().len() == 1).then_some(())
    });
    let next = Rig::shell(FAR, "", "sleep 600; :");
    next.wait_for_tree(2);
    rig.wait_for_death();
    wait_for("the folder's removal", || (!folder.exists()).then_some(()));
    assert_eq!(next.tree().len(), 2, "only its own is killed");
}

/// Where the job's control group is; says so if there is none.
fn cgroup(rig: &Rig) -> Option<PathBuf> {
    let group =
        std::fs::read_to_string(format!("/proc/{}/cgroup", rig.child())).unwrap_or_default();
    let path = group.lines().find_map(|line| line.strip_prefix("0::"));
    let Some(path) = path.filter(|path| path.contains("leasehold-")) else {
        skipped("no cgroup v2 below our own can be made here");
        return None;
    };
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("/proc");
    let mount = mounts
        .lines()
        .find(|line| line.contains(" - cgroup2 "))
        .expect("a mount");
    let folder = format!("{}{path}", mount.split(' ').nth(4).expect("a mount point"));
    assert!(Path::new(&folder).exists(), "{folder}");
    Some(PathBuf::from(folder))
}
