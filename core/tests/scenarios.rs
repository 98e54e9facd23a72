//! Plays every file of `core/scenarios` and holds each answer against the one that is written there.
//!
//! A file is a list of steps: commands, a line `----`, the answers, an empty line. `UPDATE=1 cargo test -p leasehold-core
//! --test scenarios` writes down what the rules answer now; the difference is what a reviewer has to judge.

mod scenario;

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use scenario::World;

#[test]
fn every_scenario_answers_as_written() {
    let files = files();
    assert!(files.len() >= 18, "only {} scenarios", files.len());
    let mut differ = Vec::new();
    for file in files {
        let written = fs::read_to_string(&file).expect("a scenario is readable");
        let played = play(&file, &written);
        if played != written {
            match env::var_os("UPDATE") {
                Some(_) => fs::write(&file, played).expect("a scenario is writable"),
                None => differ.push(first_difference(&file, &written, &played)),
            }
        }
    }
    assert!(
        differ.is_empty(),
        "{}\nUPDATE=1 writes down what the rules answer now",
        differ.join("\n")
    );
}

/// A runner that never compares would pass everything.
#[test]
fn a_wrong_answer_in_a_scenario_is_seen() {
    let right = "acquire orders by=a ttl=10s\n----\ngranted token=1 until=10s\n";
    let file = Path::new("here");
    assert_eq!(play(file, right), right);
    let wrong = right.replace("token=1", "token=2");
    assert_ne!(play(file, &wrong), wrong);
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .expect("there are scenarios")
        .map(|entry| entry.expect("a folder can be read").path())
        .collect();
    files.sort();
    for file in &files {
        assert!(
            file.extension().is_some_and(|end| end == "txt"),
            "{} is no scenario: its name does not end in .txt",
            file.display()
        );
    }
    files
}

/// The text of the file with the answers that the rules give. Comments and empty lines stay.
fn play(file: &Path, written: &str) -> String {
    let mut world = World::new();
    let mut played = String::new();
    let mut answers: Vec<String> = Vec::new();
    let mut lines = written.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        played += line;
        played.push('\n');
        if line == "----" {
            for answer in answers.drain(..) {
                played += &answer;
                played.push('\n');
            }
            if lines.by_ref().any(|(_, line)| line.is_empty()) {
                played.push('\n');
            }
        } else if !line.is_empty() && !line.starts_with('#') {
            let answer = world.obey(line);
            answers.extend(
                answer.unwrap_or_else(|error| {
                    panic!("{}:{}: {error}: {line}", file.display(), at + 1)
                }),
            );
        }
    }
    assert!(
        answers.is_empty(),
        "{}: its last step has no line `----`",
        file.display()
    );
    played
}

fn first_difference(file: &Path, written: &str, played: &str) -> String {
    let at = written
        .lines()
        .zip(played.lines())
        .take_while(|(written, played)| written == played)
        .count();
    format!(
        "{}:{}: written {:?}, answered {:?}",
        file.display(),
        at + 1,
        written.lines().nth(at).unwrap_or("nothing"),
        played.lines().nth(at).unwrap_or("nothing")
    )
}
