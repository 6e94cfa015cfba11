//! What is to be simulated: a policy, a provider, a fleet, and the world between them.

use paceline_core::{Micros, Policy};

use crate::{Demand, Faults, ProviderSpec};

/// One run to come. Equal scenarios give equal reports: all that is random comes from the seed.
///
/// ```
/// use paceline_sim::{Demand, Scenario};
///
/// let scenario = Scenario {
///     processes: 50,
///     demand: Demand::OnOff { on_us: 5_000_000, off_us: 20_000_000 },
///     ..Scenario::new("strict 100/m".parse()?, "sliding 100/m".parse()?)
/// };
/// assert_eq!(scenario.callers, 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// What the fleet's bucket holds to.
    pub policy: Policy,
    /// What its calls meet.
    pub provider: ProviderSpec,
    /// Processes that share the bucket.
    pub processes: usize,
    /// Callers in each process, with one call each at a time.
    pub callers: usize,
    /// Callers in the first process, where it has a crowd of its own.
    pub crowd: Option<usize>,
    /// When they want to call.
    pub demand: Demand,
    /// How long it runs, in microseconds of virtual time.
    pub duration_us: Micros,
    /// A call's way to the provider takes between none and this many microseconds, uniformly.
    pub jitter_us: Micros,
    /// The way to the store takes this many microseconds, and the way back as many; less than
    /// [`TIMEOUT_US`](crate::TIMEOUT_US) together, else no answer ever comes in time.
    pub delay_us: Micros,
    /// What the provider takes to answer, at least, in microseconds.
    pub answer_us: Micros,
    /// Where the bucket lives.
    pub store: StoreKind,
    /// How far ahead processes book, in microseconds.
    pub lookahead_us: Micros,
    /// How long a caller waits at most, in microseconds; then it comes again when it was told to.
    pub deadline_us: Option<Micros>,
    /// Calls cost from 1 to this many tokens, at random.
    pub cost_max: i64,
    /// Whether callers tell when the answer to a call has come, so that windows count from it.
    pub answers: bool,
    /// What goes wrong.
    pub faults: Faults,
    /// What all that is random comes from.
    pub seed: u64,
}

/// Where the fleet's bucket lives, as far as it makes a difference to those who wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoreKind {
    /// A server, which tells processes of a change.
    Redis,
    /// Files on one machine; processes look for changes.
    Host,
}

impl Scenario {
    /// Callers in a process.
    pub(crate) fn callers_of(&self, process: usize) -> usize {
        self.crowd.filter(|_| process == 0).unwrap_or(self.callers)
    }

    /// Eight processes of 20 callers that always want more, for a minute, before this provider:
    /// up to 10 ms to the provider, 200 us to a Redis, an answer at once, seed 0.
    #[must_use]
    pub fn new(policy: Policy, provider: ProviderSpec) -> Self {
        Self {
            policy,
            provider,
            processes: 8,
            callers: 20,
            crowd: None,
            demand: Demand::Saturated,
            duration_us: 60_000_000,
            jitter_us: 10_000,
            delay_us: 200,
            answer_us: 0,
            store: StoreKind::Redis,
            lookahead_us: 1_000_000,
            deadline_us: None,
            cost_max: 1,
            answers: false,
            faults: Faults::default(),
            seed: 0,
        }
    }
}
