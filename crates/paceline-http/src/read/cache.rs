//! Whether an answer was kept by a cache. What it says of limits was true when it was made: a
//! client once stood still for a day because of "0 remaining" from its own disk.

use http::HeaderMap;

use paceline_core::Micros;

use crate::number::Decimal;
use crate::reading::UnixMicros;

/// A `Date` this much older than now was kept by something that does not say so. Clocks that are
/// set by hand differ by a few minutes.
const DATE_OLD_US: Micros = 600_000_000;

/// What caches write into an answer. Asked for each header, so by length first.
pub(super) fn is_mark(name: &str, value: &[u8]) -> bool {
    match name {
        "age" => std::str::from_utf8(value)
            .ok()
            .and_then(|text| Decimal::parse(text.trim_ascii()))
            .is_some_and(|age| age.whole > 0),
        "x-from-cache" => value != b"0" && !value.is_empty(),
        // `HIT`, `Hit from cloudfront`, `MISS, HIT`.
        "x-cache" => value.split(|byte| *byte == b',').any(is_hit),
        "cf-cache-status" => is_hit(value),
        _ => false,
    }
}

fn is_hit(value: &[u8]) -> bool {
    value.trim_ascii_start().get(..3).is_some_and(|word| word.eq_ignore_ascii_case(b"hit"))
}

/// The answer's own clock.
pub(super) fn date(headers: &HeaderMap) -> Option<UnixMicros> {
    let date = headers.get(http::header::DATE)?;
    crate::time::http_date(std::str::from_utf8(date.as_bytes()).ok()?.trim_ascii())
}

/// Whether an answer with this date is too old to be fresh.
pub(super) fn is_old(date: UnixMicros, now: UnixMicros) -> bool {
    now.saturating_sub(date) > DATE_OLD_US
}
