//! Every command that a document shows is run as it is printed, and prints what the document shows.
//!
//! - `console` blocks: a line `$ command` is run (it goes on while it ends in `\`), and the lines below it are what it
//!   prints. `...` alone on a line stands for any lines, within a line for any text.
//! - `sh` blocks are scripts and must succeed; what they print is not looked at.
//! - `rust` blocks are doc tests of the library. `text` blocks show, and have no commands in them.
//! - Commands that build (`make`, `cargo`) are not run again by the tests they start: what they name must exist.
//!
//! The port 4850 stands for a free one.
//! A document that speaks of a PostgreSQL server at 127.0.0.1:5432 finds one of its own, at another port.
//!
//! The blocks of one document run in its order, in one empty home folder, with this build's `leasehold` on the path.

#[allow(
    dead_code,
    unreachable_pub,
    reason = "the library's tests use all of it"
)]
#[path = "../../leasehold/tests/postgres/server.rs"]
mod server;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

#[test]
fn the_readme_does_what_it_says() {
    let ran = run("README.md");
    assert!(ran > 0, "no command was run");
}

#[test]
fn the_contributors_guide_does_what_it_says() {
    run("CONTRIBUTING.md");
}

#[test]
fn a_document_that_lies_is_caught() {
    let shown = ["token 2".to_owned()];
    assert!(compare(&shown, "token 1\n").is_err());
    assert!(compare(&shown, "token 2\nmore\n").is_err());
    assert!(compare(&shown, "").is_err());
    let shown = ["a ... c".to_owned(), "...".to_owned(), "end".to_owned()];
    assert!(compare(&shown, "a b c\nx\ny\nend\n").is_ok());
    assert!(compare(&shown, "a b c\nend\n").is_ok());
    assert!(compare(&shown, "a b d\nend\n").is_err());
}

/// Runs the blocks of a document and answers how many commands that were.
fn run(document: &str) -> usize {
    let mut text = fs::read_to_string(root().join(document)).expect("the document is there");
    text = text.replace("4850", &free_port().to_string());
    let server = text.contains(SERVER).then(server::Version::one);
    let server = match server {
        Some(None) => return usize::MAX, // It has been said that it is skipped.
        Some(Some(version)) => Some(server::Server::start(&version)),
        None => None,
    };
    if let Some(server) = &server {
        text = text.replace(SERVER, &format!("127.0.0.1:{}", server.port()));
    }
    let home = tempfile::tempdir().expect("a folder for the test");
    let mut ran = 0;
    for block in blocks(&text) {
        let at = format!("{document}:{}", block.line);
        match block.language.as_str() {
            "console" => ran += console(&block, &at, home.path()),
            "sh" => {
                let (status, output) = bash(&block.lines.join("\n"), home.path());
                assert!(
                    status == 0,
                    "{at}: the script ended with {status}:\n{output}"
                );
                ran += 1;
            }
            "text" => {
                let command = block
                    .lines
                    .iter()
                    .find(|line| line.trim_start().starts_with("$ "));
                assert!(
                    command.is_none(),
                    "{at}: a command in a block that is not run"
                );
            }
            "rust" | "sql" | "toml" => {}
            other => panic!("{at}: no rule for blocks in {other:?}"),
        }
    }
    ran
}

/// The documents name the usual port; another test may be using it. Not one that the kernel gives to others.
fn free_port() -> u16 {
    let first = 10_000 + (std::process::id() % 20_000) as u16;
    let mut ports = first..first + 1_000;
    ports
        .find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("one of a thousand ports is free")
}

/// The commands of one block share a shell, as they would in a terminal.
fn console(block: &Block, at: &str, home: &Path) -> usize {
    let steps = steps(block, at);
    let mut script = String::new();
    for (command, _) in &steps {
        script += &format!("{command}\ncode=$?; printf '{END}%d\\n' $code; (exit $code)\n");
    }
    let (_, output) = bash(&script, home);
    let mut rest = output.as_str();
    for (command, shown) in &steps {
        let (printed, after) = rest.split_once(END).unwrap_or((rest, ""));
        let (code, after) = after.split_once('\n').unwrap_or(("none", ""));
        if let Err(fault) = compare(shown, printed) {
            panic!("{at}: `{command}` ended with {code}: {fault}\nIt printed:\n{printed}");
        }
        rest = after;
    }
    steps.len()
}

/// Where documents say that a PostgreSQL server is.
const SERVER: &str = "127.0.0.1:5432";
/// Ends the output of one command.
const END: &str = "\u{1e}";

/// The commands of a block that are run, each with what is shown below it.
fn steps(block: &Block, at: &str) -> Vec<(String, Vec<String>)> {
    let mut steps = Vec::new();
    let mut lines = block.lines.iter().peekable();
    while let Some(line) = lines.next() {
        let mut command = line
            .strip_prefix("$ ")
            .unwrap_or_else(|| panic!("{at}: {line:?} is neither a command nor below one"))
            .to_owned();
        while command.ends_with('\\') {
            command += "\n";
            command += lines.next().expect("a command goes on");
        }
        let mut shown = Vec::new();
        while let Some(line) = lines.next_if(|line| !line.starts_with("$ ")) {
            shown.push(line.clone());
        }
        if let Some(command) = without_building(&command, at) {
            steps.push((command, shown));
        }
    }
    steps
}

/// What is left to run of a command that may begin by building something.
fn without_building(command: &str, at: &str) -> Option<String> {
    let (first, rest) = match command.split_once(" && ") {
        Some((first, rest)) => (first, Some(rest.to_owned())),
        None => (command, None),
    };
    let settings = |word: &&str| word.contains('=');
    let words: Vec<&str> = first.split_whitespace().skip_while(settings).collect();
    match words[..] {
        ["git", "clone", ..] | ["cd", _] => rest,
        ["make", ref targets @ ..] => {
            let makefile = fs::read_to_string(root().join("Makefile")).expect("Makefile");
            for target in targets.iter().filter(|word| !word.contains('=')) {
                let there = makefile.contains(&format!("\n.PHONY: {target}\n"));
                assert!(there, "{at}: there is no `make {target}`");
            }
            rest
        }
        ["cargo", ref arguments @ ..] => {
            let after = |flag: &str| {
                let place = arguments.iter().position(|word| *word == flag)?;
                arguments.get(place + 1).copied()
            };
            let package = after("-p").map(|name| folder(name, at));
            if let Some(test) = after("--test") {
                let folder = package.as_ref().expect("`--test` comes with `-p`");
                let file = folder.join("tests").join(test);
                let there = file.with_extension("rs").is_file() || file.join("main.rs").is_file();
                assert!(there, "{at}: there is no {}", file.display());
            }
            rest
        }
        _ => Some(command.to_owned()),
    }
}

/// The folder of a package of the workspace.
fn folder(package: &str, at: &str) -> PathBuf {
    let name = package.strip_prefix("leasehold-").unwrap_or(package);
    let folder = root().join(name);
    assert!(
        folder.join("Cargo.toml").is_file(),
        "{at}: there is no package {package}"
    );
    folder
}

/// Runs a script as a user would in a terminal, and answers its exit code and all that it printed.
fn bash(script: &str, home: &Path) -> (i32, String) {
    let program = Path::new(env!("CARGO_BIN_EXE_leasehold"));
    let folder = program.parent().expect("a program is in a folder");
    let output = Command::new("timeout")
        .args(["--kill-after=5", "120", "bash", "-c"])
        .arg(format!("exec 2>&1\n{script}"))
        .env_clear()
        .env("HOME", home)
        .env(
            "PATH",
            env::join_paths([folder, Path::new("/usr/bin"), Path::new("/bin")]).expect("paths"),
        )
        .current_dir(home)
        .stdin(std::process::Stdio::null())
        .output()
        .expect("bash runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code().unwrap_or(-1), text)
}

/// Whether the output is what is shown.
fn compare(shown: &[String], output: &str) -> Result<(), String> {
    let mut printed = output.lines().map(str::trim_end).peekable();
    let mut shown = shown.iter().map(|line| line.trim_end()).peekable();
    while let Some(line) = shown.next() {
        if line == "..." {
            let Some(next) = shown.peek() else {
                return Ok(());
            };
            while printed.next_if(|line| !matches(next, line)).is_some() {}
            continue;
        }
        match printed.next() {
            Some(got) if matches(line, got) => {}
            got => return Err(format!("shown is {line:?}, printed was {got:?}")),
        }
    }
    match printed.next() {
        Some(line) => Err(format!("{line:?} was printed, and is not shown")),
        None => Ok(()),
    }
}

/// Whether a line has the shown parts in their order.
fn matches(shown: &str, line: &str) -> bool {
    let Some((start, after)) = shown.split_once("...") else {
        return shown == line;
    };
    let Some(mut rest) = line.strip_prefix(start) else {
        return false;
    };
    let mut parts: Vec<&str> = after.split("...").collect();
    let end = parts.pop().unwrap_or("");
    for part in parts {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(end)
}

struct Block {
    language: String,
    line: usize,
    lines: Vec<String>,
}

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open = false;
    for (number, line) in text.lines().enumerate() {
        match line.strip_prefix("```") {
            Some(_) if open => open = false,
            Some(language) => {
                open = true;
                let language = language.split(',').next().unwrap_or("").to_owned();
                blocks.push(Block {
                    language,
                    line: number + 1,
                    lines: Vec::new(),
                });
            }
            None if open => {
                let block = blocks.last_mut().expect("a block is open");
                block.lines.push(line.to_owned());
            }
            None => {}
        }
    }
    assert!(!open, "the last block does not end");
    blocks
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("crates are in the root")
}
