//! A fixed window that begins with the first call after the last one ended, as a counter does that
//! is made with an expiry when it is missing.

use paceline_core::Micros;

#[derive(Debug, Clone)]
pub(super) struct First {
    limit: u32,
    interval_us: Micros,
    /// When the present window began, if there is one, and the calls in it.
    since: Option<Micros>,
    count: u32,
}

impl First {
    pub(super) fn new(limit: u32, interval_us: Micros) -> Self {
        Self { limit, interval_us, since: None, count: 0 }
    }

    pub(super) fn wait(&mut self, at: Micros) -> Micros {
        let Some(since) = self.since else { return 0 };
        let left = since + self.interval_us - at;
        if left <= 0 {
            (self.since, self.count) = (None, 0);
            return 0;
        }
        if self.count < self.limit { 0 } else { left }
    }

    pub(super) fn take(&mut self, at: Micros) {
        self.since.get_or_insert(at);
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use crate::provider::testing::{S, table};

    #[test]
    fn a_window_begins_with_its_first_call() {
        let rows = [
            (300_000, Ok(())),
            (S, Ok(())),
            (S + 1, Err(299_999)),
            (1_299_999, Err(1)),
            // The next window begins when somebody calls, not where the last one ended.
            (1_800_000, Ok(())),
            (1_800_000, Ok(())),
            (2_300_000, Err(500_000)),
            (2_800_000, Ok(())),
        ];
        table("first 2/s", 0, &rows);
    }
}
