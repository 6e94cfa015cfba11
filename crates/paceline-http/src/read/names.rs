//! Header names, taken apart. There are dozens of spellings of `X-RateLimit-Remaining` and one
//! grammar behind them: a vendor's prefix, `ratelimit` or `rate-limit`, then the name of a limit and
//! a word for what is told of it, in either order. A new vendor is read without being known.

use paceline_core::Micros;

const SECOND_US: Micros = 1_000_000;

/// What a header tells, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field<'a> {
    /// One number or time of one limit.
    Metric(Key<'a>, Metric),
    /// `RateLimit`: the state field of the IETF drafts, or a bare limit.
    Items,
    /// `RateLimit-Policy`.
    Policy,
    /// Nothing after `ratelimit`, or nothing known: the value may be a limit or a whole bucket.
    Open(Key<'a>),
    /// Which limit the unnamed numbers of this prefix belong to.
    Resource(&'a str),
    /// What was exceeded, in the provider's words.
    Scope,
    /// `x-ratelimit-retry-after` and the like.
    RetryAfter,
}

/// Which limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Key<'a> {
    pub(crate) prefix: &'a str,
    pub(crate) name: &'a str,
    /// What follows the metric where it stands in the middle.
    pub(crate) after: &'a str,
}

impl<'a> Key<'a> {
    pub(crate) fn named(name: &'a str) -> Self {
        Self { name, ..Self::default() }
    }
}

/// What is told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Metric {
    Limit,
    Remaining,
    Used,
    Reset,
    ResetAfter,
    ResetMillis,
    /// A window, in units of so many microseconds where it is a bare number.
    Window(u64),
    /// How many come back in each window, where that is not all of them.
    Fill,
}

/// Takes a name apart; `None` for one that has nothing to do with limits. Names come in lower case,
/// as `http` keeps them.
pub(crate) fn field(name: &str) -> Option<Field<'_>> {
    let (before, after) = split(name)?;
    let prefix = before.strip_prefix("x-").unwrap_or(before).trim_end_matches('-');
    let prefix = if prefix == "x" { "" } else { prefix };
    // Experiments that are announced as such never count; Amazon's is a rate a second.
    if prefix.starts_with("beta") || prefix == "amzn" {
        return None;
    }
    let key = Key { prefix, ..Key::default() };
    match after {
        "" if name == "ratelimit" => return Some(Field::Items),
        "" => return Some(Field::Open(key)),
        "policy" if prefix.is_empty() => return Some(Field::Policy),
        "retry-after" => return Some(Field::RetryAfter),
        _ => {}
    }
    let (rest, last) = after.rsplit_once('-').unwrap_or(("", after));
    match last {
        "resource" | "bucket" | "name" => return Some(Field::Resource(prefix)),
        "scope" | "reason" | "type" | "problem" => return Some(Field::Scope),
        "key" | "source" | "global" | "nearlimit" | "policy" => return None,
        "after" | "time" | "at" => {
            let (rest, metric) = rest.rsplit_once('-').unwrap_or(("", rest));
            if metric == "reset" {
                let metric = if last == "after" { Metric::ResetAfter } else { Metric::Reset };
                return Some(Field::Metric(Key { name: rest, ..key }, metric));
            }
        }
        "ms" | "milliseconds" | "seconds" => {
            let unit = if last == "seconds" { 1_000_000 } else { 1_000 };
            let (rest, metric) = rest.rsplit_once('-').unwrap_or(("", rest));
            match word(metric) {
                Some(Metric::Window(_)) => {
                    return Some(Field::Metric(Key { name: rest, ..key }, Metric::Window(unit)));
                }
                Some(Metric::Reset) => {
                    let metric =
                        if last == "seconds" { Metric::Reset } else { Metric::ResetMillis };
                    return Some(Field::Metric(Key { name: rest, ..key }, metric));
                }
                _ => {}
            }
        }
        _ => {}
    }
    if let Some(metric) = word(last) {
        return Some(Field::Metric(Key { name: rest, ..key }, metric));
    }
    // `limit-requests`, `reset-tokens`; then `user-limit-hour`.
    let mut from = 0;
    for part in after.split('-') {
        if let Some(metric) = word(part) {
            let name = after[..from].trim_end_matches('-');
            let after = after[from + part.len()..].trim_start_matches('-');
            let key = match name {
                "" => Key { name: after, ..key },
                name => Key { name, after, ..key },
            };
            return Some(Field::Metric(key, metric));
        }
        from += part.len() + 1;
    }
    Some(Field::Open(Key { name: after, ..key }))
}

/// What stands before and after `ratelimit` or `rate-limit`, the hyphen after it left out.
fn split(name: &str) -> Option<(&str, &str)> {
    let bytes = name.as_bytes();
    // The shortest is `ratelimit`.
    let last = bytes.len().checked_sub(9)?;
    let mut from = 0;
    while from <= last {
        if bytes[from] == b'r' && &bytes[from..from + 4] == b"rate" {
            let to = from + 4 + usize::from(bytes[from + 4] == b'-') + 5;
            let is_here = bytes.get(to - 5..to) == Some(b"limit");
            match bytes.get(to) {
                None if is_here => return Some((&name[..from], "")),
                Some(b'-') if is_here => return Some((&name[..from], &name[to + 1..])),
                _ => {}
            }
        }
        from += 1;
    }
    None
}

fn word(word: &str) -> Option<Metric> {
    Some(match word {
        "limit" | "max" | "quota" => Metric::Limit,
        "remaining" => Metric::Remaining,
        "used" | "observed" | "usage" => Metric::Used,
        "reset" | "resets" | "resettime" => Metric::Reset,
        "fillrate" => Metric::Fill,
        "interval" | "window" | "period" | "renewalperiod" => Metric::Window(1_000_000),
        _ => return None,
    })
}

/// The window that a limit's name tells: `day` of `requests-day`.
pub(crate) fn period_us(name: &str) -> Option<Micros> {
    let last = name.rsplit('-').next()?;
    Some(match last {
        "second" | "secondly" => SECOND_US,
        "minute" | "minutely" => 60 * SECOND_US,
        "hour" | "hourly" => 3_600 * SECOND_US,
        "day" | "daily" => 86_400 * SECOND_US,
        // No month is longer.
        "month" | "monthly" => 31 * 86_400 * SECOND_US,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn is(name: &str, prefix: &str, limit: &str, metric: Metric) {
        let key = Key { prefix, name: limit, after: "" };
        assert_eq!(field(name), Some(Field::Metric(key, metric)), "{name}");
    }

    #[test]
    fn one_grammar_reads_the_spellings() {
        is("x-ratelimit-limit", "", "", Metric::Limit);
        is("ratelimit-remaining", "", "", Metric::Remaining);
        is("rate-limit-reset", "", "", Metric::Reset);
        is("x-rate-limit-reset", "", "", Metric::Reset);
        is("x-ratelimit-reset-after", "", "", Metric::ResetAfter);
        is("ratelimit-resettime", "", "", Metric::Reset);
        is("x-ratelimit-limit-requests", "", "requests", Metric::Limit);
        is("x-ratelimit-requests-limit", "", "requests", Metric::Limit);
        is("anthropic-ratelimit-input-tokens-reset", "anthropic", "input-tokens", Metric::Reset);
        is("x-hubspot-ratelimit-max", "hubspot", "", Metric::Limit);
        is("x-hubspot-ratelimit-interval-milliseconds", "hubspot", "", Metric::Window(1_000));
        is("x-rate-limit-api-key-interval-ms", "", "api-key", Metric::Window(1_000));
        is("x-contentful-ratelimit-second-limit", "contentful", "second", Metric::Limit);
        let key = Key { prefix: "", name: "user", after: "hour" };
        let middle = Some(Field::Metric(key, Metric::Limit));
        assert_eq!(field("x-ratelimit-user-limit-hour"), middle);
    }

    #[test]
    fn what_is_no_number_and_what_is_no_limit_are_told_apart() {
        assert_eq!(field("ratelimit"), Some(Field::Items));
        assert_eq!(field("ratelimit-policy"), Some(Field::Policy));
        assert_eq!(field("x-rate-limit"), Some(Field::Open(Key::default())));
        assert_eq!(field("x-ratelimit-resource"), Some(Field::Resource("")));
        assert_eq!(field("x-rate-limit-problem"), Some(Field::Scope));
        for name in [
            "content-type",
            "ratelimited",
            "x-sentry-rate-limits",
            "stripe-rate-limited-reason",
            "x-beta-ratelimit-limit",
            "beta-ratelimit",
            "x-amzn-ratelimit-limit",
            "rate",
            "",
            "rate-limi",
            "-rate-rate-rate-",
        ] {
            assert_eq!(field(name), None, "{name}");
        }
    }
}
