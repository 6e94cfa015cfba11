//! `Retry-After` and its vendors' forms: seconds, whole or with a fraction, HTTP dates, spans with
//! units, and lists of these where a proxy has joined the words of several.

use http::HeaderMap;

use super::limits::Reset;
use crate::reading::UnixMicros;
use crate::time::{self, Time, Unit};

/// The names, in the order in which they are believed, and how their numbers are meant. The
/// millisecond forms are finer and are sent beside a rounded one.
const NAMES: [(&str, Unit); 5] = [
    ("retry-after-ms", Unit::DeltaMillis),
    ("x-ms-retry-after-ms", Unit::DeltaMillis),
    ("retry-after", Unit::Delta),
    ("x-retry-after", Unit::Delta),
    ("x-ratelimit-retry-after", Unit::Delta),
];

/// Whether a header of this name may be one of them: a cheap question for each header.
pub(super) fn is_name(name: &str) -> bool {
    name.ends_with("retry-after") || name.ends_with("retry-after-ms")
}

/// What these headers say: the first that asks for a wait, else one that asks for none.
pub(super) fn read<'a>(
    headers: &'a HeaderMap,
    unit: impl Fn(&str) -> Option<Unit>,
    clock: UnixMicros,
) -> Option<Reset<'a>> {
    let mut zero = None;
    for (header, usual) in NAMES {
        let unit = unit(header).unwrap_or(usual);
        let lines = headers.get_all(header).iter();
        let said = lines
            .filter_map(|line| std::str::from_utf8(line.as_bytes()).ok())
            .filter_map(|line| longest(line, unit, clock))
            .max_by_key(|(time, _)| time.span(clock));
        let Some((time, raw)) = said else { continue };
        let said = Reset { time, raw, header };
        if time.span(clock) > 0 {
            return Some(said);
        }
        zero = zero.or(Some(said));
    }
    zero
}

/// The longest valid member of a line. What is not valid is left out: negative numbers, exponents,
/// words.
fn longest(line: &str, unit: Unit, clock: UnixMicros) -> Option<(Time, &str)> {
    let line = line.trim_ascii();
    if !line.contains(',') {
        return time::parse(line, unit).map(|time| (time, line));
    }
    let mut longest: Option<(Time, &str)> = None;
    let mut rest = line;
    while !rest.is_empty() {
        // A date has a comma of its own, behind the day of the week.
        let is_date = rest.starts_with(|c: char| c.is_ascii_alphabetic());
        let commas = rest.match_indices(',').map(|(at, _)| at);
        let end = commas.clone().nth(usize::from(is_date)).unwrap_or(rest.len());
        let mut member = rest[..end].trim_ascii();
        let mut time = time::parse(member, unit);
        let mut next = end;
        if time.is_none() && is_date {
            next = commas.clone().next().unwrap_or(rest.len());
            member = rest[..next].trim_ascii();
            time = time::parse(member, unit);
        }
        if let Some(time) = time
            && longest.is_none_or(|(other, _)| time.span(clock) > other.span(clock))
        {
            longest = Some((time, member));
        }
        rest = rest.get(next + 1..).unwrap_or("").trim_ascii_start();
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_valid_member_counts() {
        let clock = 1_773_144_000_000_000;
        let span = |line: &str| longest(line, Unit::Delta, clock).map(|(time, _)| time.span(clock));
        assert_eq!(span("0,120"), Some(120_000_000));
        assert_eq!(span("2814, 2"), Some(2_814_000_000));
        assert_eq!(span("-5, soon, 2,"), Some(2_000_000));
        assert_eq!(span("5, Tue, 10 Mar 2026 12:00:37 GMT, 6"), Some(37_000_000));
        assert_eq!(span("Tue, 10 Mar 2026 12:00:37 GMT"), Some(37_000_000));
        assert_eq!(span("soon, 4"), Some(4_000_000));
        assert_eq!(span(",,,"), None);
        assert_eq!(span(""), None);
    }
}
