//! What goes wrong in a run, and what operators do.

use std::sync::Arc;

use paceline_core::{Micros, Policy};

use crate::Scenario;

/// How much goes wrong. Nothing unless said.
///
/// ```
/// use paceline_sim::{Faults, Scenario, simulate};
///
/// let scenario = Scenario {
///     faults: Faults { kills: 5, lost_replies: 0.01, ..Faults::default() },
///     ..Scenario::new("strict 50/s".parse()?, "sliding 50/s".parse()?)
/// };
/// assert_eq!(simulate(&scenario)?.refused, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Faults {
    /// Part of the store's answers that never arrive.
    pub lost_replies: f64,
    /// Part of the words of a change that never arrive.
    pub lost_words: f64,
    /// Times in the run that a process is killed and starts anew a second later.
    pub kills: usize,
    /// Times that a process is stopped for up to two seconds.
    pub stops: usize,
    /// Times that the store's clock steps, by up to ten seconds either way.
    pub clock_steps: usize,
    /// How much faster than true time the store's clock runs, in millionths; below 0, slower.
    pub clock_drift_ppm: Micros,
    /// Times that somebody suspends the bucket for up to three seconds; half are resumed.
    pub suspensions: usize,
    /// How long the others wait for one call that goes first at the end of those suspensions; 0 where
    /// none does.
    pub patience_us: Micros,
    /// Policies set one after the other, at moments spread over the run.
    pub sets: Vec<Policy>,
    /// Times that a caller stops waiting.
    pub cancels: usize,
}

/// One thing that goes wrong.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    Kill { process: usize },
    Stop { process: usize, for_us: Micros },
    ClockStep { by_us: Micros },
    Suspend { for_us: Micros },
    Resume,
    Set { policy: Arc<Policy> },
    Cancel { process: usize, caller: usize },
}

/// When what goes wrong, in microseconds from the start.
pub(crate) fn schedule(scenario: &Scenario, rng: &mut fastrand::Rng) -> Vec<(Micros, Fault)> {
    let Faults { kills, stops, clock_steps, suspensions, cancels, .. } = scenario.faults;
    let mut schedule = Vec::new();
    let mut add =
        |times: usize, rng: &mut fastrand::Rng, one: &dyn Fn(&mut fastrand::Rng) -> Fault| {
            for _ in 0..times {
                let at = rng.i64(0..scenario.duration_us.max(1));
                schedule.push((at, one(rng)));
            }
        };
    let process = |rng: &mut fastrand::Rng| rng.usize(0..scenario.processes);
    add(kills, rng, &|rng| Fault::Kill { process: process(rng) });
    add(stops, rng, &|rng| {
        let long = rng.bool();
        let for_us = rng.i64(1_000..if long { 2_000_000 } else { 90_000 });
        Fault::Stop { process: process(rng), for_us }
    });
    add(clock_steps, rng, &|rng| {
        // As a clock is set right, or as another server's clock is.
        let most_us = if rng.bool() { 10_000_000 } else { 3_600_000_000 };
        Fault::ClockStep { by_us: rng.i64(-most_us..most_us) }
    });
    add(suspensions, rng, &|rng| Fault::Suspend { for_us: rng.i64(1_000..3_000_000) });
    add(suspensions / 2, rng, &|_| Fault::Resume);
    add(cancels, rng, &|rng| Fault::Cancel {
        process: process(rng),
        caller: rng.usize(0..scenario.callers),
    });
    for (number, policy) in (1..).zip(&scenario.faults.sets) {
        let parts = scenario.faults.sets.len() as Micros + 1;
        let at = scenario.duration_us / parts * number;
        schedule.push((at, Fault::Set { policy: Arc::new(policy.clone()) }));
    }
    schedule
}
