//! TO BE REPLACED by the fleet that runs the production driver: here is only its face, so that what
//! stands around it can be run. Nobody waits and nobody asks a store; the policy's first quota is
//! sent evenly, in turn by each process.

use paceline_core::Micros;

use crate::{Provider, Recorder, Report, Scenario};

/// Why a run came to no report.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SimulationError(String);

/// Runs a scenario to its end.
///
/// # Errors
/// When the scenario has no process, no caller or no time.
pub fn simulate(scenario: &Scenario) -> Result<Report, SimulationError> {
    if scenario.processes == 0 || scenario.callers == 0 || scenario.duration_us <= 0 {
        return Err(SimulationError("a run needs a process, a caller and some time".to_owned()));
    }
    let age_us = fastrand::Rng::with_seed(scenario.seed).i64(0..scenario.provider.interval_us());
    let mut provider = Provider::new(&scenario.provider, age_us);
    let mut recorder = Recorder::new(scenario);
    let quota = scenario.policy.quotas()[0];
    let interval_us = Micros::try_from(quota.interval().as_micros()).unwrap_or(Micros::MAX);
    for call in 0.. {
        let at = match i64::from(quota.limit()) {
            0 => scenario.duration_us,
            limit => call * interval_us / limit,
        };
        if at >= scenario.duration_us {
            break;
        }
        let process = usize::try_from(call).unwrap_or(0) % scenario.processes;
        recorder.call(process, 0, at, provider.arrive(at).is_ok());
    }
    Ok(recorder.finish(scenario.duration_us))
}
