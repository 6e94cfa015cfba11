//! An interrupt ends a wait and gives its place back; then the process ends as the signal says.

use paceline::Limiter;
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::{Exit, Failure};

/// Runs until done or until the process is asked to end. Places on their way back to the store
/// have arrived afterwards.
pub(crate) async fn or_interrupted<T>(
    limiter: &Limiter,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let result = until_interrupted(work).await;
    limiter.settled().await;
    result
}

async fn until_interrupted<T>(
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let cannot = |error| Failure::new(Exit::IO, format!("cannot listen for signals: {error}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(cannot)?;
    let mut hang_up = signal(SignalKind::hangup()).map_err(cannot)?;
    let ended_by = tokio::select! {
        biased;
        done = work => return done,
        _ = interrupt.recv() => SignalKind::interrupt(),
        _ = terminate.recv() => SignalKind::terminate(),
        _ = hang_up.recv() => SignalKind::hangup(),
    };
    Err(Failure::quiet(Exit::by_signal(ended_by.as_raw_value())))
}
