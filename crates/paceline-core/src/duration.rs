//! Spans of time as people write them: a whole number and a unit (`250ms`, `30s`, `15m`, `6h`,
//! `1d`; `us` for microseconds). One spelling for policies, flags and URLs.

use std::fmt;

use crate::{Micros, SPAN_MAX_US};

/// Units from large to small, so that printing takes the largest that divides.
const UNITS: [(&str, Micros); 6] = [
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
];

/// Why a text is no span of time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no span of time: write a whole number and a unit (us, ms, s, m, h, d), \
     from 0us to 3650d, such as 250ms or 30s"
)]
pub struct DurationError {
    text: String,
}

/// Reads `30s`, `250ms`, `1d` and so on, in whole microseconds.
///
/// ```
/// use paceline_core::duration::parse;
/// assert_eq!(parse("250ms").unwrap(), 250_000);
/// assert!(parse("soon").is_err());
/// ```
///
/// # Errors
/// When the text has no unit or an unknown one, is negative or fractional, or is beyond ten years.
pub fn parse(text: &str) -> Result<Micros, DurationError> {
    let refused = || DurationError { text: text.to_owned() };
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(refused)?;
    let (number, unit) = text.split_at(unit_at);
    let number: Micros = number.parse().map_err(|_| refused())?;
    number
        .checked_mul(unit_us(unit).ok_or_else(refused)?)
        .filter(|us| *us <= SPAN_MAX_US)
        .ok_or_else(refused)
}

/// The microseconds of one unit (`us`, `ms`, `s`, `m`, `h`, `d`), if there is such a unit.
///
/// ```
/// use paceline_core::duration::unit_us;
/// assert_eq!(unit_us("ms"), Some(1_000));
/// assert_eq!(unit_us("parsec"), None);
/// ```
#[must_use]
pub fn unit_us(unit: &str) -> Option<Micros> {
    UNITS.iter().find(|(name, _)| *name == unit).map(|(_, us)| *us)
}

/// Prints a span so that [`parse`] reads the same one back: exact, in the largest fitting unit.
///
/// ```
/// use paceline_core::duration::Exact;
/// assert_eq!(Exact(90_000_000).to_string(), "90s");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exact(pub Micros);

impl fmt::Display for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, unit) = in_largest_unit(self.0);
        write!(f, "{count}{unit}")
    }
}

/// The span as a count of the largest unit that divides it.
///
/// ```
/// use paceline_core::duration::in_largest_unit;
/// assert_eq!(in_largest_unit(90_000_000), (90, "s"));
/// ```
#[must_use]
pub fn in_largest_unit(us: Micros) -> (Micros, &'static str) {
    let (unit, size) =
        UNITS.iter().find(|(_, size)| us != 0 && us % size == 0).unwrap_or(&("s", 1));
    (us / size, unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_reads_back() {
        for us in [0, 1, 999, 1_000, 1_500, 60_000_000, 90_000_000, 86_400_000_000, SPAN_MAX_US] {
            assert_eq!(parse(&Exact(us).to_string()), Ok(us));
        }
    }

    #[test]
    fn what_is_no_span_is_refused_with_the_text_and_what_is_allowed() {
        for text in
            ["", "5", "s", "-1s", "1.5s", "5 s", "5x", "3651d", "99999999999999999999s", "5S"]
        {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(&format!("{text:?}")) && message.contains("ms, s, m, h, d"));
        }
    }
}
