//! Standard output and standard error. A reader that went away is no error; a disk that is full is one.
//!
//! Colours only on a terminal, and not if NO_COLOR is set: `anstream` takes them off everywhere else.

use std::io::{self, IsTerminal, Write};

use anstream::AutoStream;
use anstyle::{AnsiColor, Style};
use serde::Serialize;

use crate::exit::{DONE, Failure};

/// How much is printed at once, about, in bytes.
const CHUNK: usize = 64 * 1024;

/// Prints a line.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    text_as_it_is(&format!("{text}\n"))
}

/// Prints an object on a line of its own.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    jsons(std::iter::once(value))
}

/// Prints objects, a line each; many at once, not each by itself.
pub(crate) fn jsons(values: impl Iterator<Item = impl Serialize>) -> Result<(), Failure> {
    let mut text = Vec::new();
    for value in values {
        serde_json::to_writer(&mut text, &value)
            .map_err(|error| Failure::failed(format!("cannot write JSON: {error}")))?;
        text.push(b'\n');
        if text.len() >= CHUNK {
            bytes(&text)?;
            text.clear();
        }
    }
    bytes(&text)
}

/// Prints several lines, with colours where they are wanted.
pub(crate) fn text_as_it_is(text: &str) -> Result<(), Failure> {
    let mut stdout = AutoStream::auto(io::stdout().lock());
    let end = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
    end.map_err(|error| unwritable(&error))
}

/// Prints bytes, unchanged.
pub(crate) fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    let end = stdout.write_all(bytes).and_then(|()| stdout.flush());
    end.map_err(|error| unwritable(&error))
}

/// A line on standard error that is no error: whom we wait for, what to do next.
pub(crate) fn note(text: &str) {
    complain(text);
}

/// A line on standard error. If it cannot be written there is nobody left to tell.
pub(crate) fn complain(text: &str) {
    let mut stderr = AutoStream::auto(io::stderr().lock());
    let _ = writeln!(stderr, "{text}");
}

/// `head` has seen enough: that is the end, and a good one.
fn unwritable(error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Failure::silent(DONE);
    }
    Failure::failed(format!("standard output cannot be written: {error}"))
}

/// Whether whoever read our standard output has closed it.
pub(crate) fn reader_is_gone() -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stdout = io::stdout();
    let mut ends = [PollFd::new(&stdout, PollFlags::empty())];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut ends, Some(&at_once)).is_ok() && ends[0].revents().contains(PollFlags::ERR)
}

/// Whether a person reads standard error.
pub(crate) fn has_a_person() -> bool {
    io::stderr().is_terminal()
}

/// How wide a table may be: as the terminal; any width if there is none.
pub(crate) fn width() -> Option<u16> {
    let stdout = io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(&stdout).ok()?;
    Some(size.ws_col).filter(|columns| *columns > 0)
}

pub(crate) fn red(text: &str) -> String {
    styled(text, AnsiColor::Red)
}

pub(crate) fn yellow(text: &str) -> String {
    styled(text, AnsiColor::Yellow)
}

pub(crate) fn green(text: &str) -> String {
    styled(text, AnsiColor::Green)
}

fn styled(text: &str, color: AnsiColor) -> String {
    let style = Style::new().fg_color(Some(color.into())).bold();
    format!("{style}{text}{style:#}")
}
