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
        rows.iter().map(Row::line).collect()
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
        (share * self.columns as f64).round() as usize
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

    fn line(&self) -> String {
        let mut line = String::new();
        for cells in self.0.chunk_by(|(_, one), (_, next)| one == next) {
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
