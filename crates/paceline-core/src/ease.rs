//! How far a bucket is eased where its provider refuses and tells no limit: the pace is lowered by a
//! factor and climbs back slowly, bounded both ways. Pure: it is told refusals and successes and when
//! they were, and says which part of the policy's pace is meant to hold.
//!
//! What a provider lets pass is found from above, in as few refusals as may be:
//!
//! - **Refused** (an episode: refusals with no success in between count as one), the pace at that
//!   moment is a ceiling, and the pace falls below it: to the part of the time since the last episode
//!   in which the bucket was allowed to run, no further than to a half and at least by a fifth.
//!   Refused again within a window, it falls again, and the ceiling stays: what the provider counts
//!   may still be full of what went before.
//! - **Then** it stays there for two windows, and climbs by a fifth of itself each window to 95 % of
//!   the ceiling. There it stays: what was refused is not tried again soon.
//! - **After its patience** (ten minutes, and at least 24 windows of the policy) it climbs beyond by a fiftieth each window, up to the policy's own pace. Refused there,
//!   its patience doubles, up to a day or what it was.
//!
//! Nothing here knows what the pace is of: all is in millionths of the policy's.

use crate::Micros;

/// The policy's own pace, in millionths of it.
pub const WHOLE: i64 = 1_000_000;
/// The least pace: a sixty-fourth.
pub const FLOOR: i64 = WHOLE / 64;
/// Paces closer together than this are one.
pub const STEP: i64 = 10_000;

/// Windows after an episode in which the pace stays down, and those in which it would double then.
const HOLD_WINDOWS: i64 = 2;
const CLIMB_WINDOWS: i64 = 5;
/// The part of a ceiling that it climbs to.
const BELOW: i64 = 950_000;
/// What it adds each window once its patience is over.
const BEYOND: i64 = 20_000;
/// The least and the most that an episode leaves of the pace.
const FALL_MOST: i64 = 500_000;
const FALL_LEAST: i64 = 800_000;
const PATIENCE_LEAST_US: Micros = 600_000_000;
const PATIENCE_WINDOWS: i64 = 24;
const PATIENCE_MOST_US: Micros = 86_400_000_000;
const WINDOW_LEAST_US: Micros = 1_000_000;
const WINDOW_MOST_US: Micros = 86_400_000_000;

/// How far a bucket is eased. As it is made, it is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ease {
    window_us: Micros,
    episode: Option<Episode>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Episode {
    /// The pace that was refused, and the one it fell to.
    ceiling: i64,
    low: i64,
    /// When it began, and what the bucket had stood still in all by then.
    began_at: Micros,
    began_paused: Micros,
    /// The last refusal; the first success after it.
    since: Micros,
    is_open: bool,
    patience_us: Micros,
}

impl Ease {
    /// For a policy whose longest interval is this, in microseconds. Less than a second counts as
    /// one, more than a day as a day.
    #[must_use]
    pub fn new(window_us: Micros) -> Self {
        Self { window_us: window_us.clamp(WINDOW_LEAST_US, WINDOW_MOST_US), episode: None }
    }

    /// A call was refused at `at`, and no limit was told. `paused_us` is for how long the bucket has been
    /// suspended in all; only its growth counts.
    pub fn refused(&mut self, at: Micros, paused_us: Micros) {
        let pace = self.pace(at);
        let first_patience = PATIENCE_LEAST_US.max(self.window_us.saturating_mul(PATIENCE_WINDOWS));
        let (part, ceiling, patience_us) = match &mut self.episode {
            Some(episode) if episode.is_open => {
                // Whatever was refused now was let go before the last word, or went to find out.
                episode.since = episode.since.max(at);
                return;
            }
            Some(episode) => {
                let span = (at - episode.began_at).max(1);
                let ran = span - (paused_us - episode.began_paused).clamp(0, span);
                let part = i64::try_from(i128::from(ran) * i128::from(WHOLE) / i128::from(span));
                let most = PATIENCE_MOST_US.max(first_patience);
                let was_beyond = at - episode.since >= episode.patience_us;
                let patience = episode.patience_us.saturating_mul(if was_beyond { 2 } else { 1 });
                // A window may still be full of what went before the pace fell: too much for now, and
                // no word on what the lower pace comes to.
                let quiet = at - episode.since;
                let ceiling = if quiet <= self.window_us { episode.ceiling } else { pace };
                (part.unwrap_or(WHOLE), ceiling, patience.min(most))
            }
            None => (WHOLE, pace, first_patience),
        };
        let low = scaled(pace, part.clamp(FALL_MOST, FALL_LEAST)).max(FLOOR);
        self.episode = Some(Episode {
            ceiling,
            low,
            began_at: at,
            began_paused: paused_us,
            since: at,
            is_open: true,
            patience_us,
        });
    }

    /// Somebody else has brought the pace down at `at`, to so many millionths of the policy's: what it
    /// was at before is what was refused. `paused_us` as of [`refused`](Self::refused). Its own falls
    /// are passed over.
    pub fn fell(&mut self, from: i64, to: i64, at: Micros, paused_us: Micros) {
        let first_patience = PATIENCE_LEAST_US.max(self.window_us.saturating_mul(PATIENCE_WINDOWS));
        let (ceiling, patience_us) = match &self.episode {
            Some(episode)
                if (episode.low - to).abs() < STEP && at - episode.since < self.window_us =>
            {
                return;
            }
            Some(episode) if at - episode.since <= self.window_us => {
                (episode.ceiling, episode.patience_us)
            }
            Some(episode) => (from, episode.patience_us),
            None => (from, first_patience),
        };
        self.episode = Some(Episode {
            ceiling,
            low: to.clamp(FLOOR, WHOLE),
            began_at: at,
            began_paused: paused_us,
            since: at,
            is_open: true,
            patience_us,
        });
    }

    /// A call that went out after the last refusal passed at `at`.
    pub fn passed(&mut self, at: Micros) {
        if let Some(episode) = &mut self.episode
            && episode.is_open
        {
            episode.is_open = false;
            episode.since = episode.since.max(at);
        }
    }

    /// The pace at `now`, in millionths of the policy's: [`FLOOR`] to [`WHOLE`].
    #[must_use]
    pub fn pace(&self, now: Micros) -> i64 {
        let Some(Episode { ceiling, low, since, is_open, patience_us, .. }) = self.episode else {
            return WHOLE;
        };
        let quiet = (now - since).max(0);
        let hold = self.window_us * HOLD_WINDOWS;
        if is_open || quiet <= hold {
            return low;
        }
        let climb = self.window_us * CLIMB_WINDOWS;
        let below = scaled(ceiling, BELOW).max(low);
        if quiet < patience_us {
            let climbed = i128::from(low) * i128::from(quiet - hold) / i128::from(climb);
            return below.min(low.saturating_add(i64::try_from(climbed).unwrap_or(WHOLE)));
        }
        let mut pace = below;
        // From the floor to the whole it takes 209 steps.
        for _ in 0..((quiet - patience_us) / self.window_us).min(256) {
            pace = (pace + scaled(pace, BEYOND)).min(WHOLE);
        }
        pace
    }

    /// Whether it holds the bucket below its policy's pace.
    #[must_use]
    pub fn is_easing(&self, now: Micros) -> bool {
        self.pace(now) < WHOLE
    }
}

/// So many millionths of it.
fn scaled(pace: i64, millionths: i64) -> i64 {
    pace * millionths / WHOLE
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Micros = 1_000_000;

    #[test]
    fn a_refusal_lowers_the_pace_and_it_climbs_back_to_just_below_what_was_refused() {
        let mut ease = Ease::new(5 * S);
        assert_eq!((ease.pace(0), ease.is_easing(0)), (WHOLE, false));
        ease.refused(0, 0);
        // In flight when it was heard, and a call that went to find out.
        ease.refused(20_000, 0);
        ease.refused(2 * S, S);
        ease.passed(4 * S);
        for (second, pace) in
            [(4, 800_000), (14, 800_000), (16, 864_000), (19, 950_000), (603, 950_000)]
        {
            assert_eq!(ease.pace(second * S), pace, "after {second} s");
        }
        // Ten minutes after: a fiftieth each window.
        assert_eq!(ease.pace(604 * S), 950_000);
        assert_eq!(ease.pace(609 * S), 969_000);
        assert_eq!(ease.pace(700 * S), WHOLE);
    }

    #[test]
    fn it_falls_to_the_part_of_the_time_in_which_it_was_let_run() {
        for (paused_s, low) in [(0, 640_000), (3, 560_000), (4, 480_000), (9, 400_000)] {
            let mut ease = Ease::new(5 * S);
            ease.refused(0, 0);
            ease.passed(S);
            ease.refused(10 * S, paused_s * S);
            assert_eq!(ease.pace(10 * S), low, "{paused_s}");
        }
    }

    #[test]
    fn refused_within_a_window_it_falls_again_and_climbs_back_to_the_same_ceiling() {
        let climbed = |again: Micros| {
            let mut ease = Ease::new(5 * S);
            ease.refused(0, 0);
            ease.passed(S);
            ease.refused(again, 0);
            ease.passed(again);
            (ease.pace(again), ease.pace(100 * S))
        };
        assert_eq!(climbed(6 * S), (640_000, 950_000));
        assert_eq!(climbed(6 * S + 1), (640_000, 760_000));
    }

    #[test]
    fn who_hears_of_a_fall_goes_on_as_who_was_refused() {
        let (mut one, mut other) = (Ease::new(5 * S), Ease::new(5 * S));
        one.refused(0, 0);
        other.fell(WHOLE, one.pace(0), 100_000, 0);
        // Its own fall is no news to it.
        one.fell(WHOLE, one.pace(0) - 1_000, 200_000, 0);
        for ease in [&mut one, &mut other] {
            ease.passed(4 * S);
            assert_eq!(
                [4, 14, 16, 19, 603, 700].map(|at| ease.pace(at * S)),
                [800_000, 800_000, 864_000, 950_000, 950_000, WHOLE]
            );
        }
        // Who comes later knows no ceiling, and stays until its patience is over.
        let mut late = Ease::new(5 * S);
        late.fell(640_000, 640_000, 0, 0);
        late.passed(S);
        assert_eq!([1, 500].map(|at| late.pace(at * S)), [640_000, 640_000]);
        assert!(late.pace(700 * S) > 640_000);
    }

    #[test]
    fn c18_it_stays_within_its_bounds_and_always_comes_back() {
        let mut ease = Ease::new(60 * S);
        let mut rng = fastrand::Rng::with_seed(18);
        let (mut now, mut paused) = (0, 0);
        for _ in 0..20_000 {
            now += rng.i64(0..400 * S);
            paused += rng.i64(0..10 * S);
            match rng.u8(0..3) {
                0 => ease.refused(now, paused),
                1 => ease.passed(now),
                _ => {}
            }
            assert!((FLOOR..=WHOLE).contains(&ease.pace(now)));
        }
        ease.passed(now);
        // At its most patient: a day, and then some steps of a window.
        assert_eq!(ease.pace(now + PATIENCE_MOST_US + 256 * 60 * S), WHOLE);
    }

    #[test]
    fn the_pace_never_falls_while_nothing_is_refused() {
        for window in [1, 5 * S, 3_600 * S, 30 * 86_400 * S] {
            let mut ease = Ease::new(window);
            ease.refused(7, 0);
            ease.passed(9);
            let mut before = 0;
            for at in (0..4_000).map(|step| step * 60 * S) {
                let pace = ease.pace(at);
                assert!(pace >= before, "{window}: {pace} after {before}");
                before = pace;
            }
        }
    }
}
