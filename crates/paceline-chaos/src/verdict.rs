//! What came of a run, and whether it is as promised.
//!
//! - No span of the provider's interval holds more calls than its limit, except around an event by
//!   which a bucket forgot what was used: then it may hold the limit once more for each of these.
//! - No call starts while its bucket is suspended, from [`HEARD`] after that was said.
//! - When all is quiet again every caller calls: nobody hangs, no wake-up was lost.
//! - No decision takes much longer than its bound, and fails in no other way than by telling that
//!   the store is away.

use std::fmt;
use std::time::Duration;

use crate::plan::{BUCKETS, CALLERS, Fault, INTERVAL, Plan, WORKERS};
use crate::provider::Call;
use crate::run::LOOK;
use crate::worker::{TIMEOUT, Told};

/// By when everybody has heard of a suspension: 100 ms, and what a loaded machine takes on top.
const HEARD: Duration = Duration::from_millis(300);
/// How much later its operator takes it to end, who reckons from when he was answered.
const ENDED: Duration = Duration::from_millis(50);
/// A decision this much beyond its bound hangs; less is a loaded machine.
const HANGS: Duration = Duration::from_secs(1);
/// After an event: by then processes use the bucket as it is after it. Connections that come back
/// (up to a second and a half) and bookings ahead (a second).
const AFTERMATH: Duration = Duration::from_millis(2_500);

/// What was seen of a run.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) plan: Plan,
    pub(crate) events: Vec<Event>,
    pub(crate) suspended: Vec<Suspended>,
    pub(crate) calls: Vec<Call>,
    pub(crate) end: Duration,
    pub(crate) told: Vec<Option<Told>>,
}

/// A fault that struck and has healed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Event {
    pub(crate) fault: Fault,
    pub(crate) from: Duration,
    pub(crate) to: Duration,
}

/// A bucket that was suspended, as its operator saw it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Suspended {
    pub(crate) bucket: usize,
    pub(crate) from: Duration,
    pub(crate) to: Duration,
}

/// The judgement.
#[derive(Debug)]
pub(crate) struct Verdict {
    plan: Plan,
    events: Vec<Event>,
    calls: usize,
    /// Calls beyond the limit in the fullest window, and what allowed for them.
    over: usize,
    over_because: Vec<Fault>,
    /// Of what the policy lets through in the whole run, in percent.
    used: f64,
    longest_stall: Duration,
    /// From the end of a fault to the next call of every bucket, the longest.
    recovery: Duration,
    unavailable: u64,
    longest_decision: Duration,
    broken: Vec<String>,
}

impl Verdict {
    pub(crate) fn of(record: Record) -> Self {
        let Record { plan, events, suspended, calls, end, told } = record;
        let mut broken = Vec::new();
        let (mut over, mut over_because) = (0, Vec::new());
        let (mut longest_stall, mut recovery) = (Duration::ZERO, Duration::ZERO);
        for (bucket, name) in BUCKETS.iter().enumerate() {
            let at: Vec<Duration> =
                calls.iter().filter(|call| call.bucket == bucket).map(|call| call.at).collect();
            // The fullest window that begins with each call.
            for (first, from) in at.iter().enumerate() {
                let to = *from + INTERVAL;
                let held = at[first..].iter().take_while(|at| **at < to).count();
                let Some(beyond) = held.checked_sub(plan.limit).filter(|it| *it > 0) else {
                    continue;
                };
                let because: Vec<Fault> = events
                    .iter()
                    .filter(|event| event.fault.forgets(plan.servers))
                    .filter(|event| event.from < to && *from < event.to + AFTERMATH)
                    .map(|event| event.fault)
                    .collect();
                if beyond > because.len() * plan.limit {
                    broken.push(format!(
                        "{name}: {held} calls within a second from {from:.3?} on, the limit is {} \
                         and {} events made it forget",
                        plan.limit,
                        because.len()
                    ));
                }
                if beyond > over {
                    (over, over_because) = (beyond, because);
                }
            }
            let gaps = at.windows(2).map(|pair| pair[1] - pair[0]);
            longest_stall = longest_stall.max(gaps.max().unwrap_or(end));
            for event in &events {
                let next = at.iter().find(|at| **at >= event.to).copied().unwrap_or(end);
                recovery = recovery.max(next - event.to);
            }
        }
        for Suspended { bucket, from, to } in suspended {
            // A bucket that was forgotten meanwhile is not suspended; none is, faults come in turn.
            let within = |call: &&Call| {
                call.bucket == bucket && call.at > from + HEARD && call.at + ENDED < to
            };
            if let Some(call) = calls.iter().find(within) {
                broken.push(format!(
                    "{}: a call at {:.3?}, suspended from {from:.3?} to {to:.3?}",
                    BUCKETS[bucket], call.at
                ));
            }
        }
        let quiet = end.saturating_sub(LOOK);
        for (worker, caller) in (0..WORKERS).flat_map(|it| (0..CALLERS).map(move |to| (it, to))) {
            let is_his = |call: &&Call| call.worker == worker && call.caller == caller;
            let last = calls.iter().rfind(is_his).map_or(Duration::ZERO, |call| call.at);
            if last < quiet {
                broken.push(format!(
                    "caller {caller} of worker {worker} hangs: its last call was at {last:.3?} of \
                     {end:.3?}"
                ));
            }
        }
        let mut sum = Told::default();
        for (worker, told) in told.into_iter().enumerate() {
            match told {
                None => broken.push(format!("worker {worker} ended without a word")),
                Some(told) => {
                    sum.unavailable += told.unavailable;
                    sum.other_errors += told.other_errors;
                    sum.longest_decision = sum.longest_decision.max(told.longest_decision);
                }
            }
        }
        if sum.other_errors > 0 {
            broken.push(format!("{} errors other than a store that is away", sum.other_errors));
        }
        // A worker that was stopped was in the middle of a decision.
        let stopped = plan.steps.iter().filter(|it| matches!(it.fault, Fault::PauseWorker(_)));
        let stopped = stopped.map(|it| it.lasts).max().unwrap_or_default();
        if sum.longest_decision > TIMEOUT + HANGS + stopped {
            broken.push(format!("a decision took {:.3?}", sum.longest_decision));
        }
        let allowed =
            plan.limit as f64 * BUCKETS.len() as f64 * end.as_secs_f64() / INTERVAL.as_secs_f64();
        Self {
            over,
            over_because,
            used: calls.len() as f64 * 100.0 / allowed,
            calls: calls.len(),
            longest_stall,
            recovery,
            unavailable: sum.unavailable,
            longest_decision: sum.longest_decision,
            plan,
            events,
            broken,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { seed, servers, policy, .. } = &self.plan;
        let word = if self.broken.is_empty() { "ok" } else { "BROKEN" };
        writeln!(
            f,
            "seed {seed}: {word}. {servers:?}, {policy}; {} calls, {:.0} % of the limit used; \
             longest stall {:.2?}, recovery {:.2?}; {} decisions failed, the longest took {:.0?}",
            self.calls,
            self.used,
            self.longest_stall,
            self.recovery,
            self.unavailable,
            self.longest_decision
        )?;
        for Event { fault, from, to } in &self.events {
            writeln!(f, "  {from:>6.1?} to {to:>6.1?}  {fault}")?;
        }
        if self.over > 0 {
            let because: Vec<String> = self.over_because.iter().map(Fault::to_string).collect();
            writeln!(f, "  {} beyond the limit: {}", self.over, because.join(", "))?;
        }
        for broken in &self.broken {
            writeln!(f, "  BROKEN: {broken}")?;
        }
        if !self.broken.is_empty() {
            writeln!(f, "  again: cargo xtask chaos --seeds 1 --from {seed}")?;
        }
        Ok(())
    }
}

/// All runs together.
#[derive(Debug, Default)]
pub(crate) struct Total {
    runs: usize,
    broken: usize,
    /// Runs whose servers did not do what they were to, such as sentinels that promote nobody.
    void: usize,
    calls: usize,
    over: usize,
    longest_stall: Duration,
    recovery: Duration,
    longest_decision: Duration,
}

impl Total {
    pub(crate) fn add(&mut self, verdict: &Verdict) {
        self.runs += 1;
        self.broken += usize::from(!verdict.broken.is_empty());
        self.calls += verdict.calls;
        self.over = self.over.max(verdict.over);
        self.longest_stall = self.longest_stall.max(verdict.longest_stall);
        self.recovery = self.recovery.max(verdict.recovery);
        self.longest_decision = self.longest_decision.max(verdict.longest_decision);
    }

    pub(crate) fn void(&mut self) {
        self.void += 1;
    }

    pub(crate) fn is_good(&self) -> bool {
        self.broken == 0 && self.runs > 0 && self.void * 10 <= self.runs
    }
}

impl fmt::Display for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} runs, {} broken, {} void: {} calls, at most {} beyond a limit where a bucket had forgotten; \
             longest stall {:.2?}, longest recovery {:.2?}, longest decision {:.0?}",
            self.runs,
            self.broken,
            self.void,
            self.calls,
            self.over,
            self.longest_stall,
            self.recovery,
            self.longest_decision
        )
    }
}
