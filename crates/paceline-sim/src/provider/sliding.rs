//! An exact sliding window: the moments of the last interval's calls are kept.

use std::collections::VecDeque;

use paceline_core::Micros;

#[derive(Debug, Clone)]
pub(super) struct Sliding {
    limit: u32,
    interval_us: Micros,
    log: VecDeque<Micros>,
}

impl Sliding {
    pub(super) fn new(limit: u32, interval_us: Micros) -> Self {
        Self { limit, interval_us, log: VecDeque::new() }
    }

    pub(super) fn wait(&mut self, at: Micros) -> Micros {
        while self.log.front().is_some_and(|oldest| oldest + self.interval_us <= at) {
            self.log.pop_front();
        }
        match self.log.front() {
            Some(oldest) if self.log.len() as u64 >= u64::from(self.limit) => {
                oldest + self.interval_us - at
            }
            _ => 0,
        }
    }

    pub(super) fn take(&mut self, at: Micros) {
        self.log.push_back(at);
    }
}

#[cfg(test)]
mod tests {
    use crate::provider::testing::{S, table};

    #[test]
    fn a_sliding_window_lets_the_limit_pass_in_any_span() {
        let rows = [
            (0, Ok(())),
            (900_000, Ok(())),
            (900_001, Err(99_999)),
            (999_999, Err(1)),
            (S, Ok(())),
            (S + 1, Err(899_999)),
            (1_900_000, Ok(())),
        ];
        table("sliding 2/s", 0, &rows);
    }
}
