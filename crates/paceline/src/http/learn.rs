//! What an answer that tells of limits means for a bucket's policy: which of its quotas a limit is
//! about, what is left of that, and which policy the provider's own numbers make. Pure, but for what
//! is remembered to not ask the store for the same thing again and again.

use std::time::Duration;

use paceline_core::driver::FRESH_US;
use paceline_core::policy::{LIMIT_MAX, STRICT_GUARD_DEFAULT_US};
use paceline_core::{Booking, Micros, Policy, Quota, Remaining, Shape, Unit};
use paceline_http::{Dimension, Limit, Reading};

use crate::clock::{micros, us};

/// What one answer may be late by on its way, and what moments are rounded by at least.
const BLUR_LEAST_US: Micros = 10_000;
/// Where changes are told, it takes so long at most until nobody goes who has not heard.
const TOLD_US: Micros = 40_000;
/// Where no answer tells when more comes back, what others have spent counts for so long at most.
const UNKNOWN_RESET_US: Micros = 30_000_000;
/// What whole seconds are rounded by.
const BLUR_SECONDS_US: Micros = 1_000_000;
/// Of an interval: so close together, what is left is told once, unless little is.
const GAP: Micros = 64;
const LITTLE: i64 = 8;
/// How many times as long as the quickest a call usually takes at most.
const USUAL: Micros = 3;
/// After a limit was learned none is raised for so long, and after one could not be, none learned.
const LEARN_PAUSE_US: Micros = 10_000_000;
/// Others who have spent of a quota are reckoned with for so many of its intervals.
const OTHERS_FOR: Micros = 3;
/// A learned policy outlives the idle bucket by this much: what was learned by being refused is not
/// forgotten over a coffee.
pub(super) const KEPT: Duration = Duration::from_secs(3_600);

/// Of one bucket in this process.
#[derive(Debug)]
pub(crate) struct Learning {
    /// For each quota of the policy.
    quotas: Vec<Heard>,
    /// The limits that the last answers stated, one for a unit.
    stated: Vec<Stated>,
    /// How long the quickest of the last calls took.
    quickest_us: Micros,
    /// No limit is raised before.
    raise_from: Micros,
    /// Nothing is learned before.
    learn_from: Micros,
}

impl Default for Learning {
    fn default() -> Self {
        Self {
            quotas: Vec::new(),
            stated: Vec::new(),
            quickest_us: Micros::MAX / 4,
            raise_from: 0,
            learn_from: 0,
        }
    }
}

/// A limit that answers state.
#[derive(Debug)]
struct Stated {
    /// Of what, how many, in which window.
    what: (Unit, u64, Option<Micros>),
    /// How many answers in a row have stated it.
    times: u32,
}

/// What answers told of one quota, on the steady clock.
#[derive(Debug, Clone, Copy)]
struct Heard {
    /// When what is left was told to the store last.
    told_at: Micros,
    /// When others were found to have spent of it.
    others_at: Micros,
    /// The moment at which the provider counts anew, and when it was first named.
    resets: Option<(Micros, Micros)>,
    /// Whether that moment stood still while time passed: a window of the provider's own, that began
    /// an interval before it. Elsewhere it moves on with each call or with time itself, and tells
    /// nothing of when the provider began to count.
    is_fixed: bool,
    /// The last answer was made by the provider at this moment or later.
    made_at: Micros,
    /// When a window of the provider had begun, and within how long before.
    began: Option<(Micros, Micros)>,
}

/// How many answers in a row have to state a limit until it is believed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Needed {
    to_lower: u32,
    to_raise: u32,
}

impl Needed {
    /// Of a hundred answers one may be of somebody else's limit.
    const USUAL: Self = Self { to_lower: 2, to_raise: 3 };

    /// One that refuses is of ours, and where no other is heard it has to do.
    pub(super) fn of(refused: bool, only_one: bool) -> Self {
        match (refused, only_one) {
            (_, true) => Self { to_lower: 1, to_raise: 1 },
            (true, false) => Self { to_lower: 1, ..Self::USUAL },
            (false, false) => Self::USUAL,
        }
    }
}

/// The call that was answered: its place, and how long ago it was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    pub(super) booking: Option<Booking>,
    pub(super) age_us: Micros,
}

impl Learning {
    /// What is left of each quota that the answer tells of, where it is time to tell the store.
    /// `told` is whether waiters hear of changes at once; `now` is on the steady clock.
    pub(super) fn remaining(
        &mut self,
        policy: &Policy,
        reading: &Reading<'_>,
        sent: Option<Sent>,
        told: bool,
        now: Micros,
    ) -> Vec<Remaining> {
        self.quotas.resize(policy.quotas().len(), Heard::NOTHING);
        let sent = sent.map(|sent| self.usual(sent));
        let mut all: Vec<Remaining> = Vec::new();
        for limit in &reading.limits {
            let Some(mut said) = remaining(policy, limit, sent, told) else { continue };
            let quota = policy.quotas()[said.quota - 1];
            let heard = &mut self.quotas[said.quota - 1];
            if heard.takes_in(&said, sent.map_or(0, |sent| sent.age_us), now) {
                heard.sharpen(&mut said, now);
            } else {
                // All that still counts here may count there.
                said.blur_us = us(quota.guarded());
            }
            let often = now - heard.told_at < said.interval_us / GAP
                && said.tokens > i64::from(quota.limit()) / LITTLE;
            if often || all.iter().any(|other| other.quota == said.quota) {
                continue;
            }
            heard.told_at = now;
            said.is_shared = now - heard.others_at < OTHERS_FOR * said.interval_us;
            all.push(said);
        }
        all
    }

    /// The call as if it had taken no longer than usual. One that was held up on its way reached the
    /// provider behind others that went out after it, and these have been counted.
    fn usual(&mut self, sent: Sent) -> Sent {
        // It follows the quickest, and forgets it by and by.
        self.quickest_us =
            sent.age_us.min(self.quickest_us.saturating_add(self.quickest_us / 16 + 1));
        let age_us = sent.age_us.min(USUAL.saturating_mul(self.quickest_us));
        let booking = sent.booking.map(|booking| {
            let due = booking.due.saturating_add(sent.age_us - age_us);
            Booking { due, ..booking }
        });
        Sent { booking, ..sent }
    }

    /// The policy that the answer's limits make of this one, where it is another and to be believed:
    /// once so many answers in a row as are needed have stated it.
    pub(super) fn policy(
        &mut self,
        own: &Policy,
        policy: &Policy,
        reading: &Reading<'_>,
        needed: Needed,
        now: Micros,
    ) -> Option<Policy> {
        let mut units = Unit::ALL.into_iter();
        units.find_map(|unit| self.policy_for(own, policy, reading, unit, needed, now))
    }

    fn policy_for(
        &mut self,
        own: &Policy,
        policy: &Policy,
        reading: &Reading<'_>,
        unit: Unit,
        needed: Needed,
        now: Micros,
    ) -> Option<Policy> {
        let (limit, stated) = the_limit(policy, reading, unit)?;
        let same = (unit, stated, limit.window_us);
        let times = match self.stated.iter_mut().find(|it| it.what.0 == unit) {
            Some(known) if known.what == same => {
                known.times = known.times.saturating_add(1);
                known.times
            }
            known => {
                let anew = Stated { what: same, times: 1 };
                match known {
                    Some(known) => *known = anew,
                    None => self.stated.push(anew),
                }
                1
            }
        };
        let learned = learned(own, policy, limit, unit, stated)?;
        let is_time = match learned.1 {
            Learned::Lower => times >= needed.to_lower,
            Learned::Higher => now >= self.raise_from && times >= needed.to_raise,
        };
        (is_time && now >= self.learn_from).then_some(learned.0)
    }

    /// Others have spent of a quota, as the store has found.
    pub(super) fn others_spend(&mut self, quota: usize, now: Micros) {
        if let Some(heard) = self.quotas.get_mut(quota - 1) {
            heard.others_at = now;
        }
    }

    /// A policy is about to be learned.
    pub(super) fn learns(&mut self, now: Micros) {
        self.raise_from = now + LEARN_PAUSE_US;
        self.stated.clear();
    }

    /// It was not: somebody has set another, which this process will hear of, or pinned this one.
    pub(super) fn learned_nothing(&mut self, now: Micros) {
        self.learn_from = now + LEARN_PAUSE_US;
    }
}

impl Heard {
    const NOTHING: Self = Self {
        told_at: Micros::MIN / 2,
        others_at: Micros::MIN / 2,
        resets: None,
        is_fixed: false,
        made_at: Micros::MIN / 2,
        began: None,
    };

    /// Takes in when the provider says that it counts anew, in an answer to a call that was sent so
    /// long ago; whether its window is a fixed one.
    fn takes_in(&mut self, said: &Remaining, age_us: Micros, now: Micros) -> bool {
        let blur_us = said.blur_us;
        let moment = now + said.resets_in_us;
        match self.resets {
            Some((known, _)) if (moment - known).abs() > blur_us => {
                // A new window, or the old one's moment has moved before it came.
                self.is_fixed &= now >= known - blur_us;
                if self.is_fixed && (moment - known - said.interval_us).abs() <= blur_us {
                    self.began(now, said.interval_us);
                }
                self.resets = Some((moment, now));
            }
            Some((_, since)) => self.is_fixed |= now - since > 2 * blur_us,
            None => self.resets = Some((moment, now)),
        }
        self.made_at = self.made_at.max(now - age_us);
        self.is_fixed
    }

    /// A window has begun since the last answer. Its moment is kept where it is known more closely than
    /// those of others before, and where those were wrong.
    fn began(&mut self, now: Micros, interval_us: Micros) {
        let within = now - self.made_at;
        let stands = self.began.is_some_and(|(at, of)| {
            // From 0 to `of` before a multiple of intervals behind `at`.
            let since = (now - at).rem_euclid(interval_us);
            of <= within && (since <= within || interval_us - since <= of)
        });
        if !stands && within < interval_us / 8 {
            self.began = Some((now, within));
        }
    }

    /// Says when the provider counts anew by when its windows were seen to begin, where that is known
    /// more closely than the answer tells and agrees with it.
    fn sharpen(&self, said: &mut Remaining, now: Micros) {
        let Some((at, within)) = self.began else { return };
        let resets_in_us = said.interval_us - (now - at).rem_euclid(said.interval_us);
        let rounded_by = said.resets_in_us - resets_in_us;
        let least = said.interval_us / GAP;
        let blur_us = (within + BLUR_LEAST_US).max(least);
        if (-blur_us..=said.blur_us).contains(&rounded_by) && blur_us < said.blur_us {
            (said.resets_in_us, said.blur_us) = (resets_in_us, blur_us);
        }
    }
}

/// Whether a limit changes a policy for less or for more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Learned {
    Lower,
    Higher,
}

/// The unit of the policy's quotas that a limit is about, if any. Points are what a plain policy of a
/// provider that counts them means by requests.
fn unit_of(policy: &Policy, limit: &Limit<'_>) -> Option<Unit> {
    let has = |unit: &Unit| policy.quotas().iter().any(|quota| quota.unit() == *unit);
    let named = || Unit::ALL.into_iter().find(|unit| unit.name() == limit.name);
    match limit.dimension {
        Dimension::Requests => Some(Unit::Requests).filter(has),
        Dimension::Tokens => named().or(Some(Unit::Tokens)).filter(has),
        Dimension::Points => {
            Some(Unit::Points).filter(has).or_else(|| policy.is_plain().then_some(Unit::Requests))
        }
        Dimension::Bytes => Some(Unit::Bytes).filter(has),
        Dimension::Concurrency | Dimension::Other => None,
    }
}

/// The one limit of a unit that the answer states, where it states one. Of several it is not known
/// which of them bind together, unless each has a window of its own: then the one that the policy
/// knows is meant.
fn the_limit<'a>(
    policy: &Policy,
    reading: &'a Reading<'_>,
    unit: Unit,
) -> Option<(&'a Limit<'a>, u64)> {
    let all = || {
        reading.limits.iter().filter_map(|limit| {
            let stated = limit.limit.filter(|it| (1..=u64::from(LIMIT_MAX)).contains(it))?;
            (unit_of(policy, limit) == Some(unit)).then_some((limit, stated))
        })
    };
    let known =
        |limit: &Limit<'_>| limit.window_us.is_some_and(|it| has_interval(policy, unit, it));
    match all().count() {
        1 => all().next(),
        _ => {
            let mut of_window = all().filter(|(limit, _)| known(limit));
            of_window.next().filter(|_| of_window.next().is_none())
        }
    }
}

fn of_unit(policy: &Policy, unit: Unit) -> impl Iterator<Item = &Quota> {
    policy.quotas().iter().filter(move |quota| quota.unit() == unit)
}

fn has_interval(policy: &Policy, unit: Unit, interval_us: Micros) -> bool {
    of_unit(policy, unit).any(|quota| us(quota.interval()) == interval_us)
}

/// The only interval of a unit's quotas.
fn the_interval(policy: &Policy, unit: Unit) -> Option<Micros> {
    let mut intervals = of_unit(policy, unit).map(|quota| us(quota.interval()));
    let first = intervals.next()?;
    intervals.all(|other| other == first).then_some(first)
}

/// The interval of the policy that a limit is about.
fn interval_of(policy: &Policy, limit: &Limit<'_>, unit: Unit) -> Option<Micros> {
    match limit.window_us {
        Some(window_us) => Some(window_us).filter(|it| has_interval(policy, unit, *it)),
        None => {
            let by_number = of_unit(policy, unit)
                .find(|quota| limit.limit == Some(u64::from(quota.limit())))
                .map(|quota| us(quota.interval()));
            // What comes back later than an interval is over is of a longer one.
            let within = |it: &Micros| limit.reset_us.is_none_or(|reset| reset <= *it + it / 8);
            the_interval(policy, unit).or(by_number).filter(within)
        }
    }
}

/// What is left of the quota that a limit is about: of its window where it has one, whose entries
/// tell what was taken when.
fn remaining(
    policy: &Policy,
    limit: &Limit<'_>,
    sent: Option<Sent>,
    told: bool,
) -> Option<Remaining> {
    let left = limit.remaining?;
    let unit = unit_of(policy, limit)?;
    let interval_us = interval_of(policy, limit, unit)?;
    let quotas = policy.quotas().iter().enumerate();
    let of_interval =
        quotas.filter(|(_, quota)| quota.unit() == unit && us(quota.interval()) == interval_us);
    let (index, quota) = of_interval.min_by_key(|(_, quota)| quota.shape() != Shape::Window)?;
    // Without a moment it is not known when it comes back; each answer tells anew what is left.
    let whole = |it: Micros| it % 1_000_000 == 0;
    let (resets_in_us, blur_us) = match (limit.reset_us, limit.reset_at) {
        (None, _) => (interval_us.min(UNKNOWN_RESET_US), us(quota.guarded())),
        // Both the moment and the answer's own Date.
        (Some(reset), Some(at)) if whole(at) => (reset, 2 * BLUR_SECONDS_US),
        (Some(reset), None) if whole(reset) => (reset, BLUR_SECONDS_US),
        (Some(reset), _) => (reset, BLUR_LEAST_US),
    };
    // An answer that took longer than its window had left may be of the window before.
    let age_us = sent.map_or(0, |sent| sent.age_us);
    if age_us > 0 && age_us >= resets_in_us {
        return None;
    }
    Some(Remaining {
        quota: index + 1,
        interval_us,
        tokens: i64::try_from(left).unwrap_or(i64::MAX).min(i64::from(LIMIT_MAX)),
        resets_in_us,
        blur_us: blur_us.max(interval_us / GAP),
        sent: sent.and_then(|sent| sent.booking),
        unstoppable_us: if told { TOLD_US } else { FRESH_US },
        is_shared: false,
    })
}

/// The policy with the limit that an answer states; `None` where it is the same, or it is not clear
/// which quota is meant.
fn learned(
    own: &Policy,
    policy: &Policy,
    limit: &Limit<'_>,
    unit: Unit,
    stated: u64,
) -> Option<(Policy, Learned)> {
    let stated = u32::try_from(stated).ok()?;
    let quotas = policy.quotas();
    let known = interval_of(policy, limit, unit);
    let is_ours = |quota: &Quota| quota.unit() == unit;
    let (quotas, how): (Vec<Quota>, Learned) = match (known, limit.window_us) {
        (Some(interval_us), window_us) => {
            let ours = |quota: &&Quota| is_ours(quota) && us(quota.interval()) == interval_us;
            let most = quotas.iter().filter(ours).map(Quota::limit).max()?;
            let how = if stated < most { Learned::Lower } else { Learned::Higher };
            // Without a window nobody knows that it is not more, of a longer one. What the process's own
            // policy allows was lowered by answers before.
            let own_most = own.quotas().iter().filter(ours).map(Quota::limit).max().unwrap_or(0);
            let is_known = window_us.is_some() || stated <= own_most;
            if stated == most || how == Learned::Higher && !is_known {
                return None;
            }
            let new = |quota: &Quota| if ours(&quota) { quota.with_limit(stated) } else { *quota };
            (quotas.iter().map(new).collect(), how)
        }
        // A window that the policy does not have.
        (None, Some(window_us)) => {
            let guard = quotas.iter().map(|quota| quota.guarded() - quota.interval()).max();
            let guard = guard.filter(|guard| !guard.is_zero());
            let guard = guard.unwrap_or(micros(STRICT_GUARD_DEFAULT_US));
            let interval = micros(window_us);
            let window = Quota::window(stated, interval).guard(guard).of(unit);
            if the_interval(policy, unit).is_some() {
                // Requests are paced one by one; of other units a call takes many at once.
                let paced = Quota::per(stated, interval).burst(1).guard(guard);
                let paced = Some(paced).filter(|_| unit == Unit::Requests);
                let rate = |quota: &Quota| {
                    f64::from(quota.limit()) / quota.interval().as_secs_f64().max(1e-9)
                };
                let before = of_unit(policy, unit).map(rate).fold(f64::INFINITY, f64::min);
                let lower = rate(&window) < before;
                let others = quotas.iter().copied().filter(|quota| !is_ours(quota));
                let all = paced.into_iter().chain([window]).chain(others).collect();
                (all, if lower { Learned::Lower } else { Learned::Higher })
            } else {
                (quotas.iter().copied().chain([window]).collect(), Learned::Lower)
            }
        }
        (None, None) => return None,
    };
    let idle = policy.idle().max(KEPT);
    let policy = Policy::new(quotas).and_then(|policy| policy.with_idle(idle)).ok()?;
    Some((policy, how))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Micros = 1_000_000;

    fn said(resets_in_us: Micros, blur_us: Micros) -> Remaining {
        Remaining {
            quota: 1,
            interval_us: 60 * SECOND,
            tokens: 1,
            resets_in_us,
            blur_us,
            sent: None,
            unstoppable_us: 0,
            is_shared: false,
        }
    }

    #[test]
    fn a_window_told_in_whole_seconds_is_known_by_when_it_was_seen_to_begin() {
        // Windows begin at 0.37 s of a minute; answers come every 50 ms, told rounded up.
        let mut heard = Heard::NOTHING;
        let phase: Micros = 370_000;
        let (mut off, mut steps) = (0, 0);
        for step in 0..6_000 {
            let now = step * 50_000;
            let left = 60 * SECOND - (now - phase).rem_euclid(60 * SECOND);
            let rounded = (left + SECOND - 1) / SECOND * SECOND;
            let mut said = said(rounded, SECOND);
            let is_fixed = heard.takes_in(&said, 30_000, now);
            if is_fixed {
                heard.sharpen(&mut said, now);
            }
            // Never sooner than it is, but where it was known before that a window has begun.
            if now > 120 * SECOND && left > 100_000 {
                off = off.max((said.resets_in_us - left).abs());
                assert!(said.resets_in_us - said.blur_us <= left, "{now}: {said:?}, {left}");
                steps += 1;
            }
        }
        // By the way between two answers rather than by a second; a minute's 64th covers it.
        assert!(off <= 80_000 && steps > 3_000, "{off}");
    }

    #[test]
    fn a_moment_that_stands_still_is_the_end_of_a_window_and_one_that_moves_is_not() {
        // Answers every two seconds: how long until it counts anew, and what that makes of it.
        type ResetsIn = fn(Micros) -> Micros;
        let cases: [(&str, ResetsIn, bool); 4] = [
            ("a fixed minute", |now| 60 * SECOND - now % (60 * SECOND), true),
            ("a minute from each answer", |_| 60 * SECOND, false),
            ("until all has come back", |now| 120_000 + now % 7, false),
            ("the oldest of a log", |now| 60 * SECOND - now / 2 % (30 * SECOND), false),
        ];
        for (name, resets_in, is_fixed) in cases {
            let mut heard = Heard::NOTHING;
            let mut last = false;
            for step in 1..200 {
                let now = step * 2 * SECOND;
                last = heard.takes_in(&said(resets_in(now), 20_000), 0, now);
                assert!(is_fixed || !last, "{name}, {step}");
            }
            assert_eq!(last, is_fixed, "{name}");
        }
    }
}
