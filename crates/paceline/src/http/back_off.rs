//! How often each target of a bucket was refused in a row, in this process, for pauses that grow: a
//! retired name that is refused each time rests ever longer, and stops nobody else.

use std::collections::HashMap;
use std::time::Duration;

/// The first pause; it doubles up to the longest.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_LONGEST: Duration = Duration::from_secs(60);
/// Targets remembered. Beyond that all are forgotten, which is as if each had passed.
const TARGETS_MAX: usize = 256;

/// Of one bucket.
#[derive(Debug, Default)]
pub(crate) struct BackOffs {
    /// Refusals in a row by target.
    in_a_row: HashMap<String, u32>,
}

/// How far it has come with one refusal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Steps {
    /// Refusals of this target in a row, this one among them.
    in_a_row: u32,
}

impl BackOffs {
    pub(crate) fn refused(&mut self, target: &str) -> Steps {
        if self.in_a_row.len() >= TARGETS_MAX && !self.in_a_row.contains_key(target) {
            *self = Self::default();
        }
        let in_a_row = self.in_a_row.entry(target.to_owned()).or_default();
        *in_a_row = in_a_row.saturating_add(1);
        Steps { in_a_row: *in_a_row }
    }

    /// Whether nobody was refused since the last success of each.
    pub(crate) fn is_empty(&self) -> bool {
        self.in_a_row.is_empty()
    }

    pub(crate) fn passed(&mut self, target: &str) {
        self.in_a_row.remove(target);
    }
}

impl Steps {
    /// A pause that doubles with each refusal in a row, up to a minute and half as much in jitter.
    pub(crate) fn pause(self) -> Duration {
        self.grown(PAUSE_FIRST).min(PAUSE_LONGEST).mul_f64(1.0 + fastrand::f64() / 2.0)
    }

    /// A span doubled with each refusal in a row behind the first.
    pub(crate) fn grown(self, span: Duration) -> Duration {
        span.saturating_mul(1 << self.in_a_row.saturating_sub(1).min(16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_with_refusals_in_a_row_and_begin_anew_after_a_success() {
        let mut back_offs = BackOffs::default();
        for (times, least_s) in [(1, 1), (1, 2), (1, 4), (10, 60)] {
            for _ in 1..times {
                back_offs.refused("/a");
            }
            let pause = back_offs.refused("/a").pause();
            let least = Duration::from_secs(least_s);
            assert!(pause >= least && pause <= least.mul_f64(1.5), "{pause:?}");
        }
        back_offs.passed("/a");
        assert_eq!(back_offs.refused("/a"), Steps { in_a_row: 1 });
    }

    #[test]
    fn no_end_of_targets_is_remembered() {
        let mut back_offs = BackOffs::default();
        for target in 0..10_000 {
            back_offs.refused(&target.to_string());
        }
        assert!(back_offs.in_a_row.len() <= TARGETS_MAX);
    }
}
