//! A leaky meter that refuses above its capacity: each call fills it by one, and it loses one whole
//! call at each of its ticks, `limit` of them in an interval. A token bucket gives back parts of a
//! token; this one does not, and when its next tick comes nobody outside knows.

use paceline_core::Micros;

use super::scaled_up;

#[derive(Debug, Clone)]
pub(super) struct Leaky {
    limit: u32,
    interval_us: Micros,
    capacity: i64,
    age_us: Micros,
    level: i64,
    /// How many ticks there had been when the level was last looked at.
    ticks: i64,
}

impl Leaky {
    pub(super) fn new(limit: u32, interval_us: Micros, capacity: u32, age_us: Micros) -> Self {
        let capacity = i64::from(capacity);
        Self { limit, interval_us, capacity, age_us, level: 0, ticks: 0 }
    }

    pub(super) fn wait(&mut self, at: Micros) -> Micros {
        let age = at + self.age_us;
        let ticks = i128::from(age) * i128::from(self.limit) / i128::from(self.interval_us);
        let ticks = i64::try_from(ticks).unwrap_or(i64::MAX);
        self.level = (self.level - (ticks - self.ticks)).max(0);
        self.ticks = ticks;
        let missing = self.level + 1 - self.capacity;
        if missing <= 0 {
            return 0;
        }
        scaled_up(ticks.saturating_add(missing), self.interval_us, i64::from(self.limit)) - age
    }

    pub(super) fn take(&mut self) {
        self.level += 1;
    }
}

#[cfg(test)]
mod tests {
    use crate::provider::testing::{S, table};

    #[test]
    fn a_meter_holds_its_capacity_and_loses_one_at_each_tick() {
        let rows = [
            (10, Ok(())),
            (10, Ok(())),
            (10, Err(99_990)),
            (99_999, Err(1)),
            (100_000, Ok(())),
            (199_999, Err(1)),
            (200_000, Ok(())),
            (9 * S, Ok(())),
            (9 * S, Ok(())),
            (9 * S, Err(100_000)),
        ];
        table("leaky 10/s capacity 2", 0, &rows);
        // Nobody outside knows when it ticks.
        table(
            "leaky 1/s capacity 1",
            400_000,
            &[(0, Ok(())), (1, Err(599_999)), (600_000, Ok(()))],
        );
    }

    #[test]
    fn ticks_that_fall_between_microseconds_do_not_drift() {
        let rows = [
            (0, Ok(())),
            (0, Err(333_334)),
            (333_334, Ok(())),
            (333_334, Err(333_333)),
            (666_667, Ok(())),
            (666_667, Err(333_333)),
            (S, Ok(())),
        ];
        table("leaky 3/s capacity 1", 0, &rows);
    }
}
