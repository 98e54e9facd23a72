//! Breaks the code on purpose, one fault at a time, and demands that a named test goes red (SEMANTICS 10.3).
//!
//! A mutant is a text file: a line that says what it breaks, `file:` and `test:`, then the text before and after. It works
//! on a copy of the tree, so the tree itself is never broken. A break that does not compile proves nothing and is an error.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, bail, ensure};

use crate::tree;

/// One fault, and the test that sees it.
#[derive(Debug)]
pub struct Mutant {
    /// The name of its file.
    pub name: String,
    /// What is broken, for people.
    pub what: String,
    /// The file to break, from the root.
    pub file: PathBuf,
    /// Arguments of `cargo test`.
    pub test: Vec<String>,
    before: String,
    after: String,
}

impl Mutant {
    /// Every mutant of `torture/mutants`, by name.
    pub fn all(root: &Path) -> anyhow::Result<Vec<Self>> {
        tree::files(&root.join("torture/mutants"))?
            .iter()
            .map(|path| Self::read(path).with_context(|| format!("in {}", path.display())))
            .collect()
    }

    fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path)?;
        let (head, rest) = text.split_once("--- before\n").context("no `--- before`")?;
        let (before, after) = rest.split_once("--- after\n").context("no `--- after`")?;
        let line = |name: &str| {
            head.lines()
                .find_map(|line| line.strip_prefix(name))
                .with_context(|| format!("no `{name}`"))
        };
        Ok(Self {
            name: path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            what: head.lines().next().unwrap_or_default().to_owned(),
            file: line("file: ")?.into(),
            test: line("test: ")?
                .split_whitespace()
                .map(str::to_owned)
                .collect(),
            before: before.to_owned(),
            after: after.to_owned(),
        })
    }

    /// The broken text of its file. The text to replace must be there exactly once, or the mutant is out of date.
    pub fn broken(&self, root: &Path) -> anyhow::Result<String> {
        let text = fs::read_to_string(root.join(&self.file))
            .with_context(|| format!("{}: {}", self.name, self.file.display()))?;
        let found = text.matches(&self.before).count();
        ensure!(
            found == 1,
            "{}: its text is {found} times in {}",
            self.name,
            self.file.display()
        );
        Ok(text.replace(&self.before, &self.after))
    }
}

/// Runs every mutant whose name contains `filter`. Fails if one of them survived.
pub fn run(root: &Path, scratch: &Path, filter: &str) -> anyhow::Result<()> {
    let all = Mutant::all(root)?;
    let mutants: Vec<&Mutant> = all
        .iter()
        .filter(|mutant| mutant.name.contains(filter))
        .collect();
    ensure!(!mutants.is_empty(), "no mutant is named like {filter:?}");
    let copy = scratch.join("tree");
    refresh(root, &copy)?;
    for mutant in &mutants {
        ensure!(
            test(&copy, scratch, mutant, true)?,
            "{}: its test fails unbroken",
            mutant.name
        );
    }
    let mut survived = 0;
    for mutant in &mutants {
        let caught = is_caught(root, &copy, scratch, mutant)?;
        survived += usize::from(!caught);
        let verdict = if caught { "caught  " } else { "SURVIVED" };
        println!("{verdict} {}: {}", mutant.name, mutant.what);
    }
    println!("{} mutants, {survived} survived", mutants.len());
    match survived {
        0 => Ok(()),
        _ => bail!("a fault that no test sees"),
    }
}

fn is_caught(root: &Path, copy: &Path, scratch: &Path, mutant: &Mutant) -> anyhow::Result<bool> {
    let place = copy.join(&mutant.file);
    let whole = fs::read(root.join(&mutant.file))?;
    fs::write(&place, mutant.broken(root)?)?;
    let compiles = test(copy, scratch, mutant, false);
    let passes = test(copy, scratch, mutant, true);
    fs::write(&place, whole)?;
    ensure!(compiles?, "{} does not compile", mutant.name);
    Ok(!passes?)
}

/// Whether the mutant's tests pass in the copy, or only build.
fn test(copy: &Path, scratch: &Path, mutant: &Mutant, run: bool) -> anyhow::Result<bool> {
    let status = Command::new("timeout")
        .args([
            "--kill-after=5",
            "900",
            "cargo",
            "test",
            "--quiet",
            "--locked",
        ])
        .args((!run).then_some("--no-run"))
        .args(&mutant.test)
        .current_dir(copy)
        .env("CARGO_TARGET_DIR", scratch.join("target"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("cannot start cargo")?;
    Ok(status.success())
}

/// Makes the copy like the tree; files that are alike keep their times, so that little is built anew.
fn refresh(root: &Path, copy: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(copy)?;
    for path in tree::files(copy)? {
        if !root.join(path.strip_prefix(copy)?).is_file() {
            fs::remove_file(path)?;
        }
    }
    for path in tree::files(root)? {
        let target = copy.join(path.strip_prefix(root)?);
        let text = fs::read(&path)?;
        if fs::read(&target).ok().as_ref() != Some(&text) {
            fs::create_dir_all(target.parent().context("a file is in a folder")?)?;
            fs::write(&target, text)?;
        }
    }
    Ok(())
}
