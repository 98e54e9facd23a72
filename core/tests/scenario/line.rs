//! One line of a scenario: a verb, an object, and words like `by=a` or `value="a b"`.

use std::time::Duration;

use leasehold_core::Ttl;

pub(crate) struct Line {
    pub(crate) verb: String,
    pub(crate) object: String,
    words: Vec<String>,
}

impl Line {
    pub(crate) fn read(line: &str) -> Result<Self, String> {
        let mut words = split(line)?.into_iter();
        Ok(Self {
            verb: words.next().ok_or("a line needs a verb")?,
            object: words.next().unwrap_or_default(),
            words: words.collect(),
        })
    }

    /// The value of `key=value`, which is then used up.
    pub(crate) fn take(&mut self, key: &str) -> Option<String> {
        let found = self.words.iter().position(|word| {
            word.strip_prefix(key)
                .is_some_and(|rest| rest.starts_with('='))
        })?;
        Some(self.words.remove(found).split_off(key.len() + 1))
    }

    pub(crate) fn need(&mut self, key: &str) -> Result<String, String> {
        self.take(key).ok_or(format!("{key}= is missing"))
    }

    /// Whether the bare `word` is there; it is then used up.
    pub(crate) fn take_word(&mut self, word: &str) -> bool {
        let before = self.words.len();
        self.words.retain(|each| each != word);
        self.words.len() < before
    }

    /// A word that means nothing would mislead whoever reads the scenario.
    pub(crate) fn all_used(&self) -> Result<(), String> {
        match self.words.first() {
            None => Ok(()),
            Some(word) => Err(format!("{} knows no {word}", self.verb)),
        }
    }
}

fn split(line: &str) -> Result<Vec<String>, String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            c => words.last_mut().expect("one is always there").push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    if quoted {
        Err("a quote is open".into())
    } else {
        Ok(words)
    }
}

/// `500ms`, `10s`, `5m`, `24h`, `400d`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number
        .parse()
        .map_err(|_| format!("{text:?} is no duration"))?;
    let unit = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(format!("{text:?} has no unit: ms, s, m, h, d")),
    };
    Ok(Duration::from_millis(number * unit))
}

pub(crate) fn ttl(text: &str) -> Result<Ttl, String> {
    Ttl::new(duration(text)?).map_err(|error| error.to_string())
}

/// An id that a word stands for.
pub(crate) fn bits(word: &str) -> u128 {
    word.bytes()
        .fold(0, |bits, byte| bits << 8 | u128::from(byte))
}
