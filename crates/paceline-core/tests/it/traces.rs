//! The traces of `vectors/`, replayed in Rust. [`Op`] is how all tests here write an operation.

use std::sync::Arc;

use paceline_core::decide;
use paceline_core::{
    Ask, Batch, Booking, Bucket, Cause, Cost, Decision, Group, Micros, Policy, Suspension,
};
use serde_json::{Value, json};

/// One operation of a trace.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    Take { cost: Cost, wait_max_us: Micros },
    Suspend { for_us: Micros },
    Resume,
    Set { policy: Arc<Policy> },
}

/// One named trace: a bucket, and operations with their moments and the answers wanted.
pub(crate) struct Trace {
    pub(crate) name: String,
    pub(crate) policy: Arc<Policy>,
    pub(crate) ops: Vec<(Micros, Op, Value)>,
}

const FILES: [&str; 2] =
    [include_str!("../../vectors/hand.jsonl"), include_str!("../../vectors/random.jsonl")];

/// All traces of the vectors.
pub(crate) fn traces() -> Vec<Trace> {
    FILES.iter().flat_map(|file| file.lines()).map(trace).collect()
}

fn trace(line: &str) -> Trace {
    let value: Value = serde_json::from_str(line).unwrap();
    let policy = |value: &Value| Arc::new(value["policy"].as_str().unwrap().parse().unwrap());
    let ops = value["ops"].as_array().unwrap().iter().map(|op| {
        let number = |key: &str| op[key].as_i64().unwrap();
        let parsed = match op["op"].as_str().unwrap() {
            "take" => {
                let cost = u32::try_from(number("cost")).unwrap().into();
                Op::Take { cost, wait_max_us: number("wait_max_us") }
            }
            "suspend" => Op::Suspend { for_us: number("for_us") },
            "resume" => Op::Resume,
            "set" => Op::Set { policy: policy(op) },
            other => panic!("unknown operation {other}"),
        };
        (number("now_us"), parsed, op["want"].clone())
    });
    Trace {
        name: value["name"].as_str().unwrap().to_owned(),
        policy: policy(&value),
        ops: ops.collect(),
    }
}

/// Does one operation in Rust and answers in the vectors' form.
pub(crate) fn apply(slot: &mut Option<Bucket>, own: &Arc<Policy>, op: &Op, now: Micros) -> Value {
    match op {
        Op::Take { cost, wait_max_us } => {
            let ask = Ask { cost: *cost, wait_max_us: *wait_max_us };
            answer(decide::take(slot, own, ask, now))
        }
        Op::Suspend { for_us } => {
            let left = decide::suspend(slot, *for_us, 0, Suspension::default(), now);
            json!({"suspended": {"left_us": left}})
        }
        Op::Resume => {
            decide::resume(slot, now);
            json!({"resumed": {}})
        }
        Op::Set { policy } => {
            decide::set(slot, policy, false, now);
            json!({"set": {}})
        }
    }
}

/// A decision in the vectors' form.
pub(crate) fn answer(decision: Decision) -> Value {
    match decision {
        Decision::Granted { wait_us, .. } => json!({"granted": {"wait_us": wait_us}}),
        Decision::Denied { retry_after_us, cause } => {
            let cause = match cause {
                Cause::Suspended => "suspended".to_owned(),
                Cause::Quota(number) => format!("quota {number}"),
            };
            json!({"denied": {"retry_after_us": retry_after_us, "cause": cause}})
        }
        Decision::Never { cost_max, .. } => json!({"never": {"cost_max": cost_max}}),
    }
}

#[test]
fn every_trace_passes_in_rust() {
    let mut operations = 0;
    for Trace { name, policy, ops } in traces() {
        // The bucket is made at the first operation's time.
        let mut slot = Some(Bucket::new(Arc::clone(&policy), ops[0].0));
        for (index, (now, op, want)) in ops.iter().enumerate() {
            let got = apply(&mut slot, &policy, op, *now);
            assert_eq!(got, *want, "{name}, operation {index}: {op:?}\n{slot:#?}");
            operations += 1;
        }
    }
    assert!(operations > 2_500, "the vectors are there: {operations}");
}

/// The bookings a batch gave.
pub(crate) fn bookings(batch: &Batch, groups: &[Group]) -> Vec<Booking> {
    let costs = groups.iter().flat_map(|it| (0..it.calls).map(|_| it.ask.cost));
    let dues = batch.runs.iter().flat_map(|run| (0..run.calls).map(|_| run.due));
    let mut before = batch.before;
    let booking = |(cost, due)| {
        let booking = Booking { cost, granted_at: batch.sight.granted_at(), due, before };
        before = due;
        booking
    };
    costs.zip(dues).map(booking).collect()
}
