//! An interrupt ends a wait and gives its place back; then the process ends as the signal says.

use std::io;
use std::task::Poll;

use paceline::Limiter;
use tokio::signal::unix::{Signal, SignalKind, signal};

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
    let mut signals = Signals::listen()?;
    let ended_by = tokio::select! {
        biased;
        done = work => return done,
        ended_by = signals.next() => ended_by,
    };
    Err(Failure::quiet(Exit::by_signal(ended_by.as_raw_value())))
}

/// The signals that ask a process to end. Those that whoever started us has us ignore (`nohup`, a
/// shell's background job) stay ignored, here and in the command that `exec` runs.
#[derive(Debug)]
pub(crate) struct Signals(Vec<(SignalKind, Signal)>);

impl Signals {
    pub(crate) fn listen() -> Result<Self, Failure> {
        let ignored = ignored();
        let heard = |kind: &SignalKind| ignored >> (kind.as_raw_value() - 1) & 1 == 0;
        [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()]
            .into_iter()
            .filter(heard)
            .map(|kind| Ok((kind, signal(kind)?)))
            .collect::<io::Result<_>>()
            .map(Self)
            .map_err(|error| Failure::new(Exit::IO, format!("cannot listen for signals: {error}")))
    }

    /// The next that comes. Cancel safe.
    pub(crate) async fn next(&mut self) -> SignalKind {
        std::future::poll_fn(|context| {
            for (kind, signal) in &mut self.0 {
                if signal.poll_recv(context).is_ready() {
                    return Poll::Ready(*kind);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// The signals that are ignored, a bit each from the lowest on. Linux tells; elsewhere none is
/// known to be.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
}
