//! Easing: a provider that refuses although its quota as we know it is kept has another one. Then the
//! pace is brought down by a factor, and climbs back slowly.
//!
//! Down goes three steps of a tenth each, never below a tenth of the policy that this process brings;
//! back goes one step when nothing was refused for a while, never above that policy. A step that was
//! refused again is not tried again for twice as long. The steps are policies in themselves, made
//! of the process's own, so who comes later knows an eased policy when it sees one and climbs on; and
//! burst and pace go down together, so no wait is reckoned from an old size (C18).

use std::num::NonZeroU32;

use paceline_core::{Micros, Policy};

use super::learn::KEPT;

/// A step is so many thousandths of the one above it.
const STEP_PERMILLE: u32 = 900;
/// Steps down for a refusal.
const STEPS_DOWN: u32 = 3;
/// The lowest: about a tenth of the whole pace.
const STEPS_MAX: u32 = 22;
/// Without a refusal for so long, a step up; doubled with each step that was refused again.
const CLIMB_AFTER_US: Micros = 300_000_000;
const CLIMB_AFTER_MOST_US: Micros = 86_400_000_000;
/// A refusal so soon behind a change of the policy is about the pace before it.
const SETTLES_US: Micros = 1_000_000;

/// Of one bucket in this process.
#[derive(Debug, Default)]
pub(crate) struct Easing {
    /// The step the bucket was on when last seen, and since when.
    seen: Option<(u32, Micros)>,
    /// The last refusal.
    refused_at: Option<Micros>,
    /// The step that was reached by climbing: one that is refused goes back by one.
    climbed: Option<u32>,
    /// How often a climb was refused.
    setbacks: u32,
}

impl Easing {
    /// The provider has refused although the bucket's policy `stored` was kept: the policy to go on
    /// with. `own` is the process's own, `now` on the steady clock.
    pub(crate) fn refused(&mut self, own: &Policy, stored: &Policy, now: Micros) -> Option<Policy> {
        let (step, since) = self.see(own, stored, now)?;
        let fresh = now - since < SETTLES_US && self.seen.is_some() && step > 0;
        self.refused_at = Some(now);
        if fresh {
            return None;
        }
        let down = if self.climbed == Some(step) {
            self.setbacks = self.setbacks.saturating_add(1);
            1
        } else {
            STEPS_DOWN
        };
        self.climbed = None;
        let next = (step + down).min(STEPS_MAX);
        (next > step).then(|| self.go_to(own, next, now)).flatten()
    }

    /// A call has passed: a step up, where it is time for one.
    pub(crate) fn passed(&mut self, own: &Policy, stored: &Policy, now: Micros) -> Option<Policy> {
        let (step, since) = self.see(own, stored, now)?;
        let quiet_since = self.refused_at.map_or(since, |at| at.max(since));
        let after = CLIMB_AFTER_US.saturating_mul(1 << self.setbacks.min(12));
        if step == 0 || now - quiet_since < after.min(CLIMB_AFTER_MOST_US) {
            return None;
        }
        self.climbed = Some(step - 1);
        self.go_to(own, step - 1, now)
    }

    /// The step that the bucket is on and since when this process knows; `None` where its policy is
    /// none of ours.
    fn see(&mut self, own: &Policy, stored: &Policy, now: Micros) -> Option<(u32, Micros)> {
        if let Some((step, since)) = self.seen
            && is_on(own, step, stored)
        {
            return Some((step, since));
        }
        let step = (0..=STEPS_MAX).find(|step| is_on(own, *step, stored))?;
        self.seen = Some((step, now));
        Some((step, now))
    }

    fn go_to(&mut self, own: &Policy, step: u32, now: Micros) -> Option<Policy> {
        self.seen = Some((step, now));
        eased(own, step)
    }
}

fn is_on(own: &Policy, step: u32, stored: &Policy) -> bool {
    match step {
        0 => own.quotas() == stored.quotas(),
        _ => eased(own, step).is_some_and(|eased| eased.quotas() == stored.quotas()),
    }
}

/// The policy so many steps below.
fn eased(own: &Policy, step: u32) -> Option<Policy> {
    let thousand = 1_000_u64;
    let permille = (0..step).fold(thousand, |it, _| it * u64::from(STEP_PERMILLE) / thousand);
    let permille = NonZeroU32::new(u32::try_from(permille).ok()?)?;
    let slowed = if step == 0 { own.clone() } else { own.slowed(permille).ok()? };
    let idle = own.idle().max(KEPT);
    slowed.with_idle(idle).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Micros = 1_000_000;

    fn policy(text: &str) -> Policy {
        text.parse().unwrap()
    }

    #[test]
    fn a_fleet_at_twice_the_quota_settles_below_it_after_three_refusals() {
        let own = policy("strict 100/s");
        let (mut easing, mut stored, mut now) = (Easing::default(), own.clone(), 0);
        let mut limits = Vec::new();
        while stored.quotas()[0].limit() > 50 {
            now += 2 * SECOND;
            stored = easing.refused(&own, &stored, now).unwrap();
            limits.push(stored.quotas()[0].limit());
        }
        assert_eq!(limits, [72, 53, 38]);
    }

    #[test]
    fn refusals_of_calls_that_were_under_way_count_once() {
        let own = policy("strict 100/s");
        let mut easing = Easing::default();
        let eased = easing.refused(&own, &own, 0).unwrap();
        for step in 0..100 {
            assert_eq!(easing.refused(&own, &eased, step * 10_000), None);
        }
        // Another process sees the eased policy first by a refusal of its own.
        assert!(Easing::default().refused(&own, &eased, 0).is_none());
    }

    #[test]
    fn it_climbs_back_step_by_step_and_tries_what_was_refused_again_ever_later() {
        let own = policy("strict 100/s");
        let mut easing = Easing::default();
        let mut stored = easing.refused(&own, &own, 0).unwrap();
        let (mut now, mut tried) = (0, Vec::new());
        // The provider lets 80 pass.
        while tried.len() < 6 {
            now += SECOND;
            if let Some(next) = easing.passed(&own, &stored, now) {
                stored = next;
                if stored.quotas()[0].limit() > 80 {
                    tried.push(now / SECOND);
                    now += 3 * SECOND;
                    stored = easing.refused(&own, &stored, now).unwrap();
                    assert_eq!(stored.quotas()[0].limit(), 72);
                }
            }
        }
        let between: Vec<_> = tried.windows(2).map(|two| (two[1] - two[0]) / 100).collect();
        assert_eq!(between, [6, 12, 24, 48, 96]);
    }

    #[test]
    fn c18_it_is_bounded_both_ways_and_burst_and_pace_go_together() {
        let own = policy("950000/m burst 200000");
        let (mut easing, mut stored, mut now) = (Easing::default(), own.clone(), 0);
        for _ in 0..20 {
            now += 10 * SECOND;
            stored = easing.refused(&own, &stored, now).unwrap_or(stored);
        }
        let quota = stored.quotas()[0];
        assert!((85_000..110_000).contains(&quota.limit()), "{stored}");
        assert!(quota.cost_max() * 4 < quota.limit(), "{stored}");
        while stored != own {
            now += 86_400 * SECOND;
            match easing.passed(&own, &stored, now) {
                Some(next) => stored = next,
                None => break,
            }
        }
        assert_eq!(stored.quotas(), own.quotas());
        assert_eq!(easing.passed(&own, &stored, now + 86_400 * SECOND), None);
    }

    #[test]
    fn a_policy_that_somebody_else_has_set_is_left_alone() {
        let (own, other) = (policy("strict 100/s"), policy("strict 30/s"));
        let mut easing = Easing::default();
        assert_eq!(easing.refused(&own, &other, 0), None);
        assert_eq!(easing.passed(&own, &other, 1_000_000 * SECOND), None);
    }
}
