//! A provider as people write it: `KIND LIMIT/INTERVAL [capacity B] [ban D]`.

use std::fmt;
use std::str::FromStr;

use paceline_core::duration::{self, Exact};
use paceline_core::policy::LIMIT_MAX;
use paceline_core::{Micros, SPAN_MAX_US};

use super::Kind;

/// Shortest interval, as in a policy: a millisecond.
const INTERVAL_MIN_US: Micros = 1_000;

const FORM: &str = "a provider is KIND LIMIT/INTERVAL [capacity B] [ban D], such as \
                    `sliding 50/s`, `bucket 100/m capacity 10` or `fixed 100/m ban 30s`";
const LIMIT_ALLOWED: &str = "a limit is a whole number from 1 to 1000000000";
const CAPACITY_ALLOWED: &str = "a capacity is a whole number from 1 to 1000000000";

/// How a provider counts, how much it allows, and how it punishes. Valid from construction.
///
/// Its text form parses and prints: `KIND LIMIT/INTERVAL [capacity B] [ban D]`. The capacity is
/// that of a `bucket` or a `leaky` meter, and the limit where it is not said. The ban is how long
/// everything is refused once a call was.
///
/// ```
/// use paceline_sim::{Kind, ProviderSpec};
///
/// let spec: ProviderSpec = "bucket 100/m capacity 10 ban 30s".parse()?;
/// assert_eq!((spec.kind(), spec.limit(), spec.capacity()), (Kind::Bucket, 100, 10));
/// assert_eq!(spec.to_string(), "bucket 100/m capacity 10 ban 30s");
/// # Ok::<(), paceline_sim::ProviderError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProviderSpec {
    kind: Kind,
    limit: u32,
    interval_us: Micros,
    capacity: Option<u32>,
    ban_us: Micros,
}

impl ProviderSpec {
    /// A provider of this kind that allows `limit` in each interval and does not ban.
    ///
    /// # Errors
    /// When the limit is not 1 to 1000000000, or the interval not 1ms to 3650d.
    pub fn new(kind: Kind, limit: u32, interval_us: Micros) -> Result<Self, ProviderError> {
        if !(1..=LIMIT_MAX).contains(&limit) {
            return Err(ProviderError::new(limit.to_string(), LIMIT_ALLOWED));
        }
        if !(INTERVAL_MIN_US..=SPAN_MAX_US).contains(&interval_us) {
            let interval = Exact(interval_us).to_string();
            return Err(ProviderError::new(interval, "an interval is 1ms to 3650d"));
        }
        Ok(Self { kind, limit, interval_us, capacity: None, ban_us: 0 })
    }

    /// The same with this capacity.
    ///
    /// # Errors
    /// When its kind has none, or it is not 1 to 1000000000.
    pub fn with_capacity(self, capacity: u32) -> Result<Self, ProviderError> {
        if !self.kind.has_capacity() {
            let value = format!("{} capacity {capacity}", self.kind);
            return Err(ProviderError::new(value, "only bucket and leaky have a capacity"));
        }
        if !(1..=LIMIT_MAX).contains(&capacity) {
            return Err(ProviderError::new(capacity.to_string(), CAPACITY_ALLOWED));
        }
        Ok(Self { capacity: Some(capacity), ..self })
    }

    /// The same with this ban; 0 for none.
    ///
    /// # Errors
    /// When the ban is negative or beyond 3650d.
    pub fn with_ban(self, ban_us: Micros) -> Result<Self, ProviderError> {
        if !(0..=SPAN_MAX_US).contains(&ban_us) {
            return Err(ProviderError::new(Exact(ban_us).to_string(), "a ban is 0s to 3650d"));
        }
        Ok(Self { ban_us, ..self })
    }

    /// How it counts.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Calls in each interval.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// The interval.
    #[must_use]
    pub fn interval_us(&self) -> Micros {
        self.interval_us
    }

    /// What a bucket or a meter holds; the limit where it is not said.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.capacity.unwrap_or(self.limit)
    }

    /// How long everything is refused once a call was; 0 for not at all.
    #[must_use]
    pub fn ban_us(&self) -> Micros {
        self.ban_us
    }

    /// How long its answers take by its own nature: the interval where it counts calls under way,
    /// so that the limit in each interval is what it lets pass at most; else 0.
    #[must_use]
    pub fn answer_us(&self) -> Micros {
        if self.kind == Kind::Concurrency { self.interval_us } else { 0 }
    }
}

impl fmt::Display for ProviderSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/", self.kind, self.limit)?;
        match duration::in_largest_unit(self.interval_us) {
            (1, unit) => f.write_str(unit)?,
            (count, unit) => write!(f, "{count}{unit}")?,
        }
        if let Some(capacity) = self.capacity {
            write!(f, " capacity {capacity}")?;
        }
        if self.ban_us > 0 {
            write!(f, " ban {}", Exact(self.ban_us))?;
        }
        Ok(())
    }
}

impl FromStr for ProviderSpec {
    type Err = ProviderError;

    fn from_str(text: &str) -> Result<Self, ProviderError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [kind, rest @ ..] = words.as_slice() else {
            return Err(ProviderError::new(text, FORM));
        };
        let kind = kind.parse::<Kind>()?;
        let [rate, rest @ ..] = rest else { return Err(ProviderError::new(text, FORM)) };
        let (limit, interval) =
            rate.split_once('/').ok_or_else(|| ProviderError::new(text, FORM))?;
        let limit = count(limit, LIMIT_ALLOWED)?;
        // `100/s` is `100/1s`.
        let interval_us = match duration::unit_us(interval) {
            Some(us) => us,
            None => span(interval)?,
        };
        let mut spec = Self::new(kind, limit, interval_us)?;
        let (mut capacity, mut ban) = (None, None);
        let mut words = rest;
        while let [word, value, tail @ ..] = words {
            match *word {
                "capacity" if capacity.is_none() => {
                    let tokens = count(value, CAPACITY_ALLOWED)?;
                    spec = spec.with_capacity(tokens)?;
                    capacity = Some(tokens);
                }
                "ban" if ban.is_none() => {
                    let us = span(value)?;
                    spec = spec.with_ban(us)?;
                    ban = Some(us);
                }
                _ => return Err(ProviderError::new(text, FORM)),
            }
            words = tail;
        }
        if words.is_empty() { Ok(spec) } else { Err(ProviderError::new(text, FORM)) }
    }
}

/// Why a provider was refused: the value, and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("provider {value:?}: {allowed}")]
pub struct ProviderError {
    value: String,
    allowed: String,
}

impl ProviderError {
    pub(super) fn new(value: impl Into<String>, allowed: impl Into<String>) -> Self {
        Self { value: value.into().trim().to_owned(), allowed: allowed.into() }
    }
}

fn count(text: &str, allowed: &str) -> Result<u32, ProviderError> {
    // `u32::from_str` takes a leading plus; people do not write one.
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match text.parse() {
        Ok(number) if digits => Ok(number),
        _ => Err(ProviderError::new(text, allowed)),
    }
}

fn span(text: &str) -> Result<Micros, ProviderError> {
    duration::parse(text).map_err(|error| ProviderError::new(text, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_printed_again() {
        for text in [
            "sliding 50/s",
            "fixed 100/m",
            "first 5/1500ms",
            "counter 100/m",
            "counter-up 1/d",
            "bucket 100/m capacity 10",
            "leaky 2/s capacity 40 ban 1h",
            "spacing 5/s",
            "concurrency 10/200ms",
            "sliding 50/s ban 30s",
        ] {
            let spec: ProviderSpec = text.parse().unwrap();
            assert_eq!(spec.to_string(), text);
            assert_eq!(spec.to_string().parse(), Ok(spec));
        }
        let loose: ProviderSpec = " bucket  60/60s ban 0s   capacity 60 ".parse().unwrap();
        assert_eq!(loose.to_string(), "bucket 60/m capacity 60");
    }

    #[test]
    fn a_capacity_that_is_not_said_is_the_limit() {
        let spec: ProviderSpec = "bucket 30/s".parse().unwrap();
        assert_eq!(spec.capacity(), 30);
        assert_eq!(spec.to_string(), "bucket 30/s");
    }

    #[test]
    fn what_is_no_provider_is_refused_with_the_value_and_what_is_allowed() {
        for (text, value, allowed) in [
            ("", "\"\"", "KIND LIMIT/INTERVAL"),
            ("rolling 5/s", "\"rolling\"", "sliding, fixed, first"),
            ("sliding", "\"sliding\"", "KIND LIMIT/INTERVAL"),
            ("sliding 50", "\"sliding 50\"", "KIND LIMIT/INTERVAL"),
            ("sliding 0/s", "\"0\"", "1 to 1000000000"),
            ("sliding -5/s", "\"-5\"", "1 to 1000000000"),
            ("sliding +5/s", "\"+5\"", "1 to 1000000000"),
            ("sliding 1000000001/s", "\"1000000001\"", "1 to 1000000000"),
            ("sliding 5/parsec", "\"parsec\"", "ms, s, m, h, d"),
            ("sliding 5/0s", "\"0s\"", "1ms to 3650d"),
            ("sliding 5/999us", "\"999us\"", "1ms to 3650d"),
            ("sliding 5/s capacity 3", "\"sliding capacity 3\"", "only bucket and leaky"),
            ("bucket 5/s capacity 0", "\"0\"", "1 to 1000000000"),
            ("bucket 5/s capacity", "\"bucket 5/s capacity\"", "[capacity B]"),
            ("bucket 5/s capacity 1 capacity 1", "capacity 1 capacity 1", "[capacity B]"),
            ("sliding 5/s ban soon", "\"soon\"", "ms, s, m, h, d"),
            ("sliding 5/s ban 3651d", "\"3651d\"", "3650d"),
            ("sliding 5/s burst 3", "burst 3", "[capacity B] [ban D]"),
        ] {
            let message = text.parse::<ProviderSpec>().unwrap_err().to_string();
            assert!(message.contains(value) && message.contains(allowed), "{text:?}: {message}");
        }
    }
}
