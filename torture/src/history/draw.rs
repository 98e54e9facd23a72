//! A time line for people: one line per process, who held which token when.
//!
//! The one rule: it shows what the history says and judges nothing. Where holders recorded their tenures those are
//! drawn, else what the store granted.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{Answer, Call, History, Outcome, Seconds, Step, What};

/// Columns of the time axis.
const WIDTH: usize = 97;

/// Most processes that are drawn for a lease, so that a report stays readable.
const ROWS: usize = 40;

/// How to read the picture, for the first lines of a report.
pub const LEGEND: &str = "5=== holds token 5   ... asks   | stops   x lost   r releases   d dies   > holds on\n\
                          + effect accepted   - refused   ? answer lost   ^ barrier   ! fault\n";

/// What part of a history to draw.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// Only this lease; none means all.
    pub lease: Option<String>,
    /// First moment, in nanoseconds.
    pub from: u64,
    /// Last moment, in nanoseconds.
    pub to: u64,
}

impl View {
    /// The whole history.
    pub fn all(history: &History) -> Self {
        let times = || history.events.iter().map(|e| e.time);
        Self {
            lease: None,
            from: times().min().unwrap_or(0),
            to: times().max().unwrap_or(0),
        }
    }
}

/// A process's part of a lease's time line.
#[derive(Default)]
struct Row {
    asks: Vec<(u64, u64)>,
    tenures: Vec<Tenure>,
    marks: Vec<(u64, char)>,
}

struct Tenure {
    token: u64,
    from: u64,
    to: Option<u64>,
    end: char,
}

/// Draws the part of `history` that `view` names.
pub fn draw(history: &History, view: &View) -> String {
    let mut out = format!("{:12}{}\n", "", ruler(view));
    for (lease, rows) in rows(history) {
        if view.lease.as_deref().is_some_and(|only| only != lease) {
            continue;
        }
        let lines: Vec<_> = rows
            .iter()
            .filter_map(|(process, row)| Some((process, row.line(view)?)))
            .collect();
        if lines.is_empty() {
            continue;
        }
        let _ = writeln!(out, "{lease}");
        for (process, line) in lines.iter().take(ROWS) {
            let _ = writeln!(out, "  {process:10}{line}");
        }
        if lines.len() > ROWS {
            let _ = writeln!(out, "  and {} more", lines.len() - ROWS);
        }
    }
    out + &around(history, view)
}

/// The rows of every lease, by process.
type Rows<'h> = BTreeMap<&'h str, BTreeMap<&'h str, Row>>;

/// Collects, per lease and process, what each did.
fn rows(history: &History) -> Rows<'_> {
    let mut rows = Rows::new();
    for event in &history.events {
        let (time, process) = (event.time, event.process.as_str());
        match &event.what {
            What::Tenure { lease, token, step } => {
                row(&mut rows, lease, process).step(time, *token, step)
            }
            What::Effect(e) => {
                row(&mut rows, &e.lease, process)
                    .marks
                    .push((time, mark(e.answer)));
            }
            What::Raise(raise) => row(&mut rows, &raise.lease, process)
                .marks
                .push((time, '^')),
            What::Died => {
                let own = rows.values_mut().filter_map(|lease| lease.get_mut(process));
                own.for_each(|row| row.end(time, None, 'd'));
            }
            _ => {}
        }
    }
    add_calls(history, &mut rows);
    rows
}

/// Adds what each asked, and the tenures of those that recorded none themselves.
fn add_calls<'h>(history: &'h History, rows: &mut Rows<'h>) {
    let mut recorded = Vec::new();
    for (lease, processes) in rows.iter() {
        recorded.extend(
            processes
                .iter()
                .filter(|p| !p.1.tenures.is_empty())
                .map(|p| (*lease, *p.0)),
        );
    }
    for op in history.ops().0 {
        let row = row(rows, op.lease, op.process);
        let end = op.returned.map_or(op.invoked.time, |at| at.time);
        if matches!(op.call, Call::Acquire { .. }) {
            row.asks.push((op.invoked.time, end));
        }
        if recorded.contains(&(op.lease, op.process)) {
            continue;
        }
        match (op.outcome, op.call) {
            (Outcome::Granted { token, .. }, _) => row.step(end, *token, &Step::Held),
            (Outcome::Lost, Call::Renew { token, .. }) => row.step(end, *token, &Step::Lost),
            (_, Call::Release { .. }) => row.end(op.invoked.time, None, 'r'),
            _ => {}
        }
    }
}

fn row<'r, 'h>(rows: &'r mut Rows<'h>, lease: &'h str, process: &'h str) -> &'r mut Row {
    rows.entry(lease).or_default().entry(process).or_default()
}

fn mark(answer: Answer) -> char {
    match answer {
        Answer::Accepted => '+',
        Answer::Refused => '-',
        Answer::Unknown => '?',
    }
}

impl Row {
    fn step(&mut self, time: u64, token: u64, step: &Step) {
        match step {
            Step::Held
                if self
                    .tenures
                    .iter()
                    .any(|t| t.token == token && t.to.is_none()) => {}
            Step::Held => self.tenures.push(Tenure {
                token,
                from: time,
                to: None,
                end: '>',
            }),
            Step::Stopped => self.end(time, Some(token), '|'),
            Step::Lost => self.end(time, Some(token), 'x'),
            Step::Releasing => self.end(time, Some(token), 'r'),
            Step::Deadline { .. } | Step::ChildStarted { .. } | Step::ChildDead { .. } => {}
        }
    }

    /// Ends the open tenures of `token`, or all.
    fn end(&mut self, time: u64, token: Option<u64>, end: char) {
        let open = self.tenures.iter_mut().filter(|t| t.to.is_none());
        for tenure in open.filter(|t| token.is_none_or(|token| t.token == token)) {
            tenure.to = Some(time);
            tenure.end = end;
        }
    }

    /// The row as text, or nothing if it is empty within the view.
    fn line(&self, view: &View) -> Option<String> {
        let mut cells = vec![' '; WIDTH];
        for &(from, to) in &self.asks {
            fill(&mut cells, view, from, to, '.');
        }
        for tenure in &self.tenures {
            let to = tenure.to.unwrap_or(view.to.max(tenure.from));
            fill(&mut cells, view, tenure.from, to, '=');
            put(&mut cells, view, to, tenure.end);
        }
        for tenure in self
            .tenures
            .iter()
            .filter(|t| view.column(t.from).is_some())
        {
            let start = view.column(tenure.from).unwrap_or(0);
            let digits = tenure.token.to_string();
            for (cell, digit) in cells[start..].iter_mut().zip(digits.chars()) {
                *cell = digit;
            }
        }
        for &(time, mark) in &self.marks {
            put(&mut cells, view, time, mark);
        }
        let line: String = cells.into_iter().collect();
        let line = line.trim_end();
        (!line.is_empty()).then(|| line.to_string())
    }
}

impl View {
    fn column(&self, time: u64) -> Option<usize> {
        (self.from..=self.to).contains(&time).then(|| {
            let (part, whole) = (time - self.from, self.to.saturating_sub(self.from).max(1));
            (u128::from(part) * (WIDTH as u128 - 1) / u128::from(whole)) as usize
        })
    }
}

fn put(cells: &mut [char], view: &View, time: u64, mark: char) {
    if let Some(column) = view.column(time) {
        cells[column] = mark;
    }
}

fn fill(cells: &mut [char], view: &View, from: u64, to: u64, mark: char) {
    let from = view.column(from.max(view.from));
    let to = view.column(to.min(view.to));
    if let (Some(from), Some(to)) = (from, to)
        && from <= to
    {
        cells[from..=to].fill(mark);
    }
}

/// The time axis: a moment at every quarter.
fn ruler(view: &View) -> String {
    let mut line = String::new();
    for quarter in 0..=4u64 {
        let time = view.from + (view.to.saturating_sub(view.from) / 4) * quarter;
        let rounded = Seconds(time / 1_000_000 * 1_000_000);
        let column = (WIDTH / 4) * quarter as usize;
        let _ = write!(
            line,
            "{:width$}{rounded}",
            "",
            width = column.saturating_sub(line.len())
        );
    }
    line
}

/// Faults and changes of the store within the view, in words.
fn around(history: &History, view: &View) -> String {
    let mut out = String::new();
    let near = history.events.iter().filter(|e| e.time <= view.to);
    for event in near {
        match &event.what {
            What::Fault {
                kind,
                victim,
                until,
                exceeds,
            } => {
                let until = until.unwrap_or(event.time);
                if until < view.from {
                    continue;
                }
                let who = victim.as_deref().unwrap_or("the store");
                let much = if *exceeds {
                    ", more than promised for"
                } else {
                    ""
                };
                let (from, until) = (Seconds(event.time), Seconds(until));
                let _ = writeln!(out, "  ! {kind} of {who}, {from} to {until}{much}");
            }
            What::Store { change, .. } if event.time >= view.from => {
                let _ = writeln!(
                    out,
                    "  ! store: {} at {}",
                    change.name(),
                    Seconds(event.time)
                );
            }
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::{Change, Effect};
    use super::*;

    #[test]
    fn a_time_line_shows_who_held_what_when() {
        let mut h = History::default();
        let s = |seconds: u64| seconds * 1_000_000_000;
        let acquire = |request: &str| Call::Acquire {
            request: request.into(),
            ttl: s(10),
        };
        let tenure = |token, step| What::Tenure {
            lease: "orders".into(),
            token,
            step,
        };
        let effect = |token, answer| {
            What::Effect(Effect {
                lease: "orders".into(),
                token,
                answer,
                ..Effect::default()
            })
        };
        let freeze = |exceeds| What::Fault {
            kind: "freeze".into(),
            victim: Some("a".into()),
            until: Some(s(19)),
            exceeds,
        };
        let id = h.invoke(s(0), "a", "orders", "s1", acquire("r1"));
        h.answer(
            s(1),
            "a",
            id,
            Outcome::Granted {
                token: 1,
                ttl: s(10),
            },
        );
        h.push(s(1), "a", tenure(1, Step::Held));
        h.push(s(3), "a", effect(1, Answer::Accepted));
        h.push(s(4), "a", freeze(true));
        let id = h.invoke(s(5), "b", "orders", "s2", acquire("r2"));
        h.push(
            s(6),
            "db",
            What::Store {
                lease: None,
                change: Change::Crash,
            },
        );
        h.answer(
            s(11),
            "b",
            id,
            Outcome::Granted {
                token: 2,
                ttl: s(10),
            },
        );
        h.push(s(11), "b", tenure(2, Step::Held));
        h.push(s(16), "b", effect(2, Answer::Accepted));
        h.push(s(19), "a", effect(1, Answer::Refused));
        h.push(s(20), "a", tenure(1, Step::Lost));
        let expected = "            0s                      5s                      10s                     15s                     20s
orders
  a         ....1=========+============================================================================-====x
  b                                 ............................2=======================+===================>
  ! freeze of a, 4s to 19s, more than promised for
  ! store: crash at 6s
";
        assert_eq!(draw(&h, &View::all(&h)), expected);
        let other = View {
            lease: Some("other".into()),
            ..View::all(&h)
        };
        assert!(!draw(&h, &other).contains("orders"));
    }

    #[test]
    fn any_history_can_be_drawn() {
        draw(&History::default(), &View::all(&History::default()));
        let mut h = History::default();
        let id = h.invoke(u64::MAX, "a", "x", "s", Call::Read);
        h.answer(0, "a", id, Outcome::Unknown);
        h.push(
            3,
            "a",
            What::Tenure {
                lease: "x".into(),
                token: u64::MAX,
                step: Step::Held,
            },
        );
        draw(&h, &View::all(&h));
        draw(
            &h,
            &View {
                lease: None,
                from: 2,
                to: 2,
            },
        );
    }
}
