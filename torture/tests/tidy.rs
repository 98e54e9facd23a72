//! What no compiler checks about the tree: length, openings, clocks, links, words. Each test names every file at fault.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use leasehold_torture::{
    mutants::Mutant,
    tree::{self, root},
};

const MAX_LINES: usize = 600;

#[test]
fn no_source_file_is_long() {
    none_of(rust(), |_, text| {
        let lines = text.lines().count();
        (lines > MAX_LINES).then(|| format!("{lines} lines; {MAX_LINES} are allowed"))
    });
}

#[test]
fn every_source_file_opens_with_what_it_is() {
    none_of(rust(), |_, text| {
        (!text.starts_with("//! ")).then(|| "its first line is not `//! ...`".to_owned())
    });
}

#[test]
fn nothing_is_left_for_later() {
    let words = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X:"),
    ];
    none_of(all(), |_, text| first_line_with(text, &words));
}

#[test]
fn every_test_is_run() {
    none_of(rust(), |_, text| {
        first_line_with(text, &[concat!("#[ign", "ore")])
    });
}

#[test]
fn no_file_names_a_place_of_one_machine() {
    let places = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("/tmp", "/wt"),
    ];
    none_of(all(), |_, text| first_line_with(text, &places));
}

/// C9. Clippy says it too; this holds for other ways to read a clock as well. Tests may measure.
#[test]
fn only_one_file_reads_a_clock() {
    let reads = [
        "Instant::now",
        "SystemTime::now",
        "clock_gettime",
        "Timestamp::now",
        "Zoned::now",
    ];
    let sources = rust().into_iter().filter(|path| {
        let path = path.to_string_lossy();
        ["core/src", "leasehold/src", "cli/src"]
            .iter()
            .any(|part| path.contains(part))
            && !path.ends_with("leasehold/src/clock.rs")
    });
    none_of(sources.collect(), |_, text| {
        first_line_with(text.split("#[cfg(test)]").next().unwrap_or(""), &reads)
    });
}

#[test]
fn every_crate_takes_the_workspace_lints() {
    let manifests = all()
        .into_iter()
        .filter(|path| path.ends_with("Cargo.toml"));
    none_of(manifests.collect(), |_, text| {
        (!text.contains("[workspace]") && !text.contains("[lints]\nworkspace = true"))
            .then(|| "lacks `[lints] workspace = true`".to_owned())
    });
}

/// A mutant that fits no more breaks nothing, and its run would prove nothing.
#[test]
fn every_mutant_fits_the_code() {
    let mutants = Mutant::all(root()).expect("every mutant can be read");
    assert!(mutants.len() > 3, "only {} mutants", mutants.len());
    for mutant in mutants {
        mutant.broken(root()).expect("it fits");
    }
}

/// Reads the list of refused words from the glossary, so that the two cannot drift apart.
#[test]
fn no_public_name_uses_a_refused_word() {
    let glossary = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let line = glossary
        .lines()
        .find_map(|line| line.strip_prefix("Refused in names: "))
        .expect("ARCHITECTURE.md has the line `Refused in names: ...`");
    let refused: Vec<String> = line
        .split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect();
    assert!(refused.len() > 3, "no words in {line:?}");
    none_of(rust(), |_, text| {
        text.lines().find_map(|line| {
            let name = public_name(line)?.to_lowercase();
            let word = refused.iter().find(|word| name.contains(*word))?;
            Some(format!("`{}` uses the refused word {word}", line.trim()))
        })
    });
}

/// The map has a line for every source file, and none for a file that is gone.
#[test]
fn the_map_of_the_architecture_is_right() {
    let drawn = map();
    let covers =
        |name: &str, path: &str| name == path || name.ends_with('/') && path.starts_with(name);
    let paths: Vec<String> = all()
        .iter()
        .map(|path| {
            path.strip_prefix(root())
                .expect("below the root")
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    let missing: Vec<&String> = paths
        .iter()
        .filter(|path| path.contains("/src/") && path.ends_with(".rs"))
        .filter(|path| {
            !path
                .rsplit('/')
                .next()
                .is_some_and(|name| name.contains("tests"))
        })
        .filter(|path| !drawn.iter().any(|name| covers(name, path)))
        .collect();
    assert!(
        missing.is_empty(),
        "ARCHITECTURE.md has no line for {missing:#?}"
    );
    let gone: Vec<&String> = drawn
        .iter()
        .filter(|name| !paths.iter().any(|path| covers(name, path)))
        .collect();
    assert!(
        gone.is_empty(),
        "ARCHITECTURE.md has lines for what is gone: {gone:#?}"
    );
}

/// Every test that the table of invariants names is there.
#[test]
fn the_tests_of_the_invariants_exist() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let code: String = rust()
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .collect();
    let mut rows = 0;
    for row in text.lines().filter(|line| line.starts_with("| INV-")) {
        rows += 1;
        let named: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "nothing holds {row}");
        for name in named {
            assert!(
                code.contains(&format!("fn {name}(")),
                "there is no test {name}"
            );
        }
    }
    assert!(rows > 20, "only {rows} invariants");
}

#[test]
fn every_link_in_a_document_leads_somewhere() {
    let documents = all()
        .into_iter()
        .filter(|path| path.extension().is_some_and(|e| e == "md"));
    none_of(documents.collect(), |path, text| {
        links(text).into_iter().find_map(|link| {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            if file.contains("://") {
                return None;
            }
            let target = match file {
                "" => path.to_owned(),
                file => path.parent().expect("a file is in a folder").join(file),
            };
            let found = match fs::read_to_string(&target) {
                Ok(text) => anchor.is_empty() || anchors(&text).contains(anchor),
                Err(_) => target.is_dir() && anchor.is_empty(),
            };
            (!found).then(|| format!("its link to {link} leads nowhere"))
        })
    });
}

/// Fails with a line for every file that `fault` finds fault with.
fn none_of(files: Vec<PathBuf>, fault: impl Fn(&Path, &str) -> Option<String>) {
    assert!(!files.is_empty(), "no file was looked at");
    let faults: Vec<String> = files
        .iter()
        .filter_map(|path| {
            let text = fs::read_to_string(path).ok()?;
            let place = path.strip_prefix(root()).unwrap_or(path).display();
            Some(format!("{place}: {}", fault(path, &text)?))
        })
        .collect();
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

fn first_line_with(text: &str, words: &[&str]) -> Option<String> {
    text.lines().enumerate().find_map(|(number, line)| {
        let word = words.iter().find(|word| line.contains(**word))?;
        Some(format!("line {} has {word}", number + 1))
    })
}

fn public_name(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub ")?;
    let mut words = rest
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|w| !w.is_empty());
    words.find(|word| {
        ![
            "async", "const", "enum", "fn", "mod", "static", "struct", "trait", "type", "use",
        ]
        .contains(word)
    })
}

/// The names in the map of ARCHITECTURE.md: a line without indent is a folder, an indented one has files of it, or a
/// whole folder if it ends in `/`.
fn map() -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let (_, map) = text
        .split_once("## Every file\n\n```text\n")
        .expect("there is a map");
    let (map, _) = map.split_once("```").expect("the map ends");
    let mut folder = "";
    let mut names = BTreeSet::new();
    for line in map.lines().filter(|line| !line.starts_with("   ")) {
        let words = line.trim_start().split("  ").next().unwrap_or("");
        if !line.starts_with(' ') {
            folder = words;
            names.extend((!folder.ends_with("src/")).then(|| folder.to_owned()));
            continue;
        }
        let below = words.rfind('/').map_or("", |slash| &words[..=slash]);
        let files = words
            .split(' ')
            .map(|word| word.rsplit('/').next().unwrap_or(""));
        names.extend(files.map(|file| format!("{folder}{below}{file}")));
    }
    names.remove("");
    names
}

/// What stands between `](` and `)`, outside code.
fn links(text: &str) -> Vec<&str> {
    let mut code = false;
    let prose = text.lines().filter(|line| {
        code ^= line.starts_with("```");
        !code
    });
    prose
        .flat_map(|line| {
            line.split("](")
                .skip(1)
                .filter_map(|rest| rest.split_once(')'))
        })
        .map(|(link, _)| link)
        .collect()
}

/// The names that GitHub gives to headings.
fn anchors(text: &str) -> BTreeSet<String> {
    text.lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| {
            let heading = line.trim_start_matches('#').trim().to_lowercase();
            let kept = heading
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.collect::<String>().replace(' ', "-")
        })
        .collect()
}

fn rust() -> Vec<PathBuf> {
    all()
        .into_iter()
        .filter(|path| path.extension().is_some_and(|e| e == "rs"))
        .collect()
}

fn all() -> Vec<PathBuf> {
    tree::files(root()).expect("the tree can be read")
}
