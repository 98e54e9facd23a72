//! Leases and events as people see them: tables that fit the terminal, times as "12s left".

use std::time::Duration;

use comfy_table::{ContentArrangement, Row, Table, presets};
use jiff::{
    RoundMode, SignedDuration, SignedDurationRound, Unit,
    fmt::friendly::{Designator, Spacing, SpanPrinter},
    tz::TimeZone,
};
use leasehold::{
    WallTime,
    core::{State, Status, What},
    store::Recorded,
};

use crate::{exit::Failure, out, view};

/// Prints rows under a head, a line each.
pub(crate) fn table<const N: usize>(
    head: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> Result<(), Failure> {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(head);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    if let Some(width) = out::width() {
        table
            .set_width(width)
            .set_content_arrangement(ContentArrangement::Dynamic);
    }
    for row in rows {
        let mut row = Row::from(row);
        row.max_height(1);
        table.add_row(row);
    }
    let lines = table.lines().map(|line| format!("{}\n", line.trim_end()));
    out::text_as_it_is(&lines.collect::<String>())
}

/// What a lease is, in a word or two.
pub(crate) fn state(status: &Status) -> &'static str {
    match status.state {
        State::Held => "held",
        State::Delayed => "in its lock delay",
        State::Quarantined => "in quarantine",
        State::Free if status.holder.is_none() => "free",
        State::Free if status.released => "free, released",
        State::Free => "free, ran out",
    }
}

/// How long until anybody may have the lease.
pub(crate) fn left(status: &Status) -> String {
    match status.state {
        State::Free => "-".to_owned(),
        _ => format!("{} left", span(status.remaining)),
    }
}

/// A cell that may be empty.
pub(crate) fn or_dash(value: Option<&impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), ToString::to_string)
}

/// What happened, in a sentence without the lease's name.
pub(crate) fn what(recorded: &Recorded) -> String {
    match &recorded.event.what {
        What::Granted { holder, token, ttl } => {
            format!("granted to {holder} for {}, token {token}", span(ttl.get()))
        }
        What::Released { holder, token } => format!("released by {holder}, token {token}"),
        What::Expired { holder, token } => format!("ran out under {holder}, token {token}"),
        What::Lost { token, why } => {
            format!(
                "renewal with token {token} refused: {}",
                view::why_lost(why)
            )
        }
        What::Refused { target, why } => format!("write to {target} refused: {why}"),
        What::Forced { token } => format!("taken away by an operator, token {token} burnt"),
        What::Quarantined { token } => {
            format!("in quarantine, its past is in doubt, token {token} burnt")
        }
    }
}

/// A moment on this machine's calendar.
pub(crate) fn moment(at: WallTime) -> String {
    let local = view::timestamp(at).to_zoned(TimeZone::system());
    local.strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// A time as people say it, rounded down: `1h 2m`, `12s`, `1.5s`, `800ms`.
pub(crate) fn span(time: Duration) -> String {
    let smallest = match time.as_secs() {
        0 => Unit::Millisecond,
        1..3600 => Unit::Second,
        _ => Unit::Minute,
    };
    let round = SignedDurationRound::new()
        .smallest(smallest)
        .mode(RoundMode::Trunc);
    let rounded = SignedDuration::try_from(time)
        .and_then(|time| time.round(round))
        .unwrap_or(SignedDuration::MAX);
    SpanPrinter::new()
        .designator(Designator::Compact)
        .spacing(Spacing::BetweenUnits)
        .duration_to_string(&rounded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short_and_rounded_down() {
        let cases = [
            (0, "0s"),
            (999, "999ms"),
            (1_999, "1s"),
            (15_000, "15s"),
            (90_500, "1m 30s"),
            (3_725_000, "1h 2m"),
            (90_000_000, "25h"),
        ];
        for (millis, shown) in cases {
            assert_eq!(span(Duration::from_millis(millis)), shown);
        }
    }
}
