//! Random scenarios, one a seed: all policies before all providers, with everything that goes
//! wrong. A seed that fails is a bug report.

use paceline_core::{Micros, Policy, PolicyError};

use crate::{
    Demand, Faults, ProviderError, ProviderSpec, Report, Scenario, SimulationError, StoreKind,
    simulate,
};

/// Policies and the providers before which they promise that nothing is refused; none for shapes
/// that promise it before nobody. The guards cover the scenarios' jitter of up to 50 ms.
const PAIRS: [(&str, &[&str]); 8] = [
    ("strict 50/s", &["sliding 50/s", "fixed 50/s", "first 50/s", "counter 50/s"]),
    (
        "strict 50/s",
        &["bucket 50/s capacity 5", "leaky 50/s capacity 5", "bucket 50/s capacity 50"],
    ),
    ("strict 5/s", &["sliding 5/s", "counter 5/s", "fixed 5/s ban 30s", "bucket 5/s capacity 2"]),
    ("strict 100/m", &["sliding 100/m ban 1m", "first 100/m", "leaky 100/m capacity 2"]),
    ("strict 1/200ms", &["spacing 5/s", "bucket 5/s capacity 1"]),
    ("window 200/2s guard 60ms", &["sliding 200/2s", "fixed 200/2s", "first 200/2s"]),
    ("50/s burst 10, window 1000/m guard 60ms", &["sliding 1000/m"]),
    ("20/s burst 40, 600/m", &[]),
];

/// Why a seed failed.
#[derive(Debug, thiserror::Error)]
pub enum SoakError {
    /// A property did not hold.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
    /// Calls were refused where the policy promises that none is.
    #[error("seed {seed}: {refused} calls of {policy:?} refused by {provider:?}")]
    Refused {
        /// The seed.
        seed: u64,
        /// How many.
        refused: u64,
        /// By this provider.
        provider: String,
        /// Under this policy.
        policy: String,
    },
    /// Much less of the quota was used than there was, and nothing had gone wrong.
    #[error("seed {seed}: {policy:?} used {share:.3} of what {provider:?} allows")]
    Idle {
        /// The seed.
        seed: u64,
        /// The part that was used.
        share: f64,
        /// Before this provider.
        provider: String,
        /// Under this policy.
        policy: String,
    },
    /// A scenario of ours does not parse.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The same.
    #[error(transparent)]
    Provider(#[from] ProviderError),
}

/// The scenario of a seed, and whether its provider must refuse nothing.
///
/// # Errors
/// None but for a mistake in this file.
pub fn scenario(seed: u64) -> Result<(Scenario, bool), SoakError> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let (policy, providers) = PAIRS[rng.usize(0..PAIRS.len())];
    let promised = !providers.is_empty();
    let provider = if promised { providers[rng.usize(0..providers.len())] } else { "sliding 20/s" };
    let policy: Policy = policy.parse()?;
    let provider: ProviderSpec = provider.parse()?;
    let seconds = rng.i64(5..=30);
    // Half of the runs go well.
    let mut some = |most: usize| if rng.bool() { rng.usize(0..=most) } else { 0 };
    let troubles = some(1) > 0;
    let faults = if troubles {
        Faults {
            kills: some(8),
            stops: some(6),
            clock_steps: some(4),
            clock_drift_ppm: some(1_000) as i64 - some(1_000) as i64,
            suspensions: some(6),
            patience_us: some(4_000) as i64 * 1_000,
            cancels: some(300),
            lost_replies: some(30) as f64 / 1_000.0,
            lost_words: some(100) as f64 / 100.0,
            sets: Vec::new(),
        }
    } else {
        Faults::default()
    };
    let sets = if troubles && rng.u32(0..4) == 0 {
        vec!["7/s burst 3".parse()?, policy.clone(), "0/s".parse()?, policy.clone()]
    } else {
        Vec::new()
    };
    let late = faults.stops > 0 || faults.lost_replies > 0.0;
    // A change that is not known yet bunches calls for up to 100 ms, and a clock that jumps forward
    // brings tokens that the provider's has not.
    let clock = faults.clock_steps > 0 || faults.clock_drift_ppm != 0;
    let changes = faults.suspensions > 0 || clock || !sets.is_empty();
    let promised = promised && !late && !changes;
    let demand = match rng.u32(0..4) {
        0 => Demand::OnOff { on_us: rng.i64(100_000..3_000_000), off_us: rng.i64(1..3_000_000) },
        1 => Demand::Rate { calls_per_second_each: rng.f64() * 3.0 + 0.01 },
        _ => Demand::Saturated,
    };
    let scenario = Scenario {
        processes: rng.usize(1..=20),
        callers: rng.usize(1..=30),
        demand,
        duration_us: seconds * 1_000_000,
        jitter_us: rng.i64(0..=50_000),
        delay_us: rng.i64(20..=3_000),
        answer_us: rng.i64(0..=50_000),
        store: if rng.bool() { StoreKind::Redis } else { StoreKind::Host },
        lookahead_us: [0, 100_000, 1_000_000, 1_000_000, 3_000_000][rng.usize(0..5)],
        deadline_us: if rng.u32(0..4) == 0 { Some(rng.i64(0..2_000_000)) } else { None },
        cost_max: if promised || policy.cost_max() < 5 { 1 } else { rng.i64(1..=5) },
        faults: Faults { sets, ..faults },
        seed,
        ..Scenario::new(policy, provider)
    };
    Ok((scenario, promised))
}

/// Runs the scenario of a seed.
///
/// # Errors
/// When a property did not hold or a promise was not kept.
pub fn soak(seed: u64) -> Result<Report, SoakError> {
    let (scenario, promised) = scenario(seed)?;
    let report = simulate(&scenario)?;
    let (policy, provider) = (report.policy.clone(), report.provider.clone());
    if promised && report.refused > 0 {
        return Err(SoakError::Refused { seed, refused: report.refused, provider, policy });
    }
    // Who always wants more and is not disturbed uses what there is. Few callers that wait for slow
    // answers want less than that.
    let each_us = scenario.jitter_us + scenario.answer_us + 4 * scenario.delay_us + 5_000;
    let callers = (scenario.processes * scenario.callers) as Micros;
    #[allow(clippy::cast_precision_loss, reason = "a bound")]
    let wanted = callers as f64 * 1e6 / each_us as f64 / report.allowed_in(1_000_000);
    let calm = scenario.faults == Faults::default() && scenario.deadline_us.is_none();
    let whole = promised && calm && scenario.demand == Demand::Saturated && wanted > 4.0;
    if whole && scenario.lookahead_us >= 1_000_000 && report.share < 0.75 {
        return Err(SoakError::Idle { seed, share: report.share, provider, policy });
    }
    Ok(report)
}
