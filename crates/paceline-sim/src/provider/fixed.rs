//! A fixed window on the provider's own clock. Nobody outside knows where its windows begin.

use paceline_core::Micros;

#[derive(Debug, Clone)]
pub(super) struct Fixed {
    limit: u32,
    interval_us: Micros,
    age_us: Micros,
    /// The present window's number, and the calls in it.
    window: Micros,
    count: u32,
}

impl Fixed {
    pub(super) fn new(limit: u32, interval_us: Micros, age_us: Micros) -> Self {
        Self { limit, interval_us, age_us, window: Micros::MIN, count: 0 }
    }

    pub(super) fn wait(&mut self, at: Micros) -> Micros {
        let age = at + self.age_us;
        let window = age.div_euclid(self.interval_us);
        if window > self.window {
            (self.window, self.count) = (window, 0);
        }
        if self.count < self.limit {
            0
        } else {
            self.interval_us - age.rem_euclid(self.interval_us)
        }
    }

    pub(super) fn take(&mut self) {
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use crate::provider::testing::{S, table};

    #[test]
    fn a_fixed_window_lets_the_limit_pass_in_each_of_its_own() {
        let rows = [
            (100, Ok(())),
            (999_000, Ok(())),
            (999_999, Err(1)),
            (S, Ok(())),
            (S, Ok(())),
            (S + 1, Err(999_999)),
            (7 * S + 5, Ok(())),
        ];
        table("fixed 2/s", 0, &rows);
        // Nobody outside knows where its windows begin.
        let rows = [(0, Ok(())), (599_999, Err(1)), (600_000, Ok(())), (S, Err(600_000))];
        table("fixed 1/s", 400_000, &rows);
    }
}
