//! The end of a child is told as it was (FB-83), and only after its stragglers are dead (H5).

use crate::rig::{FAR, NEAR, Rig};

fn code_of(script: &str) -> i32 {
    let mut rig = Rig::shell(FAR, "", script);
    let code = rig.code();
    assert_eq!(rig.exit()["verified"], true);
    assert_eq!(rig.exit()["cause"], "Child");
    code
}

#[test]
fn the_childs_own_code_is_passed_on() {
    // FB-83
    for code in [0, 3, 255] {
        assert_eq!(code_of(&format!("exit {code}")), code);
    }
}

#[test]
fn death_by_a_signal_is_128_and_its_number() {
    // FB-83
    assert_eq!(code_of("kill -9 $$"), 137);
    assert_eq!(code_of("kill -TERM $$"), 143);
}

#[test]
fn a_command_that_cannot_be_run_is_126_or_127_and_named_in_one_line() {
    let cases = [
        ("nosuchcommand", 127),
        ("./missing", 127),
        ("", 127),
        ("/etc/passwd", 126),
        ("/etc", 126),
    ];
    for (command, code) in cases {
        let mut rig = Rig::spawn(FAR, "", &[command], |supervisor| {
            supervisor.stderr(std::process::Stdio::piped());
        });
        let mut said = String::new();
        let stderr = rig.driver.stderr.as_mut().expect("a pipe");
        std::io::Read::read_to_string(stderr, &mut said).expect("UTF-8");
        assert_eq!(rig.code(), code, "{command:?}");
        assert_eq!(said.lines().count(), 1, "{said:?}");
        assert!(said.contains(&format!("{command:?}")), "{said:?}");
    }
}

#[test]
fn stragglers_are_dead_before_the_exit_is_told() {
    // H5, INV-33, FB-80
    for script in [
        "sleep 600 & exit 4",
        "setsid sleep 600 & exit 4",
        "(setsid sh -c 'trap \"\" TERM; sleep 600; :' &); exit 4",
    ] {
        let mut rig = Rig::shell(FAR, "walk", script);
        assert_eq!(rig.code(), 4, "{script}");
        assert_eq!(rig.tree(), Vec::<i32>::new(), "{script}");
        assert_eq!(rig.exit()["verified"], true);
    }
}

#[test]
fn a_child_that_ends_in_time_is_not_touched_by_the_deadline() {
    let mut rig = Rig::shell(NEAR, "", "sleep 1.5; exit 6");
    assert_eq!(rig.code(), 6);
    assert_eq!(rig.exit()["cause"], "Child");
}

#[test]
fn a_deadline_that_has_passed_starts_nothing() {
    let past = crate::rig::Times {
        stop: 0,
        kill: 1,
        every: 1000,
        until: 0,
    };
    let mut rig = Rig::shell(past, "", "echo ran > ran; sleep 600");
    assert_ne!(rig.code(), 0);
    assert_eq!(rig.text("ran"), "");
    assert_eq!(rig.tree(), Vec::<i32>::new());
}
