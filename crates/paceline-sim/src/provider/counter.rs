//! A sliding window reckoned from two counts: this aligned window's calls, and the last one's by
//! the share of it that a window ending now still covers.
//!
//! `weighted = last * (interval - elapsed) / interval`. Some compare `weighted + present` with
//! the limit before they add the call, or round the weighted count down, which is the same: the
//! call passes below the limit. Others compare the sum after they have added it: then it passes
//! only where a whole call still fits, and a fleet that paces exactly at the limit does not pass.

use paceline_core::Micros;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rounding {
    Down,
    Up,
}

#[derive(Debug, Clone)]
pub(super) struct Counter {
    limit: u32,
    interval_us: Micros,
    age_us: Micros,
    rounding: Rounding,
    /// The present window's number, its calls, and those of the window before.
    window: Micros,
    present: u32,
    last: u32,
}

impl Counter {
    pub(super) fn new(limit: u32, interval_us: Micros, age_us: Micros, rounding: Rounding) -> Self {
        Self { limit, interval_us, age_us, rounding, window: 0, present: 0, last: 0 }
    }

    pub(super) fn wait(&mut self, at: Micros) -> Micros {
        let age = at + self.age_us;
        let window = age.div_euclid(self.interval_us);
        match window - self.window {
            0 => {}
            1 => (self.last, self.present) = (self.present, 0),
            _ => (self.last, self.present) = (0, 0),
        }
        self.window = window;
        let elapsed = age.rem_euclid(self.interval_us);
        // In this window, else in the next, where this one is the last, else in the one after,
        // where both are forgotten.
        if let Some(room_at) = self.room_at(self.last, self.present) {
            return (room_at - elapsed).max(0);
        }
        let next = self.interval_us - elapsed;
        next + self.room_at(self.present, 0).unwrap_or(self.interval_us)
    }

    pub(super) fn take(&mut self) {
        self.present += 1;
    }

    /// How far into a window with these counts there is room for a call, if ever.
    fn room_at(&self, last: u32, present: u32) -> Option<Micros> {
        let interval = i128::from(self.interval_us);
        let room = (i128::from(self.limit) - i128::from(present)) * interval;
        // last * (interval - elapsed) may be at most this.
        let weighted_max = match self.rounding {
            Rounding::Down => room - 1,
            Rounding::Up => room - interval,
        };
        if weighted_max < 0 {
            return None;
        }
        if last == 0 {
            return Some(0);
        }
        let covered_max = (weighted_max / i128::from(last)).min(interval);
        // Less than one microsecond still covered is the next window.
        (covered_max > 0).then(|| Micros::try_from(interval - covered_max).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use crate::provider::testing::{S, table};

    #[test]
    fn the_last_window_weighs_by_what_is_still_covered_of_it() {
        let rows = [
            (0, Ok(())),
            (0, Ok(())),
            (0, Ok(())),
            (0, Ok(())),
            // The next window; all four still weigh in full at its beginning.
            (900_000, Err(100_001)),
            (S, Err(1)),
            (S + 1, Ok(())),
            // Three and a little more weigh: 4 * 0.75 + 1 is not below 4.
            (1_250_000, Err(1)),
            (1_250_001, Ok(())),
            // Less than one weighs beside two, then three.
            (1_750_001, Ok(())),
            (1_750_001, Ok(())),
            (1_750_001, Err(250_000)),
            (2 * S, Err(1)),
            (2 * S + 1, Ok(())),
            (2 * S + 1, Err(250_000)),
            // Two windows later nothing weighs.
            (4 * S, Ok(())),
            (4 * S, Ok(())),
            (4 * S, Ok(())),
            (4 * S, Ok(())),
            (4 * S, Err(1_000_001)),
        ];
        table("counter 4/s", 0, &rows);
        // The same where the first window began earlier.
        table("counter 1/s", 400_000, &[(0, Ok(())), (0, Err(600_001)), (600_001, Ok(()))]);
    }

    #[test]
    fn rounded_up_a_whole_call_must_fit() {
        let rows = [
            (0, Ok(())),
            (0, Ok(())),
            (0, Ok(())),
            (0, Ok(())),
            (0, Err(1_250_000)),
            (1_249_999, Err(1)),
            (1_250_000, Ok(())),
            (1_500_000, Ok(())),
            (1_500_000, Err(250_000)),
        ];
        table("counter-up 4/s", 0, &rows);
        // A limit of one: only once the last call's window is no longer the last.
        table("counter-up 1/s", 0, &[(0, Ok(())), (0, Err(2_000_000)), (2 * S, Ok(()))]);
    }
}
