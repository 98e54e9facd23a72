//! A machine suspended as a whole, played with the cgroup v1 freezer: dead right after the thaw (A14, INV-32).

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::Duration;

use crate::rig::{FAR, NEAR, Rig, boot_nanos, skipped, stat, turn, wait_for};

const FREEZER: &str = "/sys/fs/cgroup/freezer";

/// A group of the freezer; thawed and removed in the end.
struct Freezer(PathBuf);

impl Freezer {
    fn make() -> std::io::Result<Freezer> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = format!("{FREEZER}/leasehold-test-{}-{count}", std::process::id());
        let folder = PathBuf::from(folder);
        fs::create_dir(&folder)?;
        let freezer = Freezer(folder);
        fs::read_to_string(freezer.0.join("freezer.state"))?;
        Ok(freezer)
    }

    fn put(&self, pid: i32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).expect("the process moves");
    }

    fn set(&self, state: &str) {
        fs::write(self.0.join("freezer.state"), state).expect("the freezer obeys");
        wait_for(state, || {
            let now = fs::read_to_string(self.0.join("freezer.state")).expect("a state");
            (now.trim() == state).then_some(())
        });
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("freezer.state"), "THAWED");
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_tree_that_was_frozen_past_its_deadline_dies_at_the_thaw() {
    let _turn = turn();
    let freezer = match Freezer::make() {
        Ok(freezer) => freezer,
        Err(error) => return skipped(&format!("no cgroup v1 freezer: {FREEZER}: {error}")),
    };
    let mut rig = Rig::shell(
        NEAR,
        "walk",
        "trap '' TERM; setsid sleep 600 & sleep 600; :",
    );
    rig.wait_for_tree(3);
    for pid in rig
        .tree()
        .into_iter()
        .chain([rig.guard(), rig.driver.id().cast_signed()])
    {
        freezer.put(pid);
    }
    freezer.set("FROZEN");
    let kill_at = rig.kill_at();
    while boot_nanos() < kill_at + 300_000_000 {
        sleep(Duration::from_millis(20));
    }
    assert_eq!(rig.tree().len(), 3, "nothing can act while all is frozen");
    let thawed_at = boot_nanos();
    fs::write(freezer.0.join("freezer.state"), "THAWED").expect("the freezer obeys");
    let took = rig.wait_for_death() - thawed_at;
    println!("seen dead {:.1} ms after the thaw", took as f64 / 1e6);
    assert!(took < 500_000_000, "{took} ns after the thaw");
    rig.end();
    let exit = rig.exit();
    let ended_at = exit["ended_at"].as_u64().expect("nanoseconds") - thawed_at;
    println!("said dead {:.1} ms after the thaw", ended_at as f64 / 1e6);
    assert_eq!(
        (&exit["cause"], &exit["verified"]),
        (&"Deadline".into(), &true.into())
    );
}

#[test]
fn a_process_that_does_not_die_is_reported_and_not_called_dead() {
    // H4, H5: a frozen process takes SIGKILL only at the thaw, as one in an uninterruptible sleep does when that ends.
    let freezer = match Freezer::make() {
        Ok(freezer) => freezer,
        Err(error) => return skipped(&format!("no cgroup v1 freezer: {FREEZER}: {error}")),
    };
    let script = "setsid sleep 600 & read line; exit 3";
    let mut rig = Rig::spawn(FAR, "", &["sh", "-c", script], |supervisor| {
        supervisor.stdin(Stdio::piped());
    });
    rig.wait_for_tree(2);
    let child = rig.child();
    let daemon = wait_for("the session of setsid", || {
        let heads = |pid: &i32| *pid != child && stat(*pid, 5) == Some(pid.to_string());
        rig.tree().into_iter().find(heads)
    });
    freezer.put(daemon);
    freezer.set("FROZEN");
    drop(rig.driver.stdin.take());
    assert_eq!(rig.code(), 3);
    let exit = rig.exit();
    assert_eq!(
        (&exit["cause"], &exit["verified"]),
        (&"Child".into(), &false.into())
    );
    assert_eq!(exit["survivors"], serde_json::json!([daemon]));
}
