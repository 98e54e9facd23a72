//! What the demo says: results on standard output, for programs too; everything else on standard error, for people.
//!
//! Colours only on a terminal, and never with `NO_COLOR`. Narration that cannot be written is no reason to fail.

use std::{
    env,
    io::{self, IsTerminal, Stderr, Write},
    thread,
};

use anstream::AutoStream;
use anstyle::{AnsiColor, Style};
use rustix::termios::tcgetwinsize;
use tokio::sync::mpsc;

use crate::{exit::Failure, out};

/// Where nothing is known about the reader's screen.
const USUAL_WIDTH: usize = 80;
/// Longer lines are hard to read.
const MAX_WIDTH: usize = 78;
/// Narrower ones have no room for the picture.
const MIN_WIDTH: usize = 48;

/// A space that is no place to fold; the reader gets a plain one.
const GLUE: &str = "\u{a0}";

pub(crate) const PLAIN: Style = Style::new();
pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const OF_A: Style = AnsiColor::Cyan.on_default();
pub(crate) const OF_B: Style = AnsiColor::Yellow.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();

/// Who speaks to the reader.
pub(crate) struct Voice {
    quiet: bool,
    json: bool,
    results: Style,
    /// The line above is a result, and no empty line follows it yet.
    after_result: bool,
    stderr: AutoStream<Stderr>,
    width: usize,
    unicode: bool,
    keys: Option<mpsc::Receiver<()>>,
}

impl Voice {
    /// `step`: wait for Enter where the story pauses.
    pub(crate) fn new(quiet: bool, json: bool, step: bool) -> Self {
        let stdout = io::stdout();
        let coloured = stdout.is_terminal()
            && AutoStream::choice(&stdout) != anstream::ColorChoice::Never
            && !json;
        Self {
            quiet,
            json,
            results: if coloured { BOLD } else { PLAIN },
            after_result: false,
            stderr: AutoStream::auto(io::stderr()),
            width: width().clamp(MIN_WIDTH, MAX_WIDTH),
            unicode: speaks_unicode(|name| env::var(name).ok()),
            keys: step.then(enter_keys),
        }
    }

    /// A result: one line of standard output.
    pub(crate) fn result(&mut self, what: &str, answer: &str) -> Result<(), Failure> {
        self.after_result = true;
        let style = self.results;
        match self.json {
            true => out::json(&serde_json::json!({ "what": what, "answer": answer })),
            false => out::line(&format!("{style}{what}: {answer}{style:#}")),
        }
    }

    /// A line of its own, with room above it.
    pub(crate) fn heading(&mut self, text: &str) {
        let text = textwrap::fill(text, self.width);
        self.print(&format!("\n{BOLD}{text}{BOLD:#}\n\n"));
    }

    /// A paragraph, folded to the width of the screen. `*word*` is a word to remember, `@a` and `@b` are the two nodes.
    pub(crate) fn say(&mut self, text: &str) {
        let folded = self.fold("  ", "  ", text);
        self.print(&format!("{folded}\n\n"));
    }

    /// Rows of a name and what it is.
    pub(crate) fn list(&mut self, rows: &[(String, &str)]) {
        for (name, what) in rows {
            let name = format!("    {name}  ");
            let folded = self.fold(&name, &" ".repeat(name.len()), what);
            self.print(&format!("{folded}\n"));
        }
        self.print("\n");
    }

    /// Lines to be kept as they are.
    pub(crate) fn show(&mut self, lines: &[String]) {
        for line in lines {
            self.print(&format!("  {line}\n"));
        }
        self.print("\n");
    }

    /// How many columns a shown line may have.
    pub(crate) fn columns(&self) -> usize {
        self.width - 2
    }

    /// Whether the reader's screen shows more than ASCII.
    pub(crate) fn unicode(&self) -> bool {
        self.unicode
    }

    /// Lets the reader read, if asked for. At the end of the input nobody is there to wait for.
    pub(crate) async fn pause(&mut self) {
        if self.keys.is_some() {
            self.print(&format!("  {DIM}Enter: go on{DIM:#}"));
            if let Some(keys) = self.keys.as_mut() {
                keys.recv().await;
            }
            self.print("\n");
        }
    }

    fn fold(&self, first: &str, others: &str, text: &str) -> String {
        let options = textwrap::Options::new(self.width)
            .initial_indent(first)
            .subsequent_indent(others)
            .break_words(false)
            .word_splitter(textwrap::WordSplitter::NoHyphenation);
        // What is to be typed stays on one line.
        let glued = every_other(text, '`', |typed| format!("`{}`", typed.replace(' ', GLUE)));
        textwrap::fill(&emphasise(&glued), options).replace(GLUE, " ")
    }

    fn print(&mut self, text: &str) {
        if !self.quiet {
            let room = if std::mem::take(&mut self.after_result) {
                "\n"
            } else {
                ""
            };
            let _ = write!(self.stderr, "{room}{text}");
            let _ = self.stderr.flush();
        }
    }
}

fn emphasise(text: &str) -> String {
    every_other(text, '*', |word| format!("{BOLD}{word}{BOLD:#}"))
        .replace("@a", &format!("{OF_A}a{OF_A:#}"))
        .replace("@b", &format!("{OF_B}b{OF_B:#}"))
}

/// Changes what stands between two marks, and takes the marks off.
fn every_other(text: &str, mark: char, change: impl Fn(&str) -> String) -> String {
    let parts = text.split(mark).enumerate();
    parts
        .map(|(n, part)| match n % 2 {
            0 => part.to_owned(),
            _ => change(part),
        })
        .collect()
}

fn width() -> usize {
    let stderr = io::stderr();
    let screen = tcgetwinsize(&stderr).ok().map(|size| size.ws_col.into());
    screen
        .filter(|columns| *columns > 0)
        .or_else(|| env::var("COLUMNS").ok()?.parse().ok())
        .unwrap_or(USUAL_WIDTH)
}

/// As the C library decides it: the first of these that is set and not empty.
fn speaks_unicode(var: impl Fn(&str) -> Option<String>) -> bool {
    ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(|name| var(name).filter(|value| !value.is_empty()))
        .is_some_and(|value| {
            let value = value.to_ascii_lowercase();
            value.contains("utf-8") || value.contains("utf8")
        })
}

/// A tick for each line of standard input. The thread that waits for them ends with the process.
fn enter_keys() -> mpsc::Receiver<()> {
    let (sender, keys) = mpsc::channel(1);
    thread::spawn(move || {
        let mut input = io::stdin().lock();
        while skip_line(&mut input).is_ok_and(|more| more) && sender.blocking_send(()).is_ok() {}
    });
    keys
}

/// Reads to the end of a line of any length; false at the end of the input.
fn skip_line(input: &mut impl io::BufRead) -> io::Result<bool> {
    Ok(input.skip_until(b'\n')? > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_locale_that_says_so_gets_more_than_ascii() {
        let says = |vars: &[(&str, &str)]| {
            speaks_unicode(|name| {
                let found = vars.iter().find(|(key, _)| *key == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        assert!(says(&[("LANG", "de_DE.UTF-8")]));
        assert!(says(&[("LC_ALL", ""), ("LANG", "C.utf8")]));
        assert!(!says(&[("LC_ALL", "C"), ("LANG", "de_DE.UTF-8")]));
        assert!(!says(&[]));
    }
}
