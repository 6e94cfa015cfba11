//! One run: servers, a provider and workers are started, the plan's faults strike one after the
//! other, and when all is quiet again everybody has to be calling.

use std::time::{Duration, Instant, SystemTime};

use paceline::blocking::Limiter;
use rustix::process::Signal;

use crate::plan::{BUCKETS, Fault, Plan, WORKERS};
use crate::provider::Provider;
use crate::stage::Stage;
use crate::verdict::{Event, Record, Suspended, Verdict};
use crate::worker::Worker;

/// After the last fault: until everybody must have come back, and how long is then looked at.
const SETTLE: Duration = Duration::from_secs(4);
pub(crate) const LOOK: Duration = Duration::from_secs(3);
/// Somebody who suspends tries so often, as after a failover.
const TRIES: usize = 100;

pub(crate) fn run(seed: u64) -> Verdict {
    let plan = Plan::of(seed);
    let stage = Stage::start(plan.servers);
    let began = Instant::now();
    let provider = Provider::start(SystemTime::now());
    let (url, addr) = (stage.url(), provider.addr().to_string());
    let start = |number| Worker::start(number, &url, plan.policy, &addr);
    let mut workers: Vec<Worker> = (0..WORKERS).map(start).collect();
    std::thread::sleep(Duration::from_millis(700));
    let operator = paceline::Limiter::builder(&url).timeout(Duration::from_secs(1));
    let operator = Limiter::build(operator).expect("a store");
    let (mut events, mut suspended) = (Vec::new(), Vec::new());
    for step in &plan.steps {
        let from = began.elapsed();
        if !stage.strike(step) {
            match step.fault {
                Fault::KillWorker(which) => {
                    let new = start(which);
                    std::mem::replace(&mut workers[which], new).kill();
                }
                Fault::PauseWorker(which) => {
                    workers[which].signal(Signal::STOP);
                    std::thread::sleep(step.lasts);
                    workers[which].signal(Signal::CONT);
                }
                Fault::Suspend(bucket) => {
                    suspended.push(suspend(&operator, bucket, step.lasts, began));
                }
                other => unreachable!("{other} is the stage's"),
            }
        }
        events.push(Event { fault: step.fault, from, to: began.elapsed() });
        std::thread::sleep(step.quiet);
    }
    std::thread::sleep(SETTLE + LOOK);
    let end = began.elapsed();
    let told = workers.into_iter().map(Worker::end).collect();
    Verdict::of(Record { plan, events, suspended, calls: provider.calls(), end, told })
}

/// Suspends a bucket and waits until that is over.
fn suspend(operator: &Limiter, bucket: usize, lasts: Duration, began: Instant) -> Suspended {
    for _ in 0..TRIES {
        if let Ok(left) = operator.suspend(BUCKETS[bucket], lasts, "chaos") {
            let from = began.elapsed();
            std::thread::sleep(left);
            return Suspended { bucket, from, to: from + left };
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{}: nobody could suspend it", BUCKETS[bucket]);
}
