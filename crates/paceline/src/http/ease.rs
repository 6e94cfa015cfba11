//! Easing: a provider that refuses and states no limit, although its quota as we know it is kept, has
//! another one. What pace it lets pass is found by [`Ease`]; here that becomes the bucket's policy.
//!
//! An eased policy is the process's own at so many thousandths of its pace. So nothing more is stored:
//! every process of the fleet sees by the policy that binds how far it is eased, who came later as who
//! was refused; and burst and pace go down together, so no wait is reckoned from an old size (C18).

use std::num::NonZeroU32;
use std::sync::Arc;

use paceline_core::ease::{Ease, STEP, WHOLE};
use paceline_core::{Micros, Policy};

use super::learn::KEPT;
use crate::clock::us;

/// A pace is set in so many millionths.
const PART: i64 = WHOLE / 1_000;

/// A refusal so soon behind the last is of a call that was under way.
const SETTLES_US: Micros = 1_000_000;

/// Of one bucket in this process.
#[derive(Debug, Default)]
pub(crate) struct Easing {
    ease: Option<Ease>,
    /// The policy that was seen to bind last, and which part of the own pace it is.
    seen: Option<(Arc<Policy>, i64)>,
    /// The last refusal here, on the steady clock.
    refused_at: Micros,
}

/// What is known when an answer comes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scene<'a> {
    /// The process's own policy, and the one that binds.
    pub(super) own: &'a Policy,
    pub(super) binding: &'a Arc<Policy>,
    /// For how long the bucket has been suspended in all.
    pub(super) paused_us: Micros,
    /// On the steady clock.
    pub(super) now: Micros,
}

impl Easing {
    /// The provider has refused although the bucket's policy was kept: the policy to go on with. Where
    /// this has stopped the bucket `anew`, somebody in the fleet has passed since the last refusal.
    pub(super) fn refused(&mut self, scene: Scene<'_>, anew: bool) -> Option<Policy> {
        let on = self.see(scene)?;
        let Scene { own, binding, paused_us, now } = scene;
        let ease = self.ease.get_or_insert_with(|| Ease::new(window_us(own)));
        if anew && now - self.refused_at >= SETTLES_US {
            ease.passed(now);
        }
        ease.refused(now, paused_us);
        self.refused_at = now;
        let pace = ease.pace(now);
        (pace < on).then(|| at_pace(own, pace, binding)).flatten()
    }

    /// A call has passed that was sent so long ago: the policy to go on with, where it is time to climb.
    pub(super) fn passed(&mut self, scene: Scene<'_>, age_us: Micros) -> Option<Policy> {
        let on = self.see(scene)?;
        let Scene { own, binding, now, .. } = scene;
        let ease = self.ease.as_mut()?;
        if now - age_us >= self.refused_at {
            ease.passed(now);
        }
        let pace = ease.pace(now);
        let is_worth_it = pace >= on + 2 * STEP || pace == WHOLE && on < WHOLE;
        is_worth_it.then(|| at_pace(own, pace, binding)).flatten()
    }

    /// Which part of the own pace the binding policy is; `None` where it is none of ours.
    fn see(&mut self, scene: Scene<'_>) -> Option<i64> {
        let Scene { own, binding, paused_us, now } = scene;
        if let Some((policy, on)) = &self.seen
            && Arc::ptr_eq(policy, binding)
        {
            return Some(*on);
        }
        let on = pace_of(own, binding)?;
        let before = self.seen.replace((Arc::clone(binding), on)).map(|(_, before)| before);
        // Who has just come sees how far it is eased, and not since when.
        let from = before.unwrap_or(on);
        if on < from || before.is_none() && on < WHOLE {
            let ease = self.ease.get_or_insert_with(|| Ease::new(window_us(own)));
            ease.fell(from, on, now, paused_us);
        }
        Some(on)
    }
}

/// What counts as a window: the policy's longest interval.
fn window_us(own: &Policy) -> Micros {
    let longest = own.quotas().iter().map(|quota| quota.interval()).max().unwrap_or_default();
    us(longest)
}

/// The policy at that pace, where it is another than the one that binds.
fn at_pace(own: &Policy, pace: i64, binding: &Policy) -> Option<Policy> {
    let policy = slowed(own, pace / PART)?;
    let idle = own.idle().max(KEPT);
    let policy = policy.with_idle(idle).ok()?;
    (policy.quotas() != binding.quotas()).then_some(policy)
}

fn slowed(own: &Policy, permille: i64) -> Option<Policy> {
    if permille >= 1_000 {
        return Some(own.clone());
    }
    let permille = NonZeroU32::new(u32::try_from(permille).ok()?)?;
    own.slowed(permille).ok()
}

/// Which part of its pace a policy is, in millionths; the highest of those that make the same one.
fn pace_of(own: &Policy, policy: &Policy) -> Option<i64> {
    if own.quotas() == policy.quotas() {
        return Some(WHOLE);
    }
    let (whole, part) = (own.quotas().first()?, policy.quotas().first()?);
    if own.quotas().len() != policy.quotas().len() || whole.limit() == 0 {
        return None;
    }
    // Rounding in whole tokens and milliseconds makes it a little less than asked for.
    let rate = f64::from(part.limit()) / f64::from(whole.limit())
        * (whole.interval().as_secs_f64() / part.interval().as_secs_f64());
    #[allow(clippy::cast_possible_truncation, reason = "far below 2^53, or no match is found")]
    let least = (rate * 1_000.0).floor() as i64;
    let span = 1_000 / i64::from(whole.limit().max(1)) + 2;
    let mut fitting = (least..=least + span).rev().filter(|it| (1..1_000).contains(it));
    let fits = |permille: &i64| {
        slowed(own, *permille).is_some_and(|slowed| slowed.quotas() == policy.quotas())
    };
    fitting.find(fits).map(|permille| permille * PART)
}

#[cfg(test)]
mod tests {
    use paceline_core::ease::FLOOR;

    use super::*;

    const SECOND: Micros = 1_000_000;

    fn policy(text: &str) -> Arc<Policy> {
        Arc::new(text.parse().unwrap())
    }

    /// A fleet of some processes on one policy.
    struct Fleet {
        own: Arc<Policy>,
        binding: Arc<Policy>,
        processes: Vec<Easing>,
        now: Micros,
    }

    impl Fleet {
        fn new(own: &str, processes: usize) -> Self {
            let own = policy(own);
            let processes = (0..processes).map(|_| Easing::default()).collect();
            Self { binding: Arc::clone(&own), own, processes, now: 0 }
        }

        fn limit(&self) -> u32 {
            self.binding.quotas()[0].limit()
        }

        fn hears(&mut self, process: usize, passes: bool) {
            let scene =
                Scene { own: &self.own, binding: &self.binding, paused_us: 0, now: self.now };
            let easing = &mut self.processes[process];
            let policy =
                if passes { easing.passed(scene, 0) } else { easing.refused(scene, false) };
            if let Some(policy) = policy {
                self.binding = Arc::new(policy);
            }
        }
    }

    #[test]
    fn whoever_is_refused_all_go_on_from_there_and_settle_just_below_what_passes() {
        let mut fleet = Fleet::new("strict 200/s", 3);
        let (mut refusals, mut last) = (0, 0);
        for step in 0..6_000 {
            fleet.now += SECOND / 10;
            // The provider lets 100 a second pass, and refuses some at the end of a second.
            let refuses = fleet.limit() > 100 && step % 10 > 7;
            fleet.hears(step % 3, !refuses);
            if refuses {
                (refusals, last) = (refusals + 1, step);
            }
        }
        assert!(refusals <= 20 && last < 600, "{refusals}, the last at {last}");
        assert!((90..=100).contains(&fleet.limit()), "{}", fleet.binding);
    }

    #[test]
    fn refusals_of_calls_that_were_under_way_count_once() {
        let mut fleet = Fleet::new("strict 100/s", 2);
        for step in 0..100 {
            fleet.now = step * 10_000;
            fleet.hears(usize::from(step % 2 == 0), false);
        }
        assert_eq!(fleet.limit(), 80);
    }

    #[test]
    fn an_answer_to_a_call_from_before_the_refusal_ends_nothing() {
        let mut easing = Easing::default();
        let own = policy("strict 100/s");
        let scene = |binding, now| Scene { own: &own, binding, paused_us: 0, now };
        let eased = Arc::new(easing.refused(scene(&own, SECOND), false).unwrap());
        assert_eq!(easing.passed(scene(&eased, 2 * SECOND), 2 * SECOND), None);
        // Still the same episode.
        assert_eq!(easing.refused(scene(&eased, 3 * SECOND), false), None);
        assert_eq!(easing.passed(scene(&eased, 4 * SECOND), SECOND), None);
        assert!(easing.refused(scene(&eased, 5 * SECOND), false).is_some());
    }

    #[test]
    fn c18_it_is_bounded_both_ways_and_who_comes_later_climbs_on() {
        let mut fleet = Fleet::new("950000/m burst 200000", 1);
        for _ in 0..200 {
            fleet.now += 100 * SECOND;
            fleet.hears(0, false);
            fleet.now += SECOND;
            fleet.hears(0, true);
        }
        let quota = fleet.binding.quotas()[0];
        let floor = 950_000 * FLOOR / WHOLE;
        assert!((floor - 1_000..=floor + 1_000).contains(&i64::from(quota.limit())), "{quota}");
        assert!(quota.cost_max() * 4 < quota.limit(), "{quota}");
        fleet.processes = vec![Easing::default()];
        for _ in 0..3_000 {
            fleet.now += 60 * SECOND;
            fleet.hears(0, true);
        }
        assert_eq!(fleet.binding.quotas(), fleet.own.quotas());
    }

    #[test]
    fn every_pace_is_recognised_by_its_policy_also_of_few_tokens() {
        for text in ["strict 100/s", "strict 7/s", "window 1/m", "5000/h burst 100, window 30/m"] {
            let own = policy(text);
            for permille in 16..1_000 {
                let policy = slowed(&own, permille).unwrap();
                let pace = pace_of(&own, &policy);
                assert!(
                    pace.is_some_and(|it| it >= permille * PART),
                    "{text}: {permille}, {pace:?}"
                );
            }
            assert_eq!(pace_of(&own, &own), Some(WHOLE));
        }
    }

    #[test]
    fn a_policy_that_somebody_else_has_set_is_left_alone() {
        let (own, other) = (policy("strict 100/s"), policy("window 30/s, 4/m"));
        let mut easing = Easing::default();
        let scene = |now| Scene { own: &own, binding: &other, paused_us: 0, now };
        assert_eq!(easing.refused(scene(0), true), None);
        assert_eq!(easing.passed(scene(1_000_000 * SECOND), 0), None);
    }
}
