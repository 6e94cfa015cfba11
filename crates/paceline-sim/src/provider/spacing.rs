//! A smallest gap between accepted calls: the interval divided by the limit, rounded up to a whole
//! microsecond.

use paceline_core::Micros;

use super::scaled_up;

#[derive(Debug, Clone)]
pub(super) struct Spacing {
    gap_us: Micros,
    /// When the next call may come.
    free_at: Micros,
}

impl Spacing {
    pub(super) fn new(limit: u32, interval_us: Micros) -> Self {
        Self { gap_us: scaled_up(1, interval_us, i64::from(limit)), free_at: Micros::MIN }
    }

    pub(super) fn wait(&mut self, at: Micros) -> Micros {
        self.free_at.saturating_sub(at).max(0)
    }

    pub(super) fn take(&mut self, at: Micros) {
        self.free_at = at + self.gap_us;
    }
}

#[cfg(test)]
mod tests {
    use crate::provider::testing::{S, table};

    #[test]
    fn calls_closer_than_the_gap_are_refused_however_few_there_were() {
        let rows = [
            (0, Ok(())),
            (0, Err(200_000)),
            (199_999, Err(1)),
            (200_000, Ok(())),
            (350_000, Err(50_000)),
            (9 * S, Ok(())),
            (9 * S, Err(200_000)),
        ];
        table("spacing 5/s", 0, &rows);
        table("spacing 3/s", 0, &[(0, Ok(())), (333_333, Err(1)), (333_334, Ok(()))]);
    }
}
