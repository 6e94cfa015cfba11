//! At most so many calls under way at once. How long they take is told by whoever runs the
//! provider; what it tells a refused caller supposes that an answer takes the interval.

use std::collections::VecDeque;

use paceline_core::Micros;

#[derive(Debug, Clone)]
pub(super) struct Concurrency {
    limit: u32,
    answer_us: Micros,
    /// When those under way came.
    since: VecDeque<Micros>,
}

impl Concurrency {
    pub(super) fn new(limit: u32, answer_us: Micros) -> Self {
        Self { limit, answer_us, since: VecDeque::new() }
    }

    pub(super) fn wait(&mut self, at: Micros) -> Micros {
        match self.since.front() {
            // Until it is told, a call is under way, however long it should have taken.
            Some(oldest) if self.since.len() as u64 >= u64::from(self.limit) => {
                (oldest + self.answer_us - at).max(1)
            }
            _ => 0,
        }
    }

    pub(super) fn take(&mut self, at: Micros) {
        self.since.push_back(at);
    }

    pub(super) fn done(&mut self) {
        self.since.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use crate::provider::Provider;

    #[test]
    fn a_call_is_under_way_until_it_is_done() {
        let mut provider = Provider::new(&"concurrency 2/200ms".parse().unwrap(), 0);
        assert_eq!(provider.arrive(0), Ok(()));
        assert_eq!(provider.arrive(50), Ok(()));
        assert_eq!(provider.arrive(100), Err(199_900));
        // It takes longer than it should, and is still under way.
        assert_eq!(provider.arrive(300_000), Err(1));
        provider.done(400_000);
        assert_eq!(provider.arrive(400_000), Ok(()));
        assert!(provider.arrive(400_000).is_err());
        provider.done(400_000);
        provider.done(400_000);
        // Nothing is under way; one more end changes nothing.
        provider.done(400_000);
        assert_eq!(provider.arrive(400_000), Ok(()));
        assert_eq!((provider.accepted(), provider.refused()), (4, 3));
    }
}
