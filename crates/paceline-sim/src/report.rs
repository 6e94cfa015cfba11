//! What came of a run, and the recorder that a run feeds.

mod recorder;

use paceline_core::Micros;
use serde::Serialize;

pub use self::recorder::Recorder;

/// What came of a run. Moments are microseconds since it began.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The policy the fleet held to.
    pub policy: String,
    /// The provider, as it is written.
    pub provider: String,
    /// The provider's limit, in each of its intervals.
    pub limit: u32,
    /// The provider's interval.
    pub interval_us: Micros,
    /// The seed that gives this run again.
    pub seed: u64,
    /// Processes.
    pub processes: usize,
    /// Callers in each.
    pub callers: usize,
    /// How long the run lasted.
    pub simulated_us: Micros,
    /// From when on the share is measured.
    pub measured_from_us: Micros,
    /// Calls that reached the provider.
    pub calls: u64,
    /// Those it refused (429).
    pub refused: u64,
    /// Accepted calls of what the limit allows, over the time measured. A little above 1 where a
    /// short run begins with a burst, or cuts a window of the provider's.
    pub share: f64,
    /// What callers waited for their permits.
    pub waits: Waits,
    /// What the fleet asked of the store.
    pub store_operations: u64,
    /// The same for each call that reached the provider; 0 without calls.
    pub operations_per_call: f64,
    /// Jain's index over the calls of each process: 1 where all made as many, 1/processes where
    /// one made all.
    pub fairness: f64,
    /// Calls of the process that made fewest.
    pub fewest: u64,
    /// Calls of the process that made most.
    pub most: u64,
    /// How long a bin is.
    pub bin_us: Micros,
    /// What the provider saw, bin by bin, without gaps.
    pub bins: Vec<Bin>,
}

/// Waits by percentile, in microseconds; 0 without calls. Each is a wait that happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Waits {
    /// Half of the calls waited no longer.
    pub p50_us: Micros,
    /// Nine of ten.
    pub p90_us: Micros,
    /// 99 of a hundred.
    pub p99_us: Micros,
    /// The longest.
    pub max_us: Micros,
}

/// What the provider saw in one span of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Bin {
    /// When the span begins.
    pub from_us: Micros,
    /// Calls that passed.
    pub accepted: u64,
    /// Calls that did not.
    pub refused: u64,
}

impl Report {
    /// What the provider's limit allows in a span.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "for figures, not for decisions")]
    pub fn allowed_in(&self, span_us: Micros) -> f64 {
        f64::from(self.limit) * span_us as f64 / self.interval_us as f64
    }
}
