//! The ledger once more (chapter 7): a list of lines, newest token wins, done is done.

use crate::random::{Ask, Said, Work};

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    lines: Vec<Line>,
    kept_from: u64,
}

#[derive(Debug)]
struct Line {
    work: Work,
    token: u64,
    attempt: u64,
    by: u64,
    what: u8,
    last: u64,
    done: Option<u8>,
}

impl Ledger {
    pub(crate) fn collect(&mut self, since: u64) {
        self.lines.retain(|line| line.last >= since);
        self.kept_from = self.kept_from.max(since);
    }

    pub(crate) fn begin(&mut self, ask: &Ask, refusal: Option<Said>, now: u64) -> Said {
        let &Ask::Begin {
            work,
            token,
            attempt,
            session,
            what,
            leave,
            born,
        } = ask
        else {
            unreachable!("it is asked to begin")
        };
        let new = Line {
            work,
            token,
            attempt,
            by: session % 2,
            what,
            last: now,
            done: None,
        };
        let Some(line) = self.lines.iter_mut().find(|line| line.work == work) else {
            if born.is_some_and(|born| born < self.kept_from) {
                return Said::TooOld(self.kept_from);
            }
            return refusal.unwrap_or_else(|| {
                self.lines.push(new);
                Said::Begun
            });
        };
        if line.what != what {
            return Said::Mismatch;
        }
        if let Some(value) = line.done {
            return Said::AlreadyDone {
                token: line.token,
                by: line.by,
                value,
            };
        }
        if token < line.token {
            return Said::Stale {
                token,
                highest: line.token,
            };
        }
        if let Some(refusal) = refusal {
            return refusal;
        }
        if token > line.token {
            let from = line.token;
            if leave {
                return Said::LeftUnfinished {
                    token: from,
                    by: line.by,
                };
            }
            *line = new;
            return Said::TookOver(from);
        }
        if attempt == line.attempt {
            Said::Resumed
        } else {
            Said::InProgress
        }
    }

    pub(crate) fn complete(&mut self, ask: &Ask, now: u64) -> Said {
        let &Ask::Complete {
            work,
            token,
            attempt,
            value,
        } = ask
        else {
            unreachable!("it is asked to complete")
        };
        match self.owned(work, token, attempt) {
            Err(said) => said,
            Ok(at) => {
                let line = &mut self.lines[at];
                if line.done.is_none() {
                    line.done = Some(value);
                    line.last = now;
                }
                Said::Completed
            }
        }
    }

    pub(crate) fn abandon(&mut self, ask: &Ask) -> Said {
        let &Ask::Abandon {
            work,
            token,
            attempt,
        } = ask
        else {
            unreachable!("it is asked to abandon")
        };
        match self.owned(work, token, attempt) {
            Err(Said::NotBegun) => Said::Abandoned,
            Err(said) => said,
            Ok(at) => match self.lines[at].done {
                Some(value) => Said::AlreadyDone {
                    token,
                    by: self.lines[at].by,
                    value,
                },
                None => {
                    self.lines.remove(at);
                    Said::Abandoned
                }
            },
        }
    }

    fn owned(&self, work: Work, token: u64, attempt: u64) -> Result<usize, Said> {
        let at = self
            .lines
            .iter()
            .position(|line| line.work == work)
            .ok_or(Said::NotBegun)?;
        let line = &self.lines[at];
        if token < line.token {
            return Err(Said::Stale {
                token,
                highest: line.token,
            });
        }
        if token > line.token {
            return Err(Said::NotBegun);
        }
        if attempt == line.attempt {
            return Ok(at);
        }
        Err(match line.done {
            Some(value) => Said::AlreadyDone {
                token,
                by: line.by,
                value,
            },
            None => Said::InProgress,
        })
    }
}
