//! A token bucket: each call takes a token, and tokens come back evenly.

use paceline_core::Micros;

#[derive(Debug, Clone)]
pub(super) struct Bucket {
    limit: u32,
    interval_us: Micros,
    /// A token is `interval_us` units; each microsecond earns `limit`.
    units_max: i128,
    units: i128,
    at: Micros,
}

impl Bucket {
    pub(super) fn new(limit: u32, interval_us: Micros, capacity: u32) -> Self {
        let units_max = i128::from(capacity) * i128::from(interval_us);
        Self { limit, interval_us, units_max, units: units_max, at: 0 }
    }

    pub(super) fn wait(&mut self, at: Micros) -> Micros {
        let earned = i128::from(at - self.at) * i128::from(self.limit);
        self.units = (self.units + earned).min(self.units_max);
        self.at = at;
        let missing = (i128::from(self.interval_us) - self.units).max(0);
        let limit = i128::from(self.limit);
        Micros::try_from((missing + limit - 1) / limit).unwrap_or(Micros::MAX)
    }

    pub(super) fn take(&mut self) {
        self.units -= i128::from(self.interval_us);
    }
}

#[cfg(test)]
mod tests {
    use crate::provider::testing::{S, table};

    #[test]
    fn a_bucket_lets_its_size_pass_at_once_and_then_what_it_refills() {
        let rows = [
            (0, Ok(())),
            (0, Ok(())),
            (0, Err(100_000)),
            (99_999, Err(1)),
            (100_000, Ok(())),
            (100_000, Err(100_000)),
            (9 * S, Ok(())),
            (9 * S, Ok(())),
            (9 * S, Err(100_000)),
        ];
        table("bucket 10/s capacity 2", 0, &rows);
    }

    #[test]
    fn a_rate_that_is_no_whole_number_of_microseconds_is_kept_exactly() {
        let rows = [
            (0, Ok(())),
            (0, Ok(())),
            (0, Err(333_334)),
            (333_334, Ok(())),
            // Two thirds of a microsecond's tokens were left over.
            (333_334, Err(333_333)),
            (666_667, Ok(())),
            (666_667, Err(333_333)),
            (S, Ok(())),
        ];
        table("bucket 3/s capacity 2", 0, &rows);
    }
}
