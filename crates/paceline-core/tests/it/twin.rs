//! decide.lua against decide.rs, inside a real redis-server: the vectors, and random traces in
//! which every answer and every state must be equal. `PACELINE_TWIN_OPS` asks for more operations,
//! `PACELINE_SEED` for a certain run.

use std::collections::HashMap;
use std::sync::Arc;

use paceline_core::decide;
use paceline_core::script::{self, Call};
use paceline_core::{
    Ask, Booking, Bucket, Cost, Decision, Group, Lowered, Micros, Policy, Refused, Remaining,
    Suspension, Unit,
};
use paceline_testkit::RedisServer;
use redis::{FromRedisValue, Value};

use crate::traces::{self, Op};

const POLICIES: &[&str] = &[
    "50/s burst 10",
    "7/s burst 1, window 3/s",
    "1/30d",
    "999983/h burst 1000000000",
    "window 1000/m",
    "window 200/s guard 3ms, 7/m burst 2",
    "window 65/10s",
    "5/s, 7/10s burst 6, 6/h",
    "1000000/s burst 1000000000",
    "window 64/s, window 640/m, 3/s burst 200",
    "0/m",
    "13/7s burst 4 guard 7ms",
    "window 20/s guard 2s, 100/m burst 9",
    "window 200/s guard 9s",
    "50/s burst 10, 3000/m",
];

/// Policies that count several units.
const UNITS: &[&str] = &[
    "50/s burst 10, 3000/m of tokens",
    "window 65/10s of tokens, 5/s, 7/10s burst 6 of input-tokens",
    "window 200/s guard 9s of tokens",
    "window 20/s guard 2s, window 300/s guard 1s of tokens, 40/s of bytes, 0/m of points",
    "7/s burst 1, window 3/s of output-tokens",
    "1000/s of tokens",
    "5/s, 7/10s burst 6, 6/h of tokens",
];

/// What a step does, with bookings already filled in.
enum Step {
    Plain(Op),
    Batch(Vec<Group>),
    GiveBack(Booking),
    Answered(Booking),
    Lower(Remaining),
    /// Refusals without a time.
    Bare {
        by: u32,
        for_us: Micros,
        patience_us: Micros,
    },
    Passed,
    SetIf {
        expected: Arc<Policy>,
        policy: Arc<Policy>,
    },
    /// A suspension with patience, and what comes of it.
    Refused {
        for_us: Micros,
        patience_us: Micros,
    },
    Probe(Booking),
    Probed {
        patience_us: Micros,
    },
}

#[test]
fn random_traces_give_equal_answers_and_equal_state_in_rust_and_in_the_script() {
    let number = |name: &str, otherwise| match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")),
        Err(_) => otherwise,
    };
    let seed = number("PACELINE_SEED", fastrand::u64(..));
    let wanted = number("PACELINE_TWIN_OPS", 100_000);
    println!("PACELINE_SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let server = RedisServer::start();
    let mut twin = Twin::new(&server);
    let mut done = 0;
    let mut trace = 0;
    while done < wanted {
        trace += 1;
        done += random_trace(&mut twin, &mut rng, &format!("seed {seed}, trace {trace}"));
    }
    println!("{done} operations in {trace} traces, {} calls went first", twin.first);
    assert!(twin.first > 0 || wanted < 100_000, "some go first");
}

/// A fleet is upgraded process by process, so an earlier script and this one work on one bucket side
/// by side. `earlier.lua` is what processes shipped that asked for one call at a time; it knows
/// neither batches nor answers; where the clock steps back, or two policies are set within a
/// microsecond, this one mends what that one did.
#[test]
fn an_earlier_script_and_this_one_agree_on_a_bucket_they_share() {
    let mut rng = fastrand::Rng::with_seed(7);
    let server = RedisServer::start();
    let mut twin = Twin::new(&server);
    twin.earlier = Some(twin.load(include_str!("earlier.lua")));
    for trace in 0..60 {
        random_trace(&mut twin, &mut rng, &format!("side by side, trace {trace}"));
    }
}

/// To an earlier script a suspension at whose end one call goes first is one until all go.
#[test]
fn an_earlier_script_takes_a_suspension_with_patience_for_a_plain_one() {
    let server = RedisServer::start();
    let mut twin = Twin::new(&server);
    twin.earlier = Some(twin.load(include_str!("earlier.lua")));
    let policy: Arc<Policy> = Arc::new("5/s".parse().unwrap());
    let start = 1_790_000_000_000_000;
    let refused = Step::Refused { for_us: 2_000_000, patience_us: 5_000_000 };
    let take = |wait_max_us| Step::Plain(Op::Take { cost: 1.into(), wait_max_us });
    twin.queue(&call(&take(0), &policy), start);
    twin.queue(&call(&refused, &policy), start);
    twin.queue_for(true, &call(&take(0), &policy), start + 2_000_000);
    twin.queue_for(true, &call(&take(8_000_000), &policy), start + 3_000_000);
    twin.queue(&call(&take(0), &policy), start + 3_000_000);
    let replies = twin.run();
    let probe = |index: usize| {
        let bucket = script::bucket(&replies[index].1).unwrap().unwrap();
        (bucket.state.clock.probe - start, bucket.state.clock.until - start)
    };
    assert_eq!((probe(1), probe(2)), ((2_000_000, 7_000_000), (2_000_000, 7_000_000)));
    assert_eq!(numbers(&replies[2].0)[..2], [2, 5_000_000]);
    assert_eq!(numbers(&replies[3].0)[..2], [1, 4_000_000]);
    // What it writes has no first call any more, and all go at the end.
    assert_eq!(probe(3), (-start, 7_000_000));
    assert_eq!(numbers(&replies[4].0)[..2], [2, 4_000_000]);
}

#[test]
fn an_earlier_script_refuses_a_bucket_of_several_units_with_words_and_leaves_it_alone() {
    let server = RedisServer::start();
    let mut twin = Twin::new(&server);
    let earlier = twin.load(include_str!("earlier.lua"));
    let policy: Arc<Policy> = Arc::new("5/s, 60/m of tokens".parse().unwrap());
    let cost = Cost::requests(1).and(Unit::Tokens, 20);
    let call =
        |policy: &Arc<Policy>, cost| call(&Step::Plain(Op::Take { cost, wait_max_us: 0 }), policy);
    twin.queue(&call(&policy, cost), 1_790_000_000_000_000);
    let (_, hash) = twin.run().pop().unwrap();
    let plan = "2 3000000 b 1 200000 5 1000000 bt 1 1000000 60 60000000";
    assert_eq!(hash[plan], "1790000000000000 800000 40000000");
    let plain: Arc<Policy> = Arc::new("5/s".parse().unwrap());
    let key = format!("twin {}", twin.key - 1);
    let mut evalsha = redis::cmd("EVALSHA");
    evalsha.arg(earlier).arg(1).arg(&key).arg(call(&plain, 1.into()));
    let error = evalsha.query::<Value>(&mut twin.connection).unwrap_err().to_string();
    assert!(error.contains("state version 2") && error.contains("upgrade"), "{error}");
    let after: HashMap<String, String> =
        redis::cmd("HGETALL").arg(&key).query(&mut twin.connection).unwrap();
    assert_eq!(after, hash);
}

#[test]
fn every_trace_of_the_vectors_passes_in_the_script() {
    let server = RedisServer::start();
    let mut twin = Twin::new(&server);
    for trace in traces::traces() {
        for (now, op, _) in &trace.ops {
            twin.queue(&call(&Step::Plain(op.clone()), &trace.policy), *now);
        }
        let replies = twin.run();
        for (index, ((_, op, want), (reply, _))) in trace.ops.iter().zip(replies).enumerate() {
            let got = match op {
                Op::Take { cost, .. } => traces::answer(decision(&reply, &trace.policy, *cost)),
                Op::Suspend { .. } => {
                    serde_json::json!({"suspended": {"left_us": numbers(&reply)[0]}})
                }
                Op::Resume => serde_json::json!({"resumed": {}}),
                Op::Set { .. } => serde_json::json!({"set": {}}),
            };
            assert_eq!(got, *want, "{}, operation {index}: {op:?}", trace.name);
        }
    }
}

/// What processes with policies of their own units ask of one bucket, under whichever was stored.
#[test]
fn random_traces_of_several_units_are_equal_too() {
    let seed = std::env::var("PACELINE_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("PACELINE_SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let server = RedisServer::start();
    let mut twin = Twin::new(&server);
    twin.units = true;
    for trace in 0..400 {
        random_trace(&mut twin, &mut rng, &format!("seed {seed}, units, trace {trace}"));
    }
}

/// Makes one trace in Rust, replays it in the script, and compares; how many operations it had.
fn random_trace(twin: &mut Twin, rng: &mut fastrand::Rng, label: &str) -> u64 {
    let mut own = random_policy(rng, twin.units);
    let mut slot: Option<Bucket> = None;
    let mut now: Micros = 1_790_000_000_000_000 + rng.i64(0..1_000_000);
    let mut bookings: Vec<Booking> = Vec::new();
    let mut expected = Vec::new();
    for _ in 0..200 {
        now += match rng.u32(0..20) {
            0 if twin.earlier.is_some() => 0,
            1..=6 if twin.earlier.is_some() => 1,
            0 if rng.u8(0..4) == 0 => -rng.i64(0..4_000_000_000),
            0 => -rng.i64(0..3_000_000),
            1..=6 => 0,
            7..=12 => rng.i64(0..20_000),
            13..=17 => rng.i64(0..900_000),
            18 => rng.i64(0..60_000_000),
            _ => rng.i64(0..8_000_000_000),
        };
        if twin.units && rng.u32(0..10) == 0 {
            // Another process, which would make the bucket otherwise.
            own = random_policy(rng, true);
        }
        let stored = slot.as_ref().and_then(|bucket| bucket.policy.clone());
        let mut step = match random_step(rng, &bookings, stored.as_ref(), twin.units) {
            // It knows of none who goes first.
            Step::Refused { for_us, .. } if twin.earlier.is_some() => {
                Step::Plain(Op::Suspend { for_us })
            }
            Step::Bare { by, for_us, .. } if twin.earlier.is_some() => {
                Step::Bare { by, for_us, patience_us: 0 }
            }
            Step::Lower(said) if twin.earlier.is_some() => {
                Step::Lower(Remaining { is_shared: false, ..said })
            }
            Step::Probe(_) | Step::Probed { .. } if twin.earlier.is_some() => {
                Step::Plain(Op::Resume)
            }
            step => step,
        };
        if let Step::Plain(Op::Take { cost, wait_max_us }) = step
            && script::has_units(&own, &cost)
        {
            // As the script is asked for it.
            step = Step::Batch(vec![Group { ask: Ask { cost, wait_max_us }, calls: 1 }]);
        }
        let answer = match &step {
            Step::Plain(Op::Take { cost, wait_max_us }) => {
                let ask = Ask { cost: *cost, wait_max_us: *wait_max_us };
                let decision = decide::take(&mut slot, &own, ask, now);
                if let Decision::Granted { booking, .. } = decision {
                    bookings.push(booking);
                }
                format!("{decision:?}")
            }
            Step::Plain(Op::Suspend { for_us }) => {
                let left = decide::suspend(&mut slot, *for_us, 0, why(), now);
                format!("{:?}", [left])
            }
            Step::Refused { for_us, patience_us } => {
                let left = decide::suspend(&mut slot, *for_us, *patience_us, why(), now);
                format!("{:?}", [left])
            }
            Step::Probe(booking) => format!("{:?}", decide::probe(&mut slot, *booking, now)),
            Step::Probed { patience_us } => {
                format!("{:?}", [i64::from(decide::probed(&mut slot, *patience_us, now))])
            }
            Step::Plain(Op::Resume) => format!("{:?}", [i64::from(decide::resume(&mut slot, now))]),
            Step::Plain(Op::Set { policy }) => {
                format!("{:?}", [i64::from(decide::set(&mut slot, policy, false, now))])
            }
            Step::Batch(groups) => {
                let batch = decide::batch(&mut slot, &own, groups, now);
                bookings.extend(traces::bookings(&batch, groups));
                format!("{batch:?}")
            }
            Step::GiveBack(booking) => {
                format!("{:?}", [i64::from(decide::give_back(&mut slot, *booking, now))])
            }
            Step::Answered(booking) => {
                format!("{:?}", [i64::from(decide::answered(&mut slot, *booking, now))])
            }
            Step::Lower(said) => {
                let Lowered { tokens, left_us } = decide::lower(&mut slot, *said, why(), now);
                format!("{:?}", [tokens, left_us])
            }
            Step::Bare { by, for_us, patience_us } => {
                let Refused { by, left_us, stops } =
                    decide::refused(&mut slot, *by, *for_us, *patience_us, why(), now);
                format!("{:?}", [i64::try_from(by).unwrap(), left_us, i64::from(stops)])
            }
            Step::Passed => format!("{:?}", [i64::from(decide::passed(&mut slot))]),
            Step::SetIf { expected, policy } => {
                format!("{:?}", [i64::from(decide::set_if(&mut slot, expected, policy, now))])
            }
        };
        // That one misreads the clock of a bucket without a policy for a caller with two token buckets.
        let earlier = matches!(step, Step::Plain(_) | Step::GiveBack(_))
            && rng.bool()
            && (stored.is_some() || expected.is_empty());
        twin.queue_for(earlier, &call(&step, &own), now);
        let cost = match &step {
            Step::Plain(Op::Take { cost, .. }) => *cost,
            _ => Cost::default(),
        };
        let described = match step {
            Step::Plain(op) => format!("{op:?}"),
            Step::Batch(groups) => format!("batch {groups:?}"),
            Step::GiveBack(booking) => format!("give back {booking:?}"),
            Step::Answered(booking) => format!("answered {booking:?}"),
            Step::Lower(said) => format!("lower {said:?}"),
            Step::Bare { by, for_us, patience_us } => format!("bare {by} {for_us} {patience_us}"),
            Step::Passed => "passed".to_owned(),
            Step::SetIf { expected, policy } => format!("set if {expected}: {policy}"),
            Step::Refused { for_us, patience_us } => format!("refused {for_us} {patience_us}"),
            Step::Probe(booking) => format!("probe {booking:?}"),
            Step::Probed { patience_us } => format!("probed {patience_us}"),
        };
        expected.push((now, described, answer, slot.clone(), Arc::clone(&own), cost));
    }
    let count = expected.len();
    let mut before = None;
    for (index, ((now, step, answer, state, own, cost), (reply, hash))) in
        expected.into_iter().zip(twin.run()).enumerate()
    {
        let told = |what: &str| {
            format!(
                "{label}, operation {index}, own policy {own}: {what} differs\n{step} at {now}\nbefore: {before:#?}"
            )
        };
        let got = match step.split(' ').next() {
            Some("Take") => format!("{:?}", decision(&reply, &own, cost)),
            Some("probe") => format!("{:?}", script::probed(&numbers(&reply)).unwrap()),
            Some("batch") => format!("{:?}", script::batch(&numbers(&reply)).unwrap()),
            _ => format!("{:?}", numbers(&reply)),
        };
        assert_eq!(got, answer, "{}", told("answer"));
        twin.first += u64::from(answer.contains("probe: true") || answer.contains("goes: true"));
        let stored = script::bucket(&hash).unwrap();
        assert_eq!(stored, state, "{}\n{hash:#?}", told("state"));
        before = state;
    }
    u64::try_from(count).unwrap()
}

fn random_policy(rng: &mut fastrand::Rng, units: bool) -> Arc<Policy> {
    let policies = if units && rng.u32(0..4) > 0 { UNITS } else { POLICIES };
    Arc::new(policies[rng.usize(0..policies.len())].parse().unwrap())
}

fn random_step(
    rng: &mut fastrand::Rng,
    bookings: &[Booking],
    stored: Option<&Arc<Policy>>,
    units: bool,
) -> Step {
    let booking = |rng: &mut fastrand::Rng| {
        // Mostly a late one, which may still be the last.
        let back = if rng.bool() { 1 } else { rng.usize(1..=bookings.len().max(1)) };
        bookings.len().checked_sub(back).map(|index| bookings[index])
    };
    match rng.u32(0..100) {
        0 => Step::Plain(Op::Suspend { for_us: rng.i64(1..8_000_000) }),
        1..=2 => Step::Refused {
            for_us: {
                let most = if rng.bool() { 8_000_000 } else { 30_000 };
                rng.i64(1..most)
            },
            patience_us: {
                let most = if rng.bool() { 8_000_000 } else { 60_000_000 };
                rng.i64(1..most)
            },
        },
        3 => Step::Plain(Op::Resume),
        4 => Step::Probed { patience_us: if rng.bool() { 0 } else { rng.i64(1..8_000_000) } },
        5..=7 => Step::Plain(Op::Set { policy: random_policy(rng, units) }),
        8..=15 => match booking(rng) {
            Some(booking) if rng.bool() => Step::Answered(booking),
            Some(booking) if rng.bool() => Step::Probe(booking),
            Some(booking) => Step::GiveBack(booking),
            None => Step::Plain(Op::Resume),
        },
        16..=19 => {
            let sent = booking(rng);
            Step::Lower(remaining(rng, sent, stored))
        }
        20 => Step::Bare {
            by: rng.u32(0..3),
            for_us: rng.i64(1..3_000_000),
            patience_us: [0, 1, 5_000_000][rng.usize(0..3)],
        },
        21 if rng.bool() => Step::Passed,
        21 => {
            let expected = match stored {
                Some(stored) if rng.bool() => Arc::clone(stored),
                _ => random_policy(rng, units),
            };
            Step::SetIf { expected, policy: random_policy(rng, units) }
        }
        22..=34 => {
            let groups =
                (0..rng.usize(0..4)).map(|_| Group { ask: ask(rng, units), calls: calls(rng) });
            Step::Batch(groups.collect())
        }
        _ => {
            let Ask { cost, wait_max_us } = ask(rng, units);
            Step::Plain(Op::Take { cost, wait_max_us })
        }
    }
}

/// What a provider may say of a quota: mostly of one that the bucket has.
fn remaining(
    rng: &mut fastrand::Rng,
    sent: Option<Booking>,
    stored: Option<&Arc<Policy>>,
) -> Remaining {
    let quotas = stored.map(|stored| stored.quotas()).unwrap_or_default();
    let quota = rng.usize(0..=quotas.len());
    let interval =
        quotas.get(quota.wrapping_sub(1)).map_or(1_000_000, |it| it.interval().as_micros());
    let interval_us = i64::try_from(interval).unwrap() + i64::from(rng.u8(0..20) == 0);
    Remaining {
        quota,
        interval_us,
        tokens: [0, 1, rng.i64(0..20), rng.i64(0..300), rng.i64(0..1_000_000_000)][rng.usize(0..5)],
        resets_in_us: [0, rng.i64(0..=interval_us), rng.i64(0..=3 * interval_us)][rng.usize(0..3)],
        blur_us: [0, 20_000, 1_000_000][rng.usize(0..3)],
        sent: sent.filter(|_| rng.bool()),
        unstoppable_us: [0, 20_000, 100_000, 2_000_000][rng.usize(0..4)],
        is_shared: rng.bool(),
    }
}

fn calls(rng: &mut fastrand::Rng) -> i64 {
    if rng.bool() { rng.i64(1..4) } else { rng.i64(1..200) }
}

fn ask(rng: &mut fastrand::Rng, units: bool) -> Ask {
    let cost = match rng.u32(0..10) {
        0..=5 => 1,
        6..=8 => rng.u32(1..12),
        _ => rng.u32(1..3_000),
    };
    let mut cost = Cost::requests(cost);
    if units && rng.u32(0..6) > 0 {
        cost = cost.and(Unit::Requests, rng.u32(0..3));
        for unit in Unit::ALL {
            if unit != Unit::Requests && rng.bool() {
                cost = cost.and(unit, [1, rng.u32(0..30), rng.u32(0..300)][rng.usize(0..3)]);
            }
        }
    }
    if cost.is_nothing() {
        cost = Cost::requests(1);
    }
    let wait_max_us = [0, 0, 100_000, 2_000_000, 20_000_000, 86_400_000_000][rng.usize(0..6)];
    Ask { cost, wait_max_us }
}

fn why() -> Suspension {
    Suspension { reason: "Retry-After: 30".to_owned(), by: "worker 7".to_owned() }
}

/// The arguments of a step in the script; the time goes in when it is queued.
fn call(step: &Step, own: &Arc<Policy>) -> Vec<Vec<u8>> {
    let why = why();
    let call = match step {
        Step::Plain(Op::Take { cost, wait_max_us }) => {
            Call::Take { policy: own, ask: Ask { cost: *cost, wait_max_us: *wait_max_us } }
        }
        Step::Plain(Op::Suspend { for_us }) => {
            Call::Suspend { for_us: *for_us, patience_us: 0, why: &why }
        }
        Step::Refused { for_us, patience_us } => {
            Call::Suspend { for_us: *for_us, patience_us: *patience_us, why: &why }
        }
        Step::Probe(booking) => Call::Probe(*booking),
        Step::Probed { patience_us } => Call::Probed { patience_us: *patience_us },
        Step::Plain(Op::Resume) => Call::Resume,
        Step::Plain(Op::Set { policy }) => Call::Set { policy, pinned: false },
        Step::Batch(groups) => Call::Batch { policy: own, groups },
        Step::GiveBack(booking) => Call::GiveBack(*booking),
        Step::Answered(booking) => Call::Answered(*booking),
        Step::Lower(said) => Call::Lower { said: *said, why: &why },
        Step::Bare { by, for_us, patience_us } => {
            Call::Refused { by: *by, for_us: *for_us, patience_us: *patience_us, why: &why }
        }
        Step::Passed => Call::Passed,
        Step::SetIf { expected, policy } => Call::SetIf { expected, policy },
    };
    call.args(None).into_iter().map(|arg| arg.into_owned()).collect()
}

/// What a take was answered.
fn decision(reply: &Value, policy: &Policy, cost: Cost) -> Decision {
    match reply {
        Value::BulkString(clock) => {
            script::usual_grant(std::str::from_utf8(clock).unwrap(), policy, cost).unwrap()
        }
        reply => script::decision(&numbers(reply), cost).unwrap(),
    }
}

/// The numbers of a reply; the policy's text behind them is left out.
fn numbers(reply: &Value) -> Vec<i64> {
    let Value::Array(items) = reply else { panic!("not a list: {reply:?}") };
    items
        .iter()
        .filter_map(|item| match item {
            Value::Int(number) => Some(*number),
            _ => None,
        })
        .collect()
}

/// One connection, and the calls queued for the next pipeline.
struct Twin {
    connection: redis::Connection,
    sha: String,
    /// Of an earlier script, where one works on the same buckets.
    earlier: Option<String>,
    /// Whether quotas and calls are of several units.
    units: bool,
    key: u64,
    /// Calls that went first in a suspension.
    first: u64,
    pipe: redis::Pipeline,
}

impl Twin {
    fn new(server: &RedisServer) -> Self {
        let client = redis::Client::open(server.url()).unwrap();
        let connection = client.get_connection().unwrap();
        let mut twin = Self {
            connection,
            sha: String::new(),
            earlier: None,
            units: false,
            key: 0,
            first: 0,
            pipe: redis::pipe(),
        };
        twin.sha = twin.load(script::SOURCE);
        twin
    }

    fn load(&mut self, source: &str) -> String {
        redis::cmd("SCRIPT").arg("LOAD").arg(source).query(&mut self.connection).unwrap()
    }

    /// Queues a call at `now`, and a look at the hash after it.
    fn queue(&mut self, args: &[Vec<u8>], now: Micros) {
        self.queue_for(false, args, now);
    }

    /// As [`queue`](Self::queue), by the earlier script where there is one and it is told to.
    fn queue_for(&mut self, earlier: bool, args: &[Vec<u8>], now: Micros) {
        let key = format!("twin {}", self.key);
        let sha = self.earlier.as_ref().filter(|_| earlier).unwrap_or(&self.sha);
        let evalsha = self.pipe.cmd("EVALSHA").arg(sha).arg(1).arg(&key);
        let mut op = args[0].clone();
        op.extend(format!("@{now}").into_bytes());
        evalsha.arg(op).arg(&args[1..]);
        self.pipe.cmd("HGETALL").arg(&key);
    }

    fn run(&mut self) -> Vec<(Value, HashMap<String, String>)> {
        self.key += 1;
        let replies: Vec<Value> =
            std::mem::replace(&mut self.pipe, redis::pipe()).query(&mut self.connection).unwrap();
        let mut replies = replies.into_iter();
        let mut pairs = Vec::new();
        while let (Some(reply), Some(hash)) = (replies.next(), replies.next()) {
            pairs.push((reply, HashMap::from_redis_value(hash).unwrap()));
        }
        pairs
    }
}

#[test]
fn c02_moments_and_levels_of_all_their_digits_are_read_back_as_they_were_written() {
    let server = RedisServer::start();
    let mut twin = Twin::new(&server);
    let ask = Ask { cost: 1.into(), wait_max_us: 0 };
    for (text, now) in [
        ("7/s burst 1000000000", 1_790_000_000_123_456),
        ("7/13s burst 600000000", 1_824_192_940_134_586),
        ("1000000/s burst 1000000000, window 1000000000/d", 9_007_199_254_740_000),
        ("3/7m burst 20000000, 1/13d burst 7", 1_790_000_000_999_999),
    ] {
        let policy: Arc<Policy> = Arc::new(text.parse().unwrap());
        let mut slot = None;
        for step in 0..3 {
            decide::take(&mut slot, &policy, ask, now + step);
            let plain = Step::Plain(Op::Take { cost: 1.into(), wait_max_us: 0 });
            twin.queue(&call(&plain, &policy), now + step);
        }
        let (_, hash) = twin.run().pop().unwrap();
        assert_eq!(script::bucket(&hash).unwrap(), slot, "{text}\n{hash:#?}");
    }
}
