//! The main job in one command: a strict provider, a fleet of worker processes that share one
//! bucket, and a report of whether the fleet obeyed.
//!
//! The provider lives in the parent and is the judge: each request tells it who calls, how long
//! the permit was waited for and what was asked of the store, so the report is made from what
//! arrived, not from what workers say of themselves.

mod client;
mod phase;
mod progress;
mod provider;
mod report;
pub(crate) mod worker;
mod workers;

use std::time::{Duration, Instant};

use paceline::{Limiter, Policy};
use paceline_sim::{Kind, ProviderError, ProviderSpec};

use self::phase::{Act, Phase};
use self::progress::Progress;
use self::provider::Provider;
use self::report::Report;
use self::workers::Workers;
use crate::exit::{Exit, Failure};
use crate::signal;

/// Calls a provider allows in each interval.
const LIMIT: u32 = 200;
const INTERVAL: Duration = Duration::from_secs(2);
/// The ways a provider may count here. One that asks for a smallest gap would need a pace far below
/// its limit behind a busy machine's jitter, and one that counts calls under way another limit.
pub(crate) const KINDS: [Kind; 6] =
    [Kind::Sliding, Kind::Fixed, Kind::First, Kind::Counter, Kind::Bucket, Kind::Leaky];
/// How long workers may take until each has made a call.
const START_MAX: Duration = Duration::from_secs(30);
/// How long one look at the fleet lasts.
const TICK: Duration = Duration::from_millis(100);

/// What is to be shown.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    pub(crate) processes: u16,
    pub(crate) callers: u16,
    pub(crate) span: Duration,
    /// Instead of the one that suits the provider.
    pub(crate) policy: Option<Policy>,
    /// How long one operation on the store may take, in the workers as here.
    pub(crate) timeout: Duration,
}

/// The policy a careful user would choose for a provider.
///
/// Calls that left in order may arrive closer together than they left, by as much as the slowest
/// is slower than the quickest. A guard of 100 ms makes up for that on a busy machine. For a
/// provider that counts windows the pace is even besides; one that holds a fifth of the limit is
/// given a burst smaller than that, by what refills in that time.
fn policy_for(kind: Kind, limit: u32) -> String {
    let interval = INTERVAL.as_secs();
    if kind.has_capacity() {
        format!("{limit}/{interval}s burst {}", LIMIT / 5 - LIMIT / 20)
    } else {
        format!("strict {limit}/{interval}s guard 100ms")
    }
}

/// What the provider is to this kind: one that holds calls holds a fifth of its limit.
fn provider_of(kind: Kind) -> Result<ProviderSpec, ProviderError> {
    let interval_us = i64::try_from(INTERVAL.as_micros()).unwrap_or(i64::MAX);
    let spec = ProviderSpec::new(kind, LIMIT, interval_us)?;
    if kind.has_capacity() { spec.with_capacity(LIMIT / 5) } else { Ok(spec) }
}

/// Runs the demo on a bucket that is deleted afterwards.
pub(crate) async fn run(plan: &Plan, limiter: &Limiter, store: &str) -> Result<Report, Failure> {
    let bucket = format!("paceline demo {:016x}", fastrand::u64(..));
    let report = signal::or_interrupted(limiter, show(plan, limiter, store, &bucket)).await;
    let deleted = limiter.delete(&bucket).await;
    let report = report?;
    deleted?;
    Ok(report)
}

async fn show(
    plan: &Plan,
    limiter: &Limiter,
    store: &str,
    bucket: &str,
) -> Result<Report, Failure> {
    let parse = |text: String| text.parse::<Policy>().map_err(paceline::Error::from);
    let full = match &plan.policy {
        Some(policy) => policy.clone(),
        None => parse(policy_for(plan.kind, LIMIT))?,
    };
    let half = parse(policy_for(plan.kind, LIMIT / 2))?;
    let spec =
        provider_of(plan.kind).map_err(|error| Failure::new(Exit::USAGE, error.to_string()))?;
    let provider = Provider::start(&spec)
        .map_err(|error| Failure::new(Exit::IO, format!("cannot start the provider: {error}")))?;
    limiter.set_policy(bucket, full.clone()).await?;
    let mut workers = Workers::start(plan, provider.addr(), store, bucket, &full)
        .map_err(|error| Failure::new(Exit::IO, format!("cannot start a worker: {error}")))?;
    let progress = Progress::new(plan);

    let mut phases = vec![Phase::begin("starting", Duration::ZERO)];
    let patience = Instant::now() + START_MAX;
    while provider.workers_seen() < usize::from(plan.processes) {
        workers.check()?;
        if Instant::now() > patience {
            return Err(Failure::new(
                Exit::FAILED,
                format!(
                    "only {} of {} workers made a call within {START_MAX:?}",
                    provider.workers_seen(),
                    plan.processes
                ),
            ));
        }
        tokio::time::sleep(TICK / 10).await;
    }
    for (name, share, act) in phase::SCRIPT {
        match act {
            Act::Nothing => {}
            Act::Halve => {
                limiter.set_policy(bucket, half.clone()).await?;
            }
            // Longer than it lasts: only a resume ends it in time.
            Act::Suspend => {
                limiter.suspend(bucket, plan.span * 2, "the demo shows how it stops").await?;
            }
            Act::Resume => {
                limiter.set_policy(bucket, full.clone()).await?;
                limiter.resume(bucket).await?;
            }
        }
        let span = plan.span.mul_f64(share);
        Phase::next(&mut phases, name, act, provider.now());
        let end = Instant::now() + span;
        while Instant::now() < end {
            tokio::time::sleep(TICK.min(end.saturating_duration_since(Instant::now()))).await;
            workers.check()?;
            progress.tell(name, provider.calls(), provider.refused());
        }
        progress.phase_done(name, provider.calls(), provider.refused());
    }
    Phase::end(&mut phases, provider.now());
    workers.stop().await?;
    progress.done();
    Ok(Report::new(plan, &full, &half, LIMIT, INTERVAL, &phases, &provider.records()))
}
