//! A whole fleet in virtual time: processes whose callers wait in the production driver, a store
//! that makes the production decision, the network between them, and what goes wrong. One seed
//! gives one run, to the microsecond.

mod checks;
mod process;
mod store;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use paceline_core::driver::{Event, Next, Stranded};
use paceline_core::{Batch, Booking, Group, Micros, Policy, Probed};

pub use self::checks::Broken;
use self::checks::{Checks, requests};
use self::process::Process;
use self::store::Store;
use crate::faults::{Fault, schedule};
use crate::{Demand, Provider, Recorder, Report, Scenario, StoreKind};

/// When a run starts, on the store's clock.
const START: Micros = 1_790_000_000_000_000;
/// How long an answer of the store is waited for, in microseconds. A scenario whose way there and back
/// takes that long gets no answer at all.
pub const TIMEOUT_US: Micros = 250_000;
/// What a call that went first and was refused is told to wait, when it is.
const REFUSED_US: Micros = 500_000;
/// Timers of real runtimes fire late by up to this.
const TIMER_LATE_US: Micros = 1_100;

/// Why a run came to no report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SimulationError {
    /// There is nothing to run.
    #[error("{0}")]
    Scenario(&'static str),
    /// A property of the design did not hold: a fault of ours.
    #[error(transparent)]
    Broken(#[from] Broken),
}

/// Runs a scenario to its end.
///
/// # Errors
/// When the scenario has no process, no caller or no time, or when a property of the design did
/// not hold.
pub fn simulate(scenario: &Scenario) -> Result<Report, SimulationError> {
    if scenario.processes == 0 || scenario.callers == 0 || scenario.duration_us <= 0 {
        return Err(SimulationError::Scenario("a run needs a process, a caller and some time"));
    }
    Ok(Fleet::new(scenario).run()?)
}

/// Something that happens.
#[derive(Debug)]
enum Happening {
    /// A caller of a process wants to make a call.
    Wants {
        process: usize,
        caller: usize,
    },
    /// A process's driver wants to be asked what to do; the number tells an outdated wish.
    Turn {
        process: usize,
        wish: u64,
    },
    /// A question reaches the store.
    Asked {
        process: usize,
        life: u64,
        flight: u64,
        groups: Vec<Group>,
    },
    /// Its answer reaches the process, or its patience ends.
    Answered {
        process: usize,
        life: u64,
        flight: u64,
        answer: Option<(Batch, Arc<Policy>)>,
    },
    /// A question whether a place may go first in a suspension reaches the store, and its answer the
    /// process.
    AskedFirst {
        process: usize,
        life: u64,
        flight: u64,
        booking: Booking,
    },
    AnsweredFirst {
        process: usize,
        life: u64,
        flight: u64,
        probed: Probed,
    },
    /// A place that is given back reaches the store.
    GivenBack(Booking),
    /// What came of a call that went first reaches the store: it passed, it was refused, or it was
    /// not made.
    ProbePassed,
    ProbeRefused,
    ProbeUnsent,
    /// That its answer has come reaches the store.
    AnswerTold(Booking),
    /// A call reaches the provider.
    Arrives {
        process: usize,
        life: u64,
        caller: usize,
        waited_us: Micros,
        booking: Booking,
        probe: bool,
    },
    /// A word of a change reaches a process.
    Told {
        process: usize,
    },
    /// Something goes wrong, or somebody operates.
    Fault(Fault),
}

#[derive(Debug)]
struct Timed {
    at: Micros,
    number: u64,
    what: Happening,
}

struct Fleet<'a> {
    scenario: &'a Scenario,
    policy: Arc<Policy>,
    now: Micros,
    numbers: u64,
    to_come: BinaryHeap<Reverse<Timed>>,
    processes: Vec<Process>,
    store: Store,
    provider: Provider,
    recorder: Recorder,
    checks: Checks<'a>,
    rng: fastrand::Rng,
}

impl<'a> Fleet<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let mut rng = fastrand::Rng::with_seed(scenario.seed);
        let age_us = rng.i64(0..scenario.provider.interval_us());
        let processes = (0..scenario.processes)
            .map(|process| Process::new(scenario, process, rng.u64(..)))
            .collect();
        Self {
            scenario,
            policy: Arc::new(scenario.policy.clone()),
            now: START,
            numbers: 0,
            to_come: BinaryHeap::new(),
            processes,
            store: Store::new(scenario.faults.clock_drift_ppm),
            provider: Provider::new(&scenario.provider, age_us),
            recorder: Recorder::new(scenario),
            checks: Checks::new(scenario),
            rng,
        }
    }

    fn run(mut self) -> Result<Report, Broken> {
        for process in 0..self.scenario.processes {
            for caller in 0..self.scenario.callers_of(process) {
                // Nobody starts at the same microsecond in real life.
                let at = START + self.rng.i64(0..50_000);
                self.at(at, Happening::Wants { process, caller });
            }
        }
        for (at_us, fault) in schedule(self.scenario, &mut self.rng) {
            self.at(START + at_us, Happening::Fault(fault));
        }
        let end = START + self.scenario.duration_us;
        while let Some(Reverse(Timed { at, what, .. })) = self.to_come.pop() {
            if at > end {
                break;
            }
            self.now = at;
            self.happens(what)?;
        }
        self.now = end;
        let left = self.processes.iter_mut().map(Process::booked).sum();
        let report = self.recorder.finish(self.scenario.duration_us);
        self.checks.at_the_end(left, &report, self.now - START)?;
        Ok(report)
    }

    fn at(&mut self, at: Micros, what: Happening) {
        self.numbers += 1;
        self.to_come.push(Reverse(Timed { at, number: self.numbers, what }));
    }

    fn happens(&mut self, what: Happening) -> Result<(), Broken> {
        if let Some(until) = self.stopped_until(&what) {
            // A stopped process finds timers, answers and words when it goes on.
            self.at(until, what);
            return Ok(());
        }
        match what {
            Happening::Wants { process, caller } => self.wants(process, caller)?,
            Happening::Turn { process, wish } => {
                if self.processes[process].wish == wish {
                    self.drive(process)?;
                }
            }
            Happening::Asked { process, life, flight, groups } => {
                self.asked(process, life, flight, &groups)?;
            }
            Happening::Answered { process, life, flight, answer } => {
                let here = &mut self.processes[process];
                if here.life == life && here.flight == Some(flight) {
                    here.flight = None;
                    self.answered(process, answer)?;
                }
            }
            Happening::AskedFirst { process, life, flight, booking } => {
                self.recorder.asked_store();
                let probed = self.store.probe(booking, self.now);
                if self.rng.f64() >= self.scenario.faults.lost_replies {
                    let at = self.now + self.scenario.delay_us;
                    self.at(at, Happening::AnsweredFirst { process, life, flight, probed });
                }
            }
            Happening::AnsweredFirst { process, life, flight, probed } => {
                let here = &mut self.processes[process];
                if here.life == life && here.flight == Some(flight) {
                    here.flight = None;
                    let policy = self.store.policy().unwrap_or_else(|| Arc::clone(&self.policy));
                    here.driver.probed(&probed, &policy, self.now);
                    self.drive(process)?;
                }
            }
            Happening::ProbePassed => self.probed(0),
            Happening::ProbeUnsent => self.probed(self.scenario.faults.patience_us.max(1)),
            Happening::ProbeRefused => {
                self.recorder.asked_store();
                let patience_us = self.scenario.faults.patience_us;
                let aged = self.store.suspend(REFUSED_US, patience_us, self.now);
                self.checks.aged(aged);
                self.changed();
            }
            Happening::GivenBack(booking) => {
                self.recorder.asked_store();
                self.store.give_back(booking, self.now);
                self.checks.given_back(booking);
            }
            Happening::AnswerTold(booking) => {
                self.recorder.asked_store();
                self.store.answered(booking, self.now);
            }
            Happening::Arrives { process, life, caller, waited_us, booking, probe } => {
                self.arrives(process, life, caller, waited_us, booking, probe);
            }
            Happening::Told { process } => {
                self.processes[process].driver.changed(self.now);
                self.drive(process)?;
            }
            Happening::Fault(fault) => self.fault(fault)?,
        }
        Ok(())
    }

    /// Until when the process that this happens to is stopped.
    fn stopped_until(&self, what: &Happening) -> Option<Micros> {
        let process = match what {
            Happening::Wants { process, .. }
            | Happening::Turn { process, .. }
            | Happening::Answered { process, .. }
            | Happening::AnsweredFirst { process, .. }
            | Happening::Told { process } => *process,
            _ => return None,
        };
        Some(self.processes[process].stopped_until).filter(|until| *until > self.now)
    }

    fn wants(&mut self, process: usize, caller: usize) -> Result<(), Broken> {
        if let Demand::OnOff { on_us, off_us } = self.scenario.demand {
            let round_us = (self.now - START).rem_euclid(on_us + off_us);
            if round_us >= on_us {
                let at = self.now + on_us + off_us - round_us;
                self.at(at, Happening::Wants { process, caller });
                return Ok(());
            }
        }
        let cost = self.rng.i64(1..=self.scenario.cost_max.max(1));
        let cost = u32::try_from(cost).unwrap_or(u32::MAX);
        let deadline_at = self.scenario.deadline_us.map(|us| self.now + us);
        self.processes[process].join(caller, cost, deadline_at, self.now);
        self.drive(process)
    }

    /// A flight to the store leaves, to arrive as what `asked` says.
    fn leaves(
        &mut self,
        process: usize,
        asked: impl FnOnce(u64) -> Happening,
    ) -> Result<(), Broken> {
        let here = &mut self.processes[process];
        here.flights += 1;
        let (life, flight) = (here.life, here.flights);
        here.flight = Some(flight);
        self.at(self.now + self.scenario.delay_us, asked(flight));
        let at = self.now + TIMEOUT_US;
        self.at(at, Happening::Answered { process, life, flight, answer: None });
        // Who goes while the answer is awaited.
        self.outcomes(process)?;
        self.drive(process)
    }

    /// Asks the driver what to do, and does it.
    fn drive(&mut self, process: usize) -> Result<(), Broken> {
        let here = &mut self.processes[process];
        let next = here.driver.next(self.now);
        let life = here.life;
        match next {
            Next::Ask(groups) => {
                return self.leaves(process, |flight| Happening::Asked {
                    process,
                    life,
                    flight,
                    groups,
                });
            }
            Next::Probe(booking) => {
                return self.leaves(process, |flight| Happening::AskedFirst {
                    process,
                    life,
                    flight,
                    booking,
                });
            }
            Next::SleepUntil(at) | Next::Await(Some(at)) => {
                here.wish += 1;
                let wish = here.wish;
                let at = at + self.rng.i64(0..TIMER_LATE_US);
                self.at(at, Happening::Turn { process, wish });
            }
            Next::Await(None) | Next::Rest => {}
        }
        self.outcomes(process)
    }

    /// What has become of waiters.
    fn outcomes(&mut self, process: usize) -> Result<(), Broken> {
        for event in self.processes[process].driver.events() {
            match event {
                Event::Go { waiter: caller, booking, probe, .. } => {
                    self.goes(process, caller, booking, probe)?;
                }
                Event::Refused { waiter: caller, retry_after_us, .. } => {
                    self.checks.refused();
                    self.at(self.now + retry_after_us, Happening::Wants { process, caller });
                }
                Event::Never { waiter: caller, .. } => {
                    self.at(self.now + 1_000_000, Happening::Wants { process, caller });
                }
                Event::GiveBack(booking) => {
                    self.at(self.now + self.scenario.delay_us, Happening::GivenBack(booking));
                }
                Event::Unprobed(booking) => {
                    let at = self.now + self.scenario.delay_us;
                    self.at(at, Happening::GivenBack(booking));
                    self.at(at, Happening::ProbeUnsent);
                }
            }
        }
        Ok(())
    }

    /// What came of who went first reaches the store.
    fn probed(&mut self, patience_us: Micros) {
        self.recorder.asked_store();
        if self.store.probed(patience_us, self.now) {
            self.changed();
        }
    }

    fn goes(
        &mut self,
        process: usize,
        caller: usize,
        booking: Booking,
        probe: bool,
    ) -> Result<(), Broken> {
        let now = self.now;
        self.checks.goes(self.store.sight(&self.policy, now), booking, probe, now - START)?;
        let here = &mut self.processes[process];
        let (came_at, life) = (here.came_at[caller], here.life);
        let at = now + self.rng.i64(0..=self.scenario.jitter_us);
        let waited_us = now - came_at;
        self.at(at, Happening::Arrives { process, life, caller, waited_us, booking, probe });
        Ok(())
    }

    fn asked(
        &mut self,
        process: usize,
        life: u64,
        flight: u64,
        groups: &[Group],
    ) -> Result<(), Broken> {
        self.recorder.asked_store();
        let own = Arc::clone(&self.policy);
        let before = self.store.bucket().cloned();
        let batch = self.store.batch(&own, groups, self.now);
        let policy = self.store.policy().unwrap_or(own);
        let asked = (process, life, flight);
        let looked = checks::Looked { before: &before, after: self.store.bucket() };
        self.checks.answered(asked, looked, &batch, groups, &policy, self.now - START)?;
        if self.rng.f64() < self.scenario.faults.lost_replies {
            self.checks.lost(&batch, groups);
            return Ok(());
        }
        let answer = Some((batch, policy));
        let at = self.now + self.scenario.delay_us;
        self.at(at, Happening::Answered { process, life, flight, answer });
        Ok(())
    }

    fn answered(
        &mut self,
        process: usize,
        answer: Option<(Batch, Arc<Policy>)>,
    ) -> Result<(), Broken> {
        let now = self.now;
        let driver = &mut self.processes[process].driver;
        match answer {
            Some((batch, policy)) => driver.answered(&batch, &policy, now),
            None => {
                // An error is never taken for a grant: each of them asks anew.
                for Stranded { waiter: caller, booking } in driver.failed(now) {
                    // Whether its place still stands is not known; it stays spent.
                    self.checks.spent(booking.map_or(0, |booking| requests(booking.cost)));
                    let at = now + self.rng.i64(1_000..20_000);
                    self.at(at, Happening::Wants { process, caller });
                }
            }
        }
        self.drive(process)
    }

    fn arrives(
        &mut self,
        process: usize,
        life: u64,
        caller: usize,
        waited_us: Micros,
        booking: Booking,
        probe: bool,
    ) {
        let at = self.now - START;
        let accepted = (0..requests(booking.cost)).all(|_| self.provider.arrive(at).is_ok());
        self.recorder.call(process, waited_us, at, accepted);
        if self.processes[process].life == life {
            let rest_us = match self.scenario.demand {
                Demand::Rate { calls_per_second_each } => {
                    // Calls of one caller come as Poisson's do.
                    let mean_us = 1e6 / calls_per_second_each.max(1e-6);
                    #[allow(clippy::cast_possible_truncation, reason = "saturates")]
                    let rest_us = (-self.rng.f64().max(1e-12).ln() * mean_us) as Micros;
                    rest_us
                }
                _ => 0,
            };
            let way_us = self.rng.i64(0..=self.scenario.jitter_us);
            let at = self.now + self.scenario.answer_us + way_us;
            if probe {
                // Told by a process that lives; one that is killed takes it along.
                let told = if accepted { Happening::ProbePassed } else { Happening::ProbeRefused };
                self.at(at + self.scenario.delay_us, told);
            }
            if self.scenario.answers && self.policy.counts_answers() {
                let at = at + self.scenario.delay_us;
                self.at(at, Happening::AnswerTold(booking));
            }
            self.at(at + rest_us, Happening::Wants { process, caller });
        }
    }

    fn fault(&mut self, fault: Fault) -> Result<(), Broken> {
        let now = self.now;
        match fault {
            Fault::Kill { process } => {
                let lost = self.processes[process].kill(self.scenario, self.rng.u64(..));
                self.checks.killed(lost, now - START)?;
                for caller in 0..self.scenario.callers_of(process) {
                    self.at(now + 1_000_000, Happening::Wants { process, caller });
                }
            }
            Fault::Stop { process, for_us } => {
                let here = &mut self.processes[process];
                here.stopped_until = here.stopped_until.max(now + for_us);
            }
            Fault::ClockStep { by_us } => {
                self.store.step_clock(by_us);
                self.checks.clock_stepped(now - START);
            }
            Fault::Suspend { for_us } => {
                let aged = self.store.suspend(for_us, self.scenario.faults.patience_us, now);
                self.checks.aged(aged);
                self.changed();
            }
            Fault::Resume => {
                let aged = self.store.resume(now);
                self.checks.aged(aged);
                self.changed();
            }
            Fault::Set { policy } => {
                self.store.set(&policy, now);
                self.changed();
            }
            Fault::Cancel { process, caller } => {
                if let Some(ticket) = self.processes[process].tickets[caller].take() {
                    self.processes[process].driver.leave(ticket, now);
                    self.at(now + 10_000, Happening::Wants { process, caller });
                    self.drive(process)?;
                }
            }
        }
        Ok(())
    }

    /// Tells processes of a change, where the store tells; a word may be lost.
    fn changed(&mut self) {
        self.checks.disturbed(self.now - START);
        if self.scenario.store != StoreKind::Redis {
            return;
        }
        for process in 0..self.processes.len() {
            if self.rng.f64() >= self.scenario.faults.lost_words {
                let at = self.now + self.scenario.delay_us;
                self.at(at, Happening::Told { process });
            }
        }
    }
}

impl PartialEq for Timed {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Timed {}

impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timed {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}
