//! Which number a bump may use (T6, A10): one that no forgotten token reached, and that leaves room for later ones.

use std::time::Duration;

use leasehold_core::{Invalid, Token, WallTime};

/// A number further ahead of the clock than this is a slip of the hand, or a clock that is wrong.
const AHEAD: Duration = Duration::from_secs(24 * 60 * 60);

/// Whether the floor may rise to `token`. One further ahead than this would shut out every new name, so the record that
/// has it is never forgotten.
pub(super) fn may_be_floor(token: Token, wall: WallTime) -> bool {
    token.get() <= wall.plus(AHEAD).as_millis()
}

/// Refuses a number that would not be above everything known, and one from a clock that cannot be right.
///
/// `newest` is the largest token and floor of the store that is not the very last one, `last_event` the newest time in its history.
pub(super) fn check(
    above: Token,
    newest: Option<Token>,
    last_event: Option<WallTime>,
    wall: WallTime,
) -> Result<(), Invalid> {
    let refuse = |why| Err(Invalid::new("bump", above, why));
    if Some(above) <= newest {
        return refuse("the number must be above every token and floor of the store");
    }
    if last_event.is_some_and(|last| wall < last) {
        return refuse("this machine's wall clock is behind the store's history; set the clock");
    }
    if !may_be_floor(above, wall) {
        return refuse("the number must be at most the unix time in milliseconds, plus one day");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u64) -> Token {
        Token::new(number).unwrap()
    }

    /// A10.
    #[test]
    fn a_bump_needs_a_number_above_all_and_near_the_clock() {
        let now = WallTime::from_nanos(1_796_000_000_000 * 1_000_000);
        let unix_ms = token(now.as_millis());
        assert!(check(unix_ms, None, None, now).is_ok());
        assert!(check(unix_ms, Some(token(7)), Some(now.minus(AHEAD)), now).is_ok());
        assert!(check(token(1_000), Some(token(7)), None, now).is_ok());
        assert!(check(unix_ms, Some(unix_ms), None, now).is_err());
        assert!(check(unix_ms, None, Some(now.plus(AHEAD)), now).is_err());
        assert!(check(token(now.as_millis() + 86_400_001), None, None, now).is_err());
        assert!(check(Token::MAX, None, None, now).is_err());
    }
}
