//! What an answer says of the limit, in the dialects of real providers, and the profile that a
//! client of each would have: a quota to begin with, and a window where the answers tell none.

use std::time::{Duration, UNIX_EPOCH};

use super::quota::Standing;

/// A family of headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `X-RateLimit-*` with a moment in seconds (GitHub).
    Epoch,
    /// `X-RateLimit-*` with a span in seconds.
    Delta,
    /// `RateLimit-*` of the earlier IETF drafts.
    Trio,
    /// `RateLimit` and `RateLimit-Policy` of the later ones.
    Structured,
    /// Moments in RFC 3339, and Retry-After with a refusal (Anthropic).
    Rfc3339,
    /// Spans such as `6m0s` (OpenAI).
    Spans,
    /// `32/40`, and Retry-After with a refusal (Shopify).
    UsedOfLimit,
    /// Retry-After with a refusal, in whole seconds.
    RetryAfter,
    /// Retry-After with a refusal, as a date.
    RetryDate,
    /// Nothing, ever.
    Bare,
}

impl Dialect {
    pub(crate) const ALL: [(Self, &'static str); 10] = [
        (Self::Epoch, "epoch seconds"),
        (Self::Delta, "delta seconds"),
        (Self::Trio, "IETF trio"),
        (Self::Structured, "IETF structured"),
        (Self::Rfc3339, "RFC 3339"),
        (Self::Spans, "spans"),
        (Self::UsedOfLimit, "used of limit"),
        (Self::RetryAfter, "Retry-After only"),
        (Self::RetryDate, "Retry-After date only"),
        (Self::Bare, "bare"),
    ];

    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(it, _)| *it == self).map_or("", |(_, name)| name)
    }

    /// Whether answers tell how many calls may pass.
    pub(crate) fn tells_limit(self) -> bool {
        !matches!(self, Self::RetryAfter | Self::RetryDate | Self::Bare)
    }

    /// The headers of an answer that is given at `unix_us`.
    pub(crate) fn headers(
        self,
        standing: &Standing,
        refused: bool,
        unix_us: i64,
    ) -> Vec<(&'static str, String)> {
        let Standing { quota, remaining, reset_us, wait_us } = *standing;
        let limit = quota.limit;
        let window = quota.interval_us / 1_000_000;
        let seconds = seconds_up(reset_us);
        let retry_after = |text: String| refused.then_some(("retry-after", text));
        let plain = |name: &'static str, value: i64| (name, value.to_string());
        match self {
            Self::Epoch => vec![
                plain("x-ratelimit-limit", limit),
                plain("x-ratelimit-remaining", remaining),
                plain("x-ratelimit-used", limit - remaining),
                plain("x-ratelimit-reset", seconds_up(unix_us + reset_us)),
            ],
            Self::Delta => vec![
                plain("x-ratelimit-limit", limit),
                plain("x-ratelimit-remaining", remaining),
                plain("x-ratelimit-reset", seconds),
            ],
            Self::Trio => vec![
                ("ratelimit-limit", format!("{limit}, {limit};w={window}")),
                plain("ratelimit-remaining", remaining),
                plain("ratelimit-reset", seconds),
            ],
            Self::Structured => vec![
                ("ratelimit-policy", format!("\"default\";q={limit};w={window}")),
                ("ratelimit", format!("\"default\";r={remaining};t={seconds}")),
            ],
            Self::Rfc3339 => vec![
                plain("anthropic-ratelimit-requests-limit", limit),
                plain("anthropic-ratelimit-requests-remaining", remaining),
                ("anthropic-ratelimit-requests-reset", rfc3339(seconds_up(unix_us + reset_us))),
            ]
            .into_iter()
            .chain(retry_after(seconds_up(wait_us).to_string()))
            .collect(),
            Self::Spans => vec![
                plain("x-ratelimit-limit-requests", limit),
                plain("x-ratelimit-remaining-requests", remaining),
                ("x-ratelimit-reset-requests", span(reset_us)),
            ],
            Self::UsedOfLimit => {
                let pair = format!("{}/{limit}", limit - remaining);
                let tenths = (wait_us + 99_999) / 100_000;
                let text = format!("{}.{}", tenths / 10, tenths % 10);
                let used = ("x-shopify-shop-api-call-limit", pair);
                [used].into_iter().chain(retry_after(text)).collect()
            }
            Self::RetryAfter => retry_after(seconds_up(wait_us).to_string()).into_iter().collect(),
            Self::RetryDate => {
                let seconds = u64::try_from(seconds_up(unix_us + wait_us)).unwrap_or_default();
                let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds));
                retry_after(date).into_iter().collect()
            }
            Self::Bare => Vec::new(),
        }
    }

    /// A profile for this host, as a user would write it: the quota that is believed in, and what
    /// is documented of the headers.
    pub(crate) fn profile(self, host: &str, policy: &str, window_s: i64) -> String {
        let mut text = format!(
            r#"
[[profile]]
name = "teach"
title = "The teaching provider"
hosts = ["{host}"]
counts = "in a way of its own"
[[profile.bucket]]
name = "teach"
policy = "{policy}"
date = "2026-12-01"
source = "https://example.com/limits"
grade = "hearsay"
"#
        );
        if self == Self::UsedOfLimit {
            text.push_str(&format!(
                r#"
[[profile.header]]
name = "x-shopify-shop-api-call-limit"
means = "used-of-limit"
window = "{window_s}s"
"#
            ));
        } else {
            text.push_str(&format!(
                r#"
[[profile.limit]]
name = "*"
window = "{window_s}s"
"#
            ));
        }
        text
    }
}

/// Whole seconds, rounded up: a client that comes back by then is not too early.
fn seconds_up(us: i64) -> i64 {
    (us + 999_999).div_euclid(1_000_000)
}

/// `1m2.345s`, `120ms`.
fn span(us: i64) -> String {
    let ms = (us + 999).div_euclid(1_000);
    let (minutes, rest) = (ms / 60_000, ms % 60_000);
    let seconds = format!("{}.{:03}", rest / 1_000, rest % 1_000);
    let seconds = seconds.trim_end_matches('0').trim_end_matches('.');
    match (minutes, rest) {
        (0, 0..1_000) => format!("{rest}ms"),
        (0, _) => format!("{seconds}s"),
        _ => format!("{minutes}m{seconds}s"),
    }
}

/// A moment in seconds since 1970.
fn rfc3339(unix: i64) -> String {
    let (days, second) = (unix.div_euclid(86_400), unix.rem_euclid(86_400));
    // Years that begin in March have the leap day at their end.
    let shifted = days + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}Z", era * 400 + year)
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName};
    use paceline::http::{Profiles, read};

    use super::*;
    use crate::teach::quota::{Quota, Way};

    /// A moment within a second, so that rounding shows.
    const NOW: i64 = 1_790_000_000_250_000;

    #[test]
    fn moments_and_spans_are_written_as_providers_write_them() {
        for (unix, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_790_000_000, "2026-09-21T14:13:20Z"),
            (1_798_761_599, "2026-12-31T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(unix), text);
        }
        for (us, text) in
            [(119_001, "120ms"), (1_000_000, "1s"), (62_340_000, "1m2.34s"), (360_000_000, "6m0s")]
        {
            assert_eq!(span(us), text);
        }
    }

    #[test]
    fn the_reader_understands_every_dialect_and_waits_no_less_than_the_provider_means() {
        let quota = Quota { way: Way::Fixed, limit: 250, interval_us: 5_000_000 };
        let standing = Standing { quota, remaining: 0, reset_us: 2_300_000, wait_us: 2_300_000 };
        for (dialect, name) in Dialect::ALL {
            let profiles = Profiles::builtin()
                .clone()
                .with(&dialect.profile("teach.test", "strict 500/5s", 5), "teach.toml")
                .unwrap();
            let profile = profiles.get("teach").unwrap();
            let mut headers = HeaderMap::new();
            for (name, value) in dialect.headers(&standing, true, NOW) {
                headers.insert(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
            }
            let reading = read(429, &headers, None, NOW, profile);
            assert!(reading.answer.is_rate(), "{name}");
            let wait = reading.suspension.as_ref().map(|it| it.wait_us);
            if dialect == Dialect::Bare {
                assert_eq!(wait, None);
                continue;
            }
            let wait = wait.unwrap_or_else(|| panic!("{name} states a time"));
            assert!((2_300_000..=3_300_000).contains(&wait), "{name}: {wait}");
            if !dialect.tells_limit() {
                continue;
            }
            let limit = reading.binding().unwrap_or_else(|| panic!("{name} tells a limit"));
            let told = (limit.limit, limit.remaining, limit.window_us);
            assert_eq!(told, (Some(250), Some(0), Some(5_000_000)), "{name}");
        }
    }
}
