//! Times as headers write them: a span (`30`, `0.35`, `6m0s`, `20ms`) or a moment (epoch seconds or
//! milliseconds, RFC 3339, the three HTTP dates). The text decides, by its shape and its size; a
//! profile decides where one text could be two things.

use std::time::UNIX_EPOCH;

use paceline_core::Micros;

use crate::number::Decimal;
use crate::reading::UnixMicros;

/// Numbers below this are spans in seconds: as a span it is 28 years, as a moment July 1998, so
/// nothing real lies near it.
const EPOCH_SECONDS_MIN: u64 = 900_000_000;
/// Each unit of moments is a thousand times finer than the one before.
const EPOCH_MILLIS_MIN: u64 = 100_000_000_000;
const EPOCH_MICROS_MIN: u64 = 100_000_000_000_000;
const EPOCH_NANOS_MIN: u64 = 100_000_000_000_000_000;

/// What a text says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Time {
    /// So many microseconds from when the answer was made.
    In(Micros),
    /// At this moment on the provider's clock.
    At(UnixMicros),
}

impl Time {
    /// The span from `clock`, never negative.
    pub(crate) fn span(self, clock: UnixMicros) -> Micros {
        match self {
            Self::In(span) => span.max(0),
            Self::At(moment) => moment.saturating_sub(clock).max(0),
        }
    }

    /// The moment, where spans begin at `clock`.
    pub(crate) fn moment(self, clock: UnixMicros) -> UnixMicros {
        match self {
            Self::In(span) => clock.saturating_add(span),
            Self::At(moment) => moment,
        }
    }
}

/// How a plain number in a time header is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unit {
    /// By its size: small ones are seconds from now, larger ones moments in seconds, milliseconds
    /// and so on.
    #[default]
    BySize,
    /// Seconds from now.
    Delta,
    /// Milliseconds from now.
    DeltaMillis,
    /// A moment in seconds since 1970.
    Epoch,
    /// A moment in milliseconds since 1970.
    EpochMillis,
}

impl Unit {
    /// How profiles spell it.
    pub(crate) const NAMES: [(&'static str, Self); 5] = [
        ("by-size", Self::BySize),
        ("delta", Self::Delta),
        ("delta-ms", Self::DeltaMillis),
        ("epoch", Self::Epoch),
        ("epoch-ms", Self::EpochMillis),
    ];

    /// The name that profiles give it.
    ///
    /// ```
    /// use paceline_http::Unit;
    /// assert_eq!(Unit::EpochMillis.name(), "epoch-ms");
    /// ```
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, unit)| *unit == self).map_or("", |(name, _)| name)
    }
}

/// Reads any of the forms.
pub(crate) fn parse(text: &str, unit: Unit) -> Option<Time> {
    let text = text.trim_ascii();
    if let Some(number) = Decimal::parse(text) {
        return Some(number_as(number, unit));
    }
    // A profile's word is about numbers; what says itself what it is needs none.
    match text.as_bytes() {
        [b'0'..=b'9', ..] => span(text).map(Time::In).or_else(|| rfc3339(text).map(Time::At)),
        [b'A'..=b'Z' | b'a'..=b'z', ..] => http_date(text).map(Time::At),
        _ => None,
    }
}

fn number_as(number: Decimal, unit: Unit) -> Time {
    match unit {
        Unit::Delta => Time::In(number.times(1_000_000)),
        Unit::DeltaMillis => Time::In(number.times(1_000)),
        Unit::Epoch => Time::At(number.times(1_000_000)),
        Unit::EpochMillis => Time::At(number.times(1_000)),
        Unit::BySize => match number.whole {
            EPOCH_NANOS_MIN.. => Time::At(number.parts(1_000)),
            EPOCH_MICROS_MIN.. => Time::At(number.times(1)),
            EPOCH_MILLIS_MIN.. => Time::At(number.times(1_000)),
            EPOCH_SECONDS_MIN.. => Time::At(number.times(1_000_000)),
            _ => Time::In(number.times(1_000_000)),
        },
    }
}

/// Reads a span with units, `6m0s`, `1m26.4s`, `20ms`, `1h`, each unit at most once or more.
pub(crate) fn span(text: &str) -> Option<Micros> {
    let (mut rest, mut total) = (text, 0_i64);
    while !rest.is_empty() {
        let (number, after) = Decimal::leading(rest)?;
        let unit_at = after
            .find(|c: char| c.is_ascii_digit() || c.is_ascii_whitespace())
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_at);
        let part = match unit {
            "d" => number.times(86_400_000_000),
            "h" => number.times(3_600_000_000),
            "m" => number.times(60_000_000),
            "s" => number.times(1_000_000),
            "ms" => number.times(1_000),
            "us" | "µs" | "μs" => number.times(1),
            "ns" => number.parts(1_000),
            _ => return None,
        };
        total = total.saturating_add(part);
        rest = after;
    }
    (!text.is_empty()).then_some(total)
}

/// The three forms of RFC 9110; `UTC` is taken for `GMT`, as some servers write it.
pub(crate) fn http_date(text: &str) -> Option<UnixMicros> {
    // The longest form, `Wednesday, 10-Mar-26 12:00:00 GMT`, has 33 letters.
    let mut copy = [0; 33];
    let text = match text.strip_suffix("UTC") {
        Some(head) => {
            let copy = copy.get_mut(..text.len())?;
            let (start, end) = copy.split_at_mut(head.len());
            start.copy_from_slice(head.as_bytes());
            end.copy_from_slice(b"GMT");
            std::str::from_utf8(copy).ok()?
        }
        None => text,
    };
    let moment = httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
    UnixMicros::try_from(moment.as_micros()).ok()
}

/// RFC 3339 and what is written in its stead: a space for the `T`, no seconds, fractions of any
/// length, `UTC` or nothing for the offset.
pub(crate) fn rfc3339(text: &str) -> Option<UnixMicros> {
    let bytes = text.as_bytes();
    let part = |from: usize, to: usize| -> Option<i64> {
        let digits = bytes.get(from..to)?;
        digits.iter().try_fold(0_i64, |sum, byte| {
            byte.is_ascii_digit().then(|| sum * 10 + i64::from(byte - b'0'))
        })
    };
    let is = |at: usize, allowed: &[u8]| bytes.get(at).is_some_and(|byte| allowed.contains(byte));
    if !(is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":")) {
        return None;
    }
    let (year, month, day) = (part(0, 4)?, part(5, 7)?, part(8, 10)?);
    let (hour, minute) = (part(11, 13)?, part(14, 16)?);
    let mut at = 16;
    let mut second_us = 0;
    if is(16, b":") {
        // With its fraction it is a decimal; `text` may be cut here, all before it is ASCII.
        let (second, rest) = Decimal::leading(text.get(17..)?)?;
        second_us = second.times(1_000_000);
        at = text.len() - rest.len();
        part(17, 19)?;
    }
    // A leap second is 60.
    if !(1..=12).contains(&month)
        || !(1..=31).contains(&day)
        || hour > 23
        || minute > 59
        || second_us >= 61_000_000
    {
        return None;
    }
    let offset_min = match &bytes[at..] {
        [] | b"Z" | b"z" | b"UTC" | b" UTC" => 0,
        [sign @ (b'+' | b'-'), ..] => {
            let (hours, rest) = (part(at + 1, at + 3)?, at + 3);
            let minutes = if rest == bytes.len() {
                0
            } else {
                let from = rest + usize::from(is(rest, b":"));
                if from + 2 != bytes.len() {
                    return None;
                }
                part(from, from + 2)?
            };
            if hours > 23 || minutes > 59 {
                return None;
            }
            (hours * 60 + minutes) * if *sign == b'-' { -1 } else { 1 }
        }
        _ => return None,
    };
    let minutes = (days_from_1970(year, month, day) * 24 + hour) * 60 + minute - offset_min;
    // Years have four digits, so this is far from the edge.
    Some(minutes * 60_000_000 + second_us)
}

/// Days since 1970-01-01 in the Gregorian calendar. The year begins in March, so that the leap day
/// is its last and months have a regular length; 400 years have 146 097 days.
fn days_from_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month_from_march = (month + 9) % 12;
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    // 719 468 days lie between the first of March of the year 0 and 1970.
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000;

    #[test]
    fn a_number_is_a_span_or_a_moment_by_its_size() {
        for (text, time) in [
            ("30", Time::In(30 * S)),
            ("0.350", Time::In(350_000)),
            ("899999999", Time::In(899_999_999 * S)),
            ("1773144030", Time::At(1_773_144_030 * S)),
            ("1773144030.5", Time::At(1_773_144_030 * S + 500_000)),
            ("1773144030000", Time::At(1_773_144_030 * S)),
            ("1773144030000000", Time::At(1_773_144_030 * S)),
            ("1773144030000000001", Time::At(1_773_144_030 * S + 1)),
        ] {
            assert_eq!(parse(text, Unit::BySize), Some(time), "{text}");
        }
        assert_eq!(parse("600000", Unit::DeltaMillis), Some(Time::In(600 * S)));
        assert_eq!(parse("1773144030", Unit::Delta), Some(Time::In(1_773_144_030 * S)));
    }

    #[test]
    fn spans_have_their_units() {
        for (text, us) in [
            ("1s", S),
            ("6m0s", 360 * S),
            ("20ms", 20_000),
            ("1m26.4s", 86_400_000),
            ("7.66s", 7_660_000),
            ("1h2m", 3_720 * S),
            ("500µs", 500),
            ("1ns", 1),
        ] {
            assert_eq!(parse(text, Unit::BySize), Some(Time::In(us)), "{text}");
        }
        for text in ["", "s", "6m0", "1x", "1s ", "1 s", "m6", "1e3", "-1s"] {
            assert_eq!(span(text), None, "{text:?}");
        }
    }

    #[test]
    fn dates_have_three_http_forms_and_iso_several() {
        let noon = Some(Time::At(1_773_144_000 * S));
        for text in [
            "Tue, 10 Mar 2026 12:00:00 GMT",
            "Tue, 10 Mar 2026 12:00:00 UTC",
            "Tuesday, 10-Mar-26 12:00:00 GMT",
            "Tue Mar 10 12:00:00 2026",
            "2026-03-10T12:00:00Z",
            "2026-03-10 12:00:00",
            "2026-03-10T12:00Z",
            "2026-03-10T12:00:00.000000000+00:00",
            "2026-03-10T14:00:00+02:00",
            "2026-03-10T06:30:00-0530",
        ] {
            assert_eq!(parse(text, Unit::BySize), noon, "{text}");
        }
        assert_eq!(rfc3339("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(rfc3339("2000-02-29T00:00:00Z"), Some(951_782_400 * S));
        for text in [
            "2026-13-10T12:00:00Z",
            "2026-03-10",
            "2026-03-10T25:00:00Z",
            "2026-03-10T12:00:00X",
            "2026-03-10T12:00:1Z",
            "2026-03-10T12:00:00+2",
            "Tue, 10 Mar",
            "soon",
            "µUTC",
        ] {
            assert_eq!(parse(text, Unit::BySize), None, "{text}");
        }
    }
}
