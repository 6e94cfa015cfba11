//! From an answer to its reading: one pass over the headers, then three questions. Was it refused?
//! How long is there nothing to be had? What does it tell of limits? A file for each family of
//! headers says how its values are written; what they mean together is decided here.

mod body;
mod cache;
mod ietf;
mod limits;
mod names;
mod pairs;
mod retry_after;

use std::borrow::Cow;

use http::HeaderMap;
use paceline_core::Micros;

use self::body::Body;
use self::limits::{Found, Limits, Reset};
use self::names::{Field, Key, Metric};
use crate::number::{Count, Decimal};
use crate::profile::{BodyMeans, HeaderMeans, HeaderRule, Profile, RefusalRule};
use crate::reading::{Answer, Basis, Reading, Refusal, Source, Suspension, UnixMicros};
use crate::time::{self, Time, Unit};

/// Reads one answer. `now` is the caller's clock when the answer came; it is used where the answer
/// has no `Date`. `body` may be left out, or be its beginning only: few profiles look at it.
///
/// Total: any status, headers and body give a reading. Waits are 0 to the profile's longest, in
/// whole microseconds, rounded up. Where no header is about limits nothing is allocated.
///
/// ```
/// use http::HeaderMap;
/// use paceline_http::{Answer, Profiles, read};
///
/// let profiles = Profiles::builtin();
/// let github = profiles.get("github").ok_or("it is built in")?;
/// let mut headers = HeaderMap::new();
/// headers.insert("x-ratelimit-remaining", "0".parse()?);
/// headers.insert("x-ratelimit-reset", "1773144077".parse()?);
/// headers.insert("x-ratelimit-resource", "search".parse()?);
/// let reading = read(200, &headers, None, 1_773_144_000_000_000, github);
/// // The last call of the window went through; the next would not.
/// assert_eq!(reading.answer, Answer::Passed);
/// assert_eq!(reading.suspension.ok_or("until the reset")?.wait_us, 77_000_000);
/// assert_eq!(reading.limits[0].name, "search");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn read<'a>(
    status: u16,
    headers: &'a HeaderMap,
    body: Option<&'a [u8]>,
    now: UnixMicros,
    profile: &'a Profile,
) -> Reading<'a> {
    let scan = Scan::of(headers, profile);
    let body = Body::new(body.unwrap_or_default());
    let rule = profile.refusals.iter().find(|rule| applies(rule, status, headers, body));
    let has_body_rules = !profile.bodies.is_empty();
    // Most answers end here.
    if scan.is_silent() && rule.is_none() && !has_body_rules && !may_refuse(status) {
        return Reading { is_from_cache: scan.is_cached, ..Reading::default() };
    }

    let date = cache::date(headers);
    let clock = date.unwrap_or(now);
    let Scan { mut limits, cost, scope, has_retry, is_throttled, is_cached } = scan;
    let in_body =
        if has_body_rules { InBody::of(body, profile, &mut limits) } else { InBody::default() };
    limits.settle(profile);

    let retry = if has_retry {
        retry_after::read(headers, |name| profile.header_rule(name).map(|rule| rule.unit), clock)
    } else {
        None
    };
    let is_empty = limits.found.iter().any(Found::is_empty);
    let answer = match rule {
        Some(rule) => rule.means.map_or(Answer::Passed, Answer::Refused),
        None => generic_answer(status, retry.is_some(), is_empty, is_throttled),
    };
    // No cache may keep a 429, so where its date is old it is our clock that is wrong.
    let is_kept = date.is_some_and(|date| cache::is_old(date, now)) && status != 429;
    if is_cached || is_kept {
        return Reading { answer, is_from_cache: true, ..Reading::default() };
    }

    let wait_max_us = profile.wait_max_us;
    let suspension = match answer {
        Answer::Refused(refusal) if !refusal.is_rate() => None,
        Answer::Refused(_) => {
            let told = retry.map(|retry| (retry, None));
            let told = told.filter(|(retry, _)| retry.time.span(clock) > 0);
            let told = told.or_else(|| when_back(&limits, clock));
            told.or(retry.map(|retry| (retry, None)))
                .map(|(reset, limit)| stated(reset, limit, clock, wait_max_us))
                .or_else(|| in_body.wait(clock, wait_max_us))
                .or_else(|| rule.and_then(|rule| guessed(rule, wait_max_us)))
        }
        Answer::Passed => when_empty_is_back(&limits, clock)
            .filter(|(reset, _)| reset.time.span(clock) > 0)
            .map(|(reset, limit)| stated(reset, limit, clock, wait_max_us)),
    };
    let cost = cost.or(in_body.cost);
    // Limits that say nothing are left out of the reading, so the place is found anew.
    let suspension = suspension.map(|suspension| Suspension {
        limit: suspension.limit.map(|at| limits.place_told(at)),
        ..suspension
    });
    let scope = scope.map(Cow::Borrowed);
    Reading { answer, suspension, limits: limits.told(clock), cost, scope, is_from_cache: false }
}

/// What one pass over the headers has found.
#[derive(Debug, Default)]
struct Scan<'a> {
    limits: Limits<'a>,
    cost: Option<u64>,
    scope: Option<&'a str>,
    has_retry: bool,
    is_throttled: bool,
    is_cached: bool,
}

impl<'a> Scan<'a> {
    fn of(headers: &'a HeaderMap, profile: &'a Profile) -> Self {
        let mut scan = Self::default();
        for (name, value) in headers {
            let name = name.as_str();
            if let Some(rule) = profile.header_rule(name) {
                if let Ok(text) = std::str::from_utf8(value.as_bytes()) {
                    scan.by_rule(rule, name, text);
                }
                continue;
            }
            // What all other headers cost is this: their length, and a search for `rate`.
            match name.len() {
                3 | 7 | 12 | 15 if cache::is_mark(name, value.as_bytes()) => scan.is_cached = true,
                0..9 => {}
                _ => {
                    if let Some(field) = names::field(name) {
                        if let Ok(text) = std::str::from_utf8(value.as_bytes()) {
                            scan.by_name(field, name, text);
                        }
                    } else if retry_after::is_name(name) {
                        scan.has_retry = true;
                    } else if name == "x-amzn-errortype" {
                        scan.is_throttled |= Body::new(value.as_bytes()).has("throttl");
                    }
                }
            }
        }
        scan
    }

    fn is_silent(&self) -> bool {
        self.limits.found.is_empty()
            && self.limits.policies.is_empty()
            && self.cost.is_none()
            && !self.has_retry
            && !self.is_throttled
    }

    fn by_name(&mut self, field: Field<'a>, header: &'a str, text: &'a str) {
        let limits = &mut self.limits;
        match field {
            Field::Metric(key, metric) => number(limits, key, metric, Unit::BySize, header, text),
            Field::Items => ietf::items(text, limits),
            Field::Policy => ietf::policies(text, limits),
            Field::Open(key) => {
                if pairs::bucket(header, text, key, limits) {
                    return;
                }
                // `x-rate-limit: 700`, `x-hubspot-ratelimit-daily: 500000`; else it is no limit.
                let is_period = names::period_us(key.name).is_some();
                if (key.name.is_empty() || is_period)
                    && let Some(count) = Count::parse(text)
                {
                    let found = limits.entry(key);
                    found.limit = found.limit.or(count.as_limit());
                }
            }
            Field::Resource(prefix) => {
                let text = text.trim_ascii();
                if !text.is_empty() {
                    limits.resource = limits.resource.or(Some((prefix, text)));
                }
            }
            Field::Scope => self.scope = self.scope.or(Some(text.trim_ascii())),
            Field::RetryAfter => self.has_retry = true,
        }
    }

    fn by_rule(&mut self, rule: &'a HeaderRule, header: &'a str, text: &'a str) {
        let limits = &mut self.limits;
        let key = Key::named(&rule.limit);
        let metric = match rule.means {
            HeaderMeans::Limit => Metric::Limit,
            HeaderMeans::Remaining => Metric::Remaining,
            HeaderMeans::Used => Metric::Used,
            HeaderMeans::Reset => Metric::Reset,
            HeaderMeans::Window => Metric::Window(1_000_000),
            HeaderMeans::RetryAfter => {
                self.has_retry = true;
                return;
            }
            HeaderMeans::Cost => {
                self.cost = Decimal::parse(text.trim_ascii())
                    .map(|cost| cost.whole.saturating_add(u64::from(cost.millionths > 0)));
                return;
            }
            HeaderMeans::Resource => {
                limits.resource = Some(("", text.trim_ascii()));
                return;
            }
            HeaderMeans::Scope => {
                self.scope = Some(text.trim_ascii());
                return;
            }
            HeaderMeans::UsedOfLimit => {
                if let Some((used, limit)) = pairs::used_of_limit(text) {
                    let found = limits.entry(key);
                    found.used = Some(used);
                    found.limit = Some(limit).filter(|limit| *limit > 0);
                    rule.complete(found);
                }
                return;
            }
            HeaderMeans::Usages => return pairs::usages(text, rule.window_us, limits),
            HeaderMeans::NamedCounts => return pairs::named_counts(text, limits),
            HeaderMeans::Percentages => {
                return pairs::percentages(header, text, key, rule.window_us, limits);
            }
            HeaderMeans::Nothing => return,
        };
        number(limits, key, metric, rule.unit, header, text);
        rule.complete(limits.entry(key));
    }
}

impl HeaderRule {
    fn complete(&self, found: &mut Found<'_>) {
        found.window_us = found.window_us.or(self.window_us);
        found.dimension = found.dimension.or(self.dimension);
    }
}

/// One number or time for one limit. The first word counts.
fn number<'a>(
    limits: &mut Limits<'a>,
    key: Key<'a>,
    metric: Metric,
    unit: Unit,
    header: &'a str,
    text: &'a str,
) {
    let reset =
        |time: Option<Time>| time.map(|time| Reset { time, raw: text.trim_ascii(), header });
    match metric {
        Metric::Limit => {
            let count = match text.contains(',') {
                true => ietf::limit_list(text, limits),
                // The window rides along: `100;w=60`.
                false if text.contains(';') => ietf::limit_list(text, limits),
                false => Count::parse(text),
            };
            let found = limits.entry(key);
            found.limit = found.limit.or(count.and_then(Count::as_limit));
        }
        Metric::Remaining => {
            let left = Count::parse(text).map(Count::or_none_left);
            let found = limits.entry(key);
            found.remaining = found.remaining.or(left);
        }
        Metric::Used => {
            let used = Count::parse(text).map(Count::or_none_left);
            let found = limits.entry(key);
            found.used = found.used.or(used);
        }
        Metric::Fill => {
            let fill = Count::parse(text).map(Count::or_none_left);
            let found = limits.entry(key);
            found.fill = found.fill.or(fill);
        }
        Metric::Reset => {
            let found = limits.entry(key);
            found.reset = found.reset.or_else(|| reset(time::parse(text, unit)));
        }
        Metric::ResetAfter => {
            let found = limits.entry(key);
            let told = || reset(time::parse(text, Unit::Delta));
            found.reset_after = found.reset_after.or_else(told);
        }
        Metric::ResetMillis => {
            // A span or a moment, a thousand times finer than usual.
            let number = Decimal::parse(text.trim_ascii());
            let unit = match number {
                Some(number) if number.whole >= 900_000_000_000 => Unit::EpochMillis,
                _ => Unit::DeltaMillis,
            };
            let found = limits.entry(key);
            found.reset = found.reset.or_else(|| reset(time::parse(text, unit)));
        }
        Metric::Window(unit_us) => {
            let text = text.trim_ascii();
            let window =
                Decimal::parse(text).map(|it| it.times(unit_us)).or_else(|| time::span(text));
            let found = limits.entry(key);
            found.window_us = found.window_us.or(window);
        }
    }
}

/// Whether an answer of this status may be a refusal with no header that says so.
fn may_refuse(status: u16) -> bool {
    matches!(status, 418 | 420 | 429 | 529)
}

/// What a status means where the profile has no word on it.
fn generic_answer(status: u16, has_retry: bool, is_empty: bool, is_throttled: bool) -> Answer {
    match status {
        418 | 420 | 429 => Answer::Refused(Refusal::Rate),
        529 => Answer::Refused(Refusal::Overload),
        503 if has_retry => Answer::Refused(Refusal::Overload),
        403 if has_retry || is_empty => Answer::Refused(Refusal::Rate),
        400..=599 if is_throttled => Answer::Refused(Refusal::Rate),
        _ => Answer::Passed,
    }
}

fn applies(rule: &RefusalRule, status: u16, headers: &HeaderMap, body: Body<'_>) -> bool {
    let has_header = |(name, words): &(String, String)| {
        headers.get_all(name.as_str()).iter().any(|value| Body::new(value.as_bytes()).has(words))
    };
    (rule.status.is_empty() || rule.status.contains(&status))
        && rule.header.as_ref().is_none_or(has_header)
        && (rule.body.is_empty() || rule.body.iter().any(|words| body.has(words)))
}

/// On a refusal: when the empty limits are back. Where none says that it is empty, those that say
/// when they are back and not what is left.
fn when_back<'a>(limits: &Limits<'a>, clock: UnixMicros) -> Option<(Reset<'a>, Option<usize>)> {
    when_empty_is_back(limits, clock).or_else(|| {
        if limits.found.iter().any(Found::is_empty) {
            return None;
        }
        latest(limits, clock, |found| found.remaining.is_none() && found.dimension().is_spent())
    })
}

/// The latest reset among the empty limits: before that, one of them refuses.
fn when_empty_is_back<'a>(
    limits: &Limits<'a>,
    clock: UnixMicros,
) -> Option<(Reset<'a>, Option<usize>)> {
    latest(limits, clock, Found::is_empty)
}

fn latest<'a>(
    limits: &Limits<'a>,
    clock: UnixMicros,
    of: impl Fn(&Found<'a>) -> bool,
) -> Option<(Reset<'a>, Option<usize>)> {
    let found = limits.found.iter().enumerate().filter(|(_, found)| of(found));
    found
        .filter_map(|(at, found)| found.comes_back().map(|reset| (reset, Some(at))))
        .max_by_key(|(reset, _)| reset.time.span(clock))
}

fn stated<'a>(
    reset: Reset<'a>,
    limit: Option<usize>,
    clock: UnixMicros,
    wait_max_us: Micros,
) -> Suspension<'a> {
    let asked_us = reset.time.span(clock);
    Suspension {
        wait_us: asked_us.min(wait_max_us),
        asked_us,
        at: match reset.time {
            Time::At(moment) => Some(moment),
            Time::In(_) => None,
        },
        raw: Cow::Borrowed(reset.raw),
        source: Source::Header(Cow::Borrowed(reset.header)),
        basis: Basis::Stated,
        grows: false,
        limit,
    }
}

/// What the profile knows of such refusals.
fn guessed<'a>(rule: &'a RefusalRule, wait_max_us: Micros) -> Option<Suspension<'a>> {
    let (asked_us, raw) = rule.wait.as_ref()?;
    Some(Suspension {
        wait_us: (*asked_us).min(wait_max_us),
        asked_us: *asked_us,
        at: None,
        raw: Cow::Borrowed(raw),
        source: Source::Profile,
        basis: Basis::Guessed,
        grows: rule.grows,
        limit: None,
    })
}

/// What a body has told, as far as the profile knows where to look.
#[derive(Debug, Default)]
struct InBody<'a> {
    told: Option<(Time, &'a str, &'a str)>,
    cost: Option<u64>,
    /// Points that were asked for, are there, and come back each second.
    requested: Option<(Decimal, &'a str, &'a str)>,
    available: Option<u64>,
    restored: Option<Decimal>,
}

impl<'a> InBody<'a> {
    fn of(body: Body<'a>, profile: &'a Profile, limits: &mut Limits<'a>) -> Self {
        let mut it = Self::default();
        for rule in &profile.bodies {
            let (text, place) = match (&rule.key, &rule.after) {
                (Some(key), _) => (body.under(key), key),
                (None, Some(words)) => (body.behind(words), words),
                (None, None) => continue,
            };
            let Some(text) = text else { continue };
            let number = Decimal::parse(text);
            let whole = number.map(|number| number.whole);
            match rule.means {
                BodyMeans::RetryAfter => {
                    let time = time::parse(text, rule.unit);
                    it.told = it.told.or(time.map(|time| (time, text, place.as_str())));
                }
                BodyMeans::Limit => {
                    let found = limits.entry(Key::named(&rule.limit));
                    found.limit = whole.filter(|limit| *limit > 0);
                    found.dimension = rule.dimension;
                }
                BodyMeans::Remaining => {
                    it.available = whole;
                    limits.entry(Key::named(&rule.limit)).remaining = whole;
                }
                BodyMeans::Reset => {
                    let time = time::parse(text, rule.unit);
                    limits.entry(Key::named(&rule.limit)).reset =
                        time.map(|time| Reset { time, raw: text, header: place });
                }
                BodyMeans::Cost => it.cost = it.cost.or(whole),
                BodyMeans::Requested => it.requested = number.map(|it| (it, text, place.as_str())),
                BodyMeans::RestoredPerSecond => it.restored = number,
            }
        }
        it
    }

    fn wait(&self, clock: UnixMicros, wait_max_us: Micros) -> Option<Suspension<'a>> {
        let (time, raw, place) = self.told.or_else(|| self.until_affordable())?;
        let reset = Reset { time, raw, header: place };
        let suspension = stated(reset, None, clock, wait_max_us);
        Some(Suspension { source: Source::Body(Cow::Borrowed(place)), ..suspension })
    }

    /// A refilled bucket that lacks some points has them after this time.
    fn until_affordable(&self) -> Option<(Time, &'a str, &'a str)> {
        let (requested, raw, place) = self.requested?;
        let (available, restored) = (self.available?, self.restored?);
        let missing = i128::from(requested.whole.saturating_sub(available)) * 1_000_000_000_000;
        let per_second = i128::from(restored.times(1_000_000));
        if per_second == 0 || missing == 0 {
            return None;
        }
        let span = (missing + per_second - 1) / per_second;
        Some((Time::In(i64::try_from(span).unwrap_or(i64::MAX)), raw, place))
    }
}
