//! What has been found of limits while headers are read, one at a time and in any order, and how it
//! becomes the limits of a reading. Told twice, the first word counts.

use std::borrow::Cow;

use paceline_core::{Micros, SPAN_MAX_US};

use super::ietf;
use super::names::{Key, period_us};
use crate::profile::Profile;
use crate::reading::{Dimension, Limit, UnixMicros};
use crate::time::Time;

/// No answer tells of more; what is beyond is junk and not kept.
const LIMITS_MAX: usize = 64;

/// When something comes back, and which text says so.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reset<'a> {
    pub(super) time: Time,
    pub(super) raw: &'a str,
    pub(super) header: &'a str,
}

#[derive(Debug, Default)]
pub(super) struct Found<'a> {
    pub(super) prefix: &'a str,
    pub(super) name: Cow<'a, str>,
    pub(super) after: &'a str,
    pub(super) partition: Option<Cow<'a, str>>,
    /// From an item of the IETF drafts, whose names are not those of headers.
    pub(super) is_item: bool,
    pub(super) dimension: Option<Dimension>,
    pub(super) limit: Option<u64>,
    pub(super) remaining: Option<u64>,
    pub(super) used: Option<u64>,
    pub(super) window_us: Option<Micros>,
    /// How many come back in each window, where that is not all of them.
    pub(super) fill: Option<u64>,
    pub(super) reset: Option<Reset<'a>>,
    pub(super) reset_after: Option<Reset<'a>>,
}

impl<'a> Found<'a> {
    /// A span needs no clock, so it is preferred to a moment.
    pub(super) fn comes_back(&self) -> Option<Reset<'a>> {
        self.reset_after.or(self.reset)
    }

    fn tells_only_reset(&self) -> bool {
        self.limit.is_none() && self.remaining.is_none() && self.used.is_none()
    }

    pub(super) fn dimension(&self) -> Dimension {
        self.dimension.unwrap_or_else(|| {
            // `input-tokens`, `tokens-minute`; an `api-token` is whose calls are counted.
            let word = |part: &str| match part {
                "tokens" => Some(Dimension::Tokens),
                "complexity" | "points" | "weight" | "cost" => Some(Dimension::Points),
                _ => None,
            };
            self.name.split(['-', '_']).find_map(word).unwrap_or_default()
        })
    }

    /// Whether nothing is left of what calls spend.
    pub(super) fn is_empty(&self) -> bool {
        self.remaining == Some(0) && self.dimension().is_spent()
    }
}

/// A policy of the IETF drafts that waits for its limit.
#[derive(Debug)]
pub(super) struct Policy<'a> {
    pub(super) name: Cow<'a, str>,
    pub(super) is_named: bool,
    pub(super) partition: Option<Cow<'a, str>>,
    pub(super) dimension: Option<Dimension>,
    pub(super) limit: Option<u64>,
    pub(super) window_us: Option<Micros>,
}

#[derive(Debug, Default)]
pub(super) struct Limits<'a> {
    pub(super) found: Vec<Found<'a>>,
    pub(super) policies: Vec<Policy<'a>>,
    /// The limit that unnamed numbers of a prefix belong to: prefix and name.
    pub(super) resource: Option<(&'a str, &'a str)>,
    /// What is beyond [`LIMITS_MAX`] is written here and forgotten.
    surplus: Found<'a>,
}

impl<'a> Limits<'a> {
    /// The limit of this key, begun where there is none.
    pub(super) fn entry(&mut self, key: Key<'a>) -> &mut Found<'a> {
        let at = self.found.iter().position(|found| {
            !found.is_item
                && is_same(&found.name, key.name)
                && is_same(found.prefix, key.prefix)
                && is_same(found.after, key.after)
        });
        let Key { prefix, name, after } = key;
        let begin = || Found { prefix, name: Cow::Borrowed(name), after, ..Found::default() };
        self.at_or_push(at, begin)
    }

    /// The item of this name, for a header of items.
    pub(super) fn item(
        &mut self,
        name: Cow<'a, str>,
        partition: Option<Cow<'a, str>>,
    ) -> &mut Found<'a> {
        self.at_or_push(None, || Found { name, partition, is_item: true, ..Found::default() })
    }

    fn at_or_push(
        &mut self,
        at: Option<usize>,
        begin: impl FnOnce() -> Found<'a>,
    ) -> &mut Found<'a> {
        let at = match at {
            Some(at) => at,
            None if self.found.len() < LIMITS_MAX => {
                if self.found.is_empty() {
                    self.found.reserve(4);
                }
                self.found.push(begin());
                self.found.len() - 1
            }
            None => usize::MAX,
        };
        self.found.get_mut(at).unwrap_or(&mut self.surplus)
    }

    /// Brings together what belongs together, and fills in what follows or is documented.
    pub(super) fn settle(&mut self, profile: &'a Profile) {
        if !self.policies.is_empty() {
            ietf::join(self);
            self.found.truncate(LIMITS_MAX);
        }
        self.share_bare_reset();
        for found in &mut self.found {
            if let Some((prefix, name)) = self.resource
                && found.name.is_empty()
                && found.prefix == prefix
            {
                found.name = Cow::Borrowed(name);
            }
            let sum = found.used.zip(found.remaining).map(|(used, left)| used.saturating_add(left));
            match (found.limit, found.remaining) {
                // Reddit tells no limit. One below what is left is another's, or rescaled (GitLab).
                (None, _) => found.limit = sum.filter(|sum| *sum > 0),
                (Some(limit), Some(left)) if limit < left => found.limit = sum,
                (Some(limit), None) => {
                    found.remaining = found.used.map(|used| limit.saturating_sub(used));
                }
                _ => {}
            }
            if let (Some(fill), Some(limit)) = (found.fill, found.limit) {
                // 50 that come back by 10 a minute are 50 in five minutes.
                found.window_us = found.window_us.filter(|_| fill > 0).map(|window| {
                    let whole = i128::from(window) * i128::from(limit) / i128::from(fill);
                    Micros::try_from(whole).unwrap_or(SPAN_MAX_US)
                });
            }
            let rule = profile.limit_rule(&found.name);
            found.dimension = found.dimension.or(rule.and_then(|rule| rule.dimension));
            found.window_us = found
                .window_us
                .or_else(|| {
                    period_us(if found.after.is_empty() { &found.name } else { found.after })
                })
                .or(rule.and_then(|rule| rule.window_us));
        }
    }

    /// One reset for several limits that have none (Contentful): of those that are empty, or of
    /// the shortest.
    fn share_bare_reset(&mut self) {
        let is_bare = |it: &Found<'_>| !it.is_item && it.name.is_empty() && it.tells_only_reset();
        let Some(bare) = self.found.iter().position(is_bare) else { return };
        let Some(reset) = self.found[bare].comes_back() else { return };
        let prefix = self.found[bare].prefix;
        let needs = |it: &Found<'_>| {
            !it.is_item
                && it.prefix == prefix
                && !it.tells_only_reset()
                && it.comes_back().is_none()
        };
        let mut needing: Vec<&mut Found<'_>> =
            self.found.iter_mut().filter(|it| needs(it)).collect();
        if needing.is_empty() {
            return;
        }
        let shortest = |it: &&mut Found<'_>| period_us(&it.name).unwrap_or(Micros::MAX);
        if needing.iter().any(|it| it.is_empty()) {
            for found in needing.iter_mut().filter(|it| it.is_empty()) {
                found.reset = Some(reset);
            }
        } else if let Some(found) = needing.iter_mut().min_by_key(|it| shortest(it)) {
            found.reset = Some(reset);
        }
        self.found.remove(bare);
    }

    /// Where the limit at this index comes to stand in the reading.
    pub(super) fn place_told(&self, at: usize) -> usize {
        self.found.iter().take(at).filter(|found| !says_nothing(found)).count()
    }

    /// The limits of a reading.
    pub(super) fn told(self, clock: UnixMicros) -> Vec<Limit<'a>> {
        let told = |found: Found<'a>| {
            let reset = found.comes_back();
            // The moment as stated, for it is the same in all answers of one window.
            let moment = found.reset.or(reset).map(|reset| reset.time.moment(clock));
            Limit {
                dimension: found.dimension(),
                name: found.name,
                partition: found.partition,
                limit: found.limit,
                remaining: found.remaining,
                used: found.used,
                window_us: found.window_us.map(|window| window.clamp(0, SPAN_MAX_US)),
                reset_us: reset.map(|reset| reset.time.span(clock).min(SPAN_MAX_US)),
                reset_at: moment,
            }
        };
        self.found.into_iter().filter(|found| !says_nothing(found)).map(told).collect()
    }
}

/// Equality that does not ask the C library about empty texts: their pointers point nowhere, and on
/// processors that read under a mask it took 20 ns to find out that nothing is to be read there.
fn is_same(one: &str, other: &str) -> bool {
    one.len() == other.len() && (one.is_empty() || one == other)
}

/// Begun by a header whose value was junk. A window alone is worth keeping where calls are counted.
fn says_nothing(found: &Found<'_>) -> bool {
    found.tells_only_reset() && found.comes_back().is_none()
}
