//! Values that hold more than one number: `32/40`, `api-usage=18/5000`, `Name;46,Other;0`,
//! `total=100; remaining=99; resets=41`, percentages as JSON. Which header has which form is a
//! profile's word, but for the third from last, which says itself what it is.

use std::borrow::Cow;

use paceline_core::Micros;

use super::limits::{Limits, Reset};
use super::names::Key;
use crate::number::{Count, Decimal};
use crate::reading::Dimension;
use crate::time::Time;

/// `32/40`: used of how many.
pub(super) fn used_of_limit(text: &str) -> Option<(u64, u64)> {
    let (used, limit) = text.trim_ascii().split_once('/')?;
    Some((whole(used)?, whole(limit)?))
}

fn whole(text: &str) -> Option<u64> {
    Decimal::parse(text.trim_ascii()).map(|number| number.whole)
}

/// `api-usage=25/5000; per-app-api-usage=17/250(appName=sample-app)`.
pub(super) fn usages<'a>(text: &'a str, window_us: Option<Micros>, limits: &mut Limits<'a>) {
    for part in text.split([';', ',']) {
        let Some((name, pair)) = part.split_once('=') else { continue };
        let pair = pair.split('(').next().unwrap_or(pair);
        if let Some((used, limit)) = used_of_limit(pair) {
            let found = limits.entry(Key::named(name.trim_ascii()));
            found.used = Some(used);
            found.limit = Some(limit).filter(|limit| *limit > 0);
            found.window_us = window_us;
        }
    }
}

/// `Microsoft.Compute/HighCostGet3Min;46,Microsoft.Compute/HighCostGet30Min;0`: what is left under
/// each name, and the window at the name's end.
pub(super) fn named_counts<'a>(text: &'a str, limits: &mut Limits<'a>) {
    for part in text.split(',') {
        let Some((name, count)) = part.rsplit_once(';') else { continue };
        let Some(count) = Count::parse(count) else { continue };
        let name = name.trim_ascii();
        let found = limits.entry(Key::named(name));
        found.remaining = Some(count.or_none_left());
        found.window_us = window_in(name);
    }
}

/// `30Min` at the end of a name.
fn window_in(name: &str) -> Option<Micros> {
    let units = [("Sec", 1_000_000), ("Min", 60_000_000), ("Hour", 3_600_000_000)];
    let (head, unit_us) =
        units.iter().find_map(|(unit, us)| name.strip_suffix(unit).map(|head| (head, *us)))?;
    let digits = head.len() - head.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    Some(Decimal::parse(&head[head.len() - digits..])?.times(unit_us))
}

/// `total=100; remaining=99; resets=41`. Says whether it was that.
pub(super) fn bucket<'a>(
    header: &'a str,
    text: &'a str,
    key: Key<'a>,
    limits: &mut Limits<'a>,
) -> bool {
    if !text.contains("remaining=") {
        return false;
    }
    let found = limits.entry(key);
    for part in text.split([';', ',']) {
        let Some((word, value)) = part.split_once('=') else { continue };
        let (word, value) = (word.trim_ascii(), value.trim_ascii());
        match word {
            "total" | "limit" => found.limit = Count::parse(value).and_then(Count::as_limit),
            "remaining" => found.remaining = Count::parse(value).map(Count::or_none_left),
            "resets" | "reset" => {
                found.reset = crate::time::parse(value, crate::time::Unit::BySize)
                    .map(|time| Reset { time, raw: value, header });
            }
            _ => {}
        }
    }
    true
}

/// `{"call_count":28,"total_time":25}`: parts of a hundred; the largest counts. Nested objects are
/// walked through, whatever their keys.
pub(super) fn percentages<'a>(
    header: &'a str,
    text: &'a str,
    key: Key<'a>,
    window_us: Option<Micros>,
    limits: &mut Limits<'a>,
) {
    let value = |name: &str| super::body::number_after(text.as_bytes(), name);
    let largest = ["call_count", "total_time", "total_cputime"]
        .into_iter()
        .filter_map(value)
        .map(|number| number.whole + u64::from(number.millionths > 0))
        .max();
    let Some(used) = largest else { return };
    let found = limits.entry(key);
    found.limit = Some(100);
    found.used = Some(used);
    found.window_us = window_us;
    // In minutes, and only where calls are refused.
    if let Some(minutes) = value("estimated_time_to_regain_access").filter(|it| it.whole > 0) {
        let time = Time::In(minutes.times(60_000_000));
        found.reset = Some(Reset { time, raw: text, header });
    }
    found.dimension = Some(Dimension::Requests);
    found.name = Cow::Borrowed(key.name);
}
