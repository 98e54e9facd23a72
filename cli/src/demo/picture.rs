//! Who held when, as a time line drawn in text: the same story in six lines.
//!
//! Drawing is a function of times, width and characters; every line fits the width.

use std::{fmt::Write, time::Duration};

use anstyle::Style;
use leasehold::Token;

use super::voice::{BAD, DIM, GOOD, OF_A, OF_B, PLAIN};

/// Columns for the names at the left.
const LABELS: usize = 16;

/// The times of the story, from the grant of `a` on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Picture {
    /// When the lease of `a` ran out, if nobody renewed it.
    pub(crate) a_until: Duration,
    /// Its token.
    pub(crate) a_token: Token,
    /// When `b` got the lease.
    pub(crate) b_from: Duration,
    /// When that one runs out.
    pub(crate) b_until: Duration,
    /// Its token.
    pub(crate) b_token: Token,
    /// Whether there were reports to write.
    pub(crate) reports: bool,
}

/// What lines are drawn with.
struct Strokes {
    left: char,
    line: char,
    right: char,
    event: char,
    frozen: char,
    refused: char,
}

const UNICODE: Strokes = Strokes {
    left: '├',
    line: '─',
    right: '┤',
    event: '●',
    frozen: '░',
    refused: '✗',
};

const ASCII: Strokes = Strokes {
    left: '|',
    line: '-',
    right: '|',
    event: 'o',
    frozen: ':',
    refused: 'x',
};

impl Picture {
    /// The lines, none longer than `width` columns (at least 40).
    pub(crate) fn draw(&self, width: usize, unicode: bool) -> Vec<String> {
        let strokes = if unicode { &UNICODE } else { &ASCII };
        // Room for the unit behind the last time.
        let scale = Scale {
            columns: width.saturating_sub(LABELS + 3),
            end: self.b_until,
        };
        let (b_from, a_until) = (scale.at(self.b_from), scale.at(self.a_until));
        // Later than what b did, and never under it.
        let wakes = b_from + 4;
        let mut rows = vec![
            self.times(&scale),
            Row::new("lease of a", OF_A).bar(strokes, 0, a_until, self.a_token, OF_A),
            Row::new("process a", OF_A)
                .fill(strokes.frozen, 1, wakes, DIM)
                .centred(" frozen ", 1, wakes, PLAIN)
                .text(0, &strokes.event.to_string(), OF_A)
                .text(wakes, &strokes.event.to_string(), OF_A),
            Row::new("lease of b", OF_B).bar(
                strokes,
                b_from,
                scale.at(self.b_until),
                self.b_token,
                OF_B,
            ),
        ];
        if self.reports {
            let room = width.saturating_sub(LABELS + wakes + 4);
            let lost = longest(room, &["b's work is lost", "b is lost", "lost"]);
            let safe = longest(room, &["b's work is safe", "b is safe", "safe"]);
            let refused = strokes.refused.to_string();
            rows.push(
                Row::new("plain report", PLAIN)
                    .text(b_from, "b", OF_B)
                    .text(wakes, "a", OF_A)
                    .text(wakes + 4, lost, BAD),
            );
            rows.push(
                Row::new("fenced report", PLAIN)
                    .text(b_from, "b", OF_B)
                    .text(wakes, &refused, OF_A)
                    .text(wakes + 4, safe, GOOD),
            );
        }
        rows.iter().map(|row| row.line(width)).collect()
    }

    /// The times under each other with what happened then; one that has no room is left out.
    fn times(&self, scale: &Scale) -> Row {
        let mut row = Row::new("seconds", DIM);
        let mut free = 0;
        for time in [Duration::ZERO, self.a_until, self.b_from, self.b_until] {
            let (at, text) = (scale.at(time), seconds(time));
            if at >= free {
                row = row.text(at, &text, DIM);
                free = at + text.len() + 1;
            }
        }
        row
    }
}

struct Scale {
    columns: usize,
    end: Duration,
}

impl Scale {
    fn at(&self, time: Duration) -> usize {
        let share = time.as_secs_f64() / self.end.as_secs_f64().max(0.001);
        (share.min(1.0) * self.columns as f64).round() as usize
    }
}

/// One line: cells with their styles, the name first.
struct Row(Vec<(char, Style)>);

impl Row {
    fn new(name: &str, style: Style) -> Self {
        Self(name.chars().map(|c| (c, style)).collect())
    }

    /// `text` from column `at` behind the names on, over what was there.
    fn text(mut self, at: usize, text: &str, style: Style) -> Self {
        let from = LABELS + at;
        for (n, c) in text.chars().enumerate() {
            if self.0.len() <= from + n {
                self.0.resize(from + n + 1, (' ', PLAIN));
            }
            self.0[from + n] = (c, style);
        }
        self
    }

    fn fill(self, c: char, from: usize, to: usize, style: Style) -> Self {
        let text: String = (from..to).map(|_| c).collect();
        self.text(from, &text, style)
    }

    fn centred(self, text: &str, from: usize, to: usize, style: Style) -> Self {
        let room = to.saturating_sub(from);
        match room.checked_sub(text.len()) {
            Some(spare) => self.text(from + spare / 2, text, style),
            None => self,
        }
    }

    fn bar(self, strokes: &Strokes, from: usize, to: usize, token: Token, style: Style) -> Self {
        let (long, short) = (format!(" token {token} "), format!(" {token} "));
        let name = longest(to.saturating_sub(from + 1), &[&long, &short]);
        self.fill(strokes.line, from + 1, to, style)
            .text(from, &strokes.left.to_string(), style)
            .text(to, &strokes.right.to_string(), style)
            .centred(name, from + 1, to, style)
    }

    /// What has no room is cut off: only times that no story has come that far.
    fn line(&self, width: usize) -> String {
        let mut line = String::new();
        let shown = &self.0[..self.0.len().min(width)];
        for cells in shown.chunk_by(|(_, one), (_, next)| one == next) {
            let style = cells[0].1;
            let text: String = cells.iter().map(|(c, _)| c).collect();
            // Writing to a String cannot fail.
            let _ = write!(line, "{style}{text}{style:#}");
        }
        line
    }
}

/// The first text that fits, or nothing.
fn longest<'a>(room: usize, texts: &[&'a str]) -> &'a str {
    let fitting = texts.iter().find(|text| text.len() <= room);
    fitting.copied().unwrap_or_default()
}

/// Whole seconds without a fraction, others with one digit of it.
pub(crate) fn seconds(time: Duration) -> String {
    match time.subsec_millis() / 100 {
        0 => time.as_secs().to_string(),
        tenths => format!("{}.{tenths}", time.as_secs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(width: usize, unicode: bool) -> String {
        let picture = Picture {
            a_until: Duration::from_secs(10),
            a_token: Token::FIRST,
            b_from: Duration::from_secs(15),
            b_until: Duration::from_secs(25),
            b_token: Token::new(2).unwrap(),
            reports: true,
        };
        let text = picture.draw(width, unicode).join("\n");
        anstream::adapter::strip_str(&text).to_string()
    }

    #[test]
    fn a_wide_screen_has_room_for_all() {
        let expected = "\
seconds         0                      10         15                     25
lease of a      ├────── token 1 ───────┤
process a       ●░░░░░░░░░░░░░░ frozen ░░░░░░░░░░░░░░░●
lease of b                                        ├────── token 2 ───────┤
plain report                                      b   a   b's work is lost
fenced report                                     b   ✗   b's work is safe";
        assert_eq!(drawn(76, true), expected);
    }

    #[test]
    fn a_narrow_screen_without_unicode_tells_the_same() {
        let expected = "\
seconds         0          10   15         25
lease of a      | token 1 -|
process a       o::::: frozen ::::::o
lease of b                      | token 2 -|
plain report                    b   a   lost
fenced report                   b   x   safe";
        assert_eq!(drawn(46, false), expected);
    }

    #[test]
    fn no_line_is_wider_than_the_screen_whatever_the_times() {
        let token = Token::MAX;
        for width in 40..120 {
            for (a_until, b_from, b_until) in [(0, 0, 0), (2, 2, 7), (1, 600, 601), (2, 3, 8)] {
                let picture = Picture {
                    a_until: Duration::from_secs(a_until),
                    a_token: token,
                    b_from: Duration::from_millis(b_from * 1000 + 123),
                    b_until: Duration::from_secs(b_until),
                    b_token: token,
                    reports: true,
                };
                for line in picture.draw(width, true) {
                    let line = anstream::adapter::strip_str(&line).to_string();
                    let columns = line.chars().count();
                    assert!(columns <= width, "{columns} of {width}: {line}");
                }
            }
        }
    }
}
