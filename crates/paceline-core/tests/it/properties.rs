//! The properties that hold whatever the design, on random traces: P1 truthful wait, P2 refusal is
//! free, P3 ceiling (also with places given back and buckets forgotten in between), P4 lifetime.
//! The seed of a failing run is printed; `PACELINE_SEED` repeats it.

use std::sync::Arc;

use paceline_core::decide;
use paceline_core::{
    Ask, Booking, Bucket, Cost, Decision, Group, Micros, Policy, Quota, Shape, Standing,
    Suspension, Unit,
};

use crate::traces::bookings;

const POLICIES: &[&str] = &[
    "5/s",
    "7/s burst 1",
    "50/s burst 10 guard 3ms",
    "10/s burst 1 guard 50ms, window 10/s guard 50ms",
    "window 3/s",
    "window 100/s",
    "window 1000/m, 20/s burst 40",
    "2/s, 3/m",
    "999983/h burst 1000000000",
    "13/7s burst 4, window 20/10s guard 7ms",
    "20/s, 3000/m burst 40 of tokens",
    "window 30/s of tokens, 5/s burst 2, window 70/10s guard 20ms of tokens",
    "30/s of tokens",
    "9/s of input-tokens, window 13/s of output-tokens, 4/s burst 40",
];

/// Runs `trace` with many seeds, or the one asked for.
fn seeds(trace: impl Fn(&mut fastrand::Rng)) {
    let first = fastrand::u64(..);
    let asked = std::env::var("PACELINE_SEED").ok().and_then(|text| text.parse().ok());
    let seeds =
        asked.map_or_else(|| (0..300).map(|n| first.wrapping_add(n)).collect(), |it| vec![it]);
    for seed in seeds {
        println!("PACELINE_SEED={seed}");
        trace(&mut fastrand::Rng::with_seed(seed));
    }
}

fn policy(rng: &mut fastrand::Rng) -> Arc<Policy> {
    Arc::new(POLICIES[rng.usize(0..POLICIES.len())].parse().unwrap())
}

fn step(rng: &mut fastrand::Rng) -> Micros {
    match rng.u32(0..10) {
        0..=3 => 0,
        4..=6 => rng.i64(0..30_000),
        7..=8 => rng.i64(0..1_000_000),
        _ => rng.i64(0..70_000_000),
    }
}

fn ask(rng: &mut fastrand::Rng, policy: &Policy) -> Ask {
    let most = u32::try_from(policy.cost_max().min(12)).unwrap();
    let requests = if rng.bool() { 1 } else { rng.u32(1..=most) };
    let mut cost = Cost::requests(if rng.u32(0..8) == 0 { 0 } else { requests });
    for unit in [Unit::Tokens, Unit::InputTokens, Unit::OutputTokens] {
        if policy.quotas().iter().any(|quota| quota.unit() == unit) && rng.u32(0..4) > 0 {
            cost = policy.part_of(cost.and(unit, rng.u32(0..=45)));
        }
    }
    let cost = if cost.is_nothing() { Cost::requests(1) } else { cost };
    Ask { cost, wait_max_us: [0, 0, 50_000, 1_000_000, 30_000_000][rng.usize(0..5)] }
}

/// As an operator's suspension, or a refusal's.
fn patience(rng: &mut fastrand::Rng) -> Micros {
    if rng.bool() { 0 } else { rng.i64(1..6_000_000) }
}

const START: Micros = 1_790_000_000_123_456;

#[test]
fn p1_alone_a_refused_call_passes_at_exactly_the_told_time() {
    seeds(|rng| {
        let policy = policy(rng);
        let (mut slot, mut now) = (None, START);
        for _ in 0..100 {
            now += step(rng);
            if rng.u32(0..30) == 0 {
                decide::suspend(
                    &mut slot,
                    rng.i64(1..3_000_000),
                    patience(rng),
                    Suspension::default(),
                    now,
                );
            }
            let ask = ask(rng, &policy);
            let Decision::Denied { retry_after_us, .. } =
                decide::take(&mut slot, &policy, ask, now)
            else {
                continue;
            };
            // Who goes first books no place.
            let goes_first = slot.as_ref().is_some_and(|it| it.state.clock.probe != 0);
            assert!(retry_after_us > ask.wait_max_us || goes_first && retry_after_us > 0);
            let again = Ask { wait_max_us: 0, ..ask };
            let passes = |at: Micros| {
                let granted = decide::take(&mut slot.clone(), &policy, again, at);
                matches!(granted, Decision::Granted { wait_us: 0, .. })
            };
            assert!(passes(now + retry_after_us), "{policy}: not at the told time");
            assert!(!passes(now + retry_after_us - 1), "{policy}: sooner than the told time");
        }
    });
}

#[test]
fn p2_a_refusal_leaves_the_bucket_as_if_nobody_had_asked() {
    seeds(|rng| {
        let policy = policy(rng);
        let (mut slot, mut now) = (None, START);
        for _ in 0..100 {
            now += step(rng);
            let before = slot.clone();
            let ask = ask(rng, &policy);
            let decision = decide::take(&mut slot, &policy, ask, now);
            if !matches!(decision, Decision::Granted { .. }) {
                assert_eq!(slot, before);
            }
        }
    });
}

#[test]
fn p3_no_span_holds_more_than_the_policy_promises() {
    seeds(|rng| {
        let policy = policy(rng);
        let (mut slot, mut now, mut forget_at): (Option<Bucket>, _, Micros) = (None, START, 0);
        // Granted moments on the store's clock, as long as nothing moves them.
        let mut granted: Vec<(Micros, Booking)> = Vec::new();
        for _ in 0..300 {
            now += step(rng);
            if slot.is_some() && now >= forget_at {
                slot = None;
            }
            if rng.u32(0..12) == 0 && !granted.is_empty() {
                // A permit that was not used: it may be given back early, late or out of order.
                let back = rng.usize(0..granted.len().min(4)) + 1;
                let (_, booking) = granted.remove(granted.len() - back);
                decide::give_back(&mut slot, booking, now);
            } else {
                let ask = ask(rng, &policy);
                if let Decision::Granted { wait_us, booking, .. } =
                    decide::take(&mut slot, &policy, ask, now)
                {
                    granted.push((now + wait_us, booking));
                }
            }
            if let Some(bucket) = &slot {
                forget_at = now + bucket.lifetime_us(now);
            }
        }
        for quota in policy.quotas() {
            let of = |it: &Booking| i64::from(it.cost.of(quota.unit()));
            let mut calls: Vec<(Micros, i64)> =
                granted.iter().map(|(at, it)| (*at, of(it))).collect();
            calls.sort_unstable();
            holds(quota, &calls, &policy);
        }
    });
}

#[test]
fn p3_what_is_borrowed_is_repaid_before_anybody_else_goes_and_no_span_holds_more() {
    seeds(|rng| {
        let policy = policy(rng);
        let (mut slot, mut now) = (None, START);
        let mut granted: Vec<(Micros, Cost)> = Vec::new();
        for _ in 0..60 {
            now += step(rng);
            let mut left = ask(rng, &policy).cost;
            if rng.bool() {
                // Larger than the policy can hold, also in one unit alone.
                let times = rng.u32(2..6);
                for unit in Unit::ALL {
                    left = left.and(unit, left.of(unit) * times);
                }
            }
            let mut last = now;
            let mut wait_max_us = 40_000_000;
            while !left.is_nothing() {
                let cost = policy.part_of(left);
                let ask = Ask { cost, wait_max_us };
                let Decision::Granted { wait_us, .. } = decide::take(&mut slot, &policy, ask, now)
                else {
                    assert!(wait_max_us < paceline_core::SPAN_MAX_US, "{policy}: {left} is lent");
                    break;
                };
                assert!(now + wait_us >= last, "{policy}");
                last = now + wait_us;
                granted.push((last, cost));
                left = left.less(cost);
                wait_max_us = paceline_core::SPAN_MAX_US;
            }
        }
        for quota in policy.quotas() {
            let of = |cost: &Cost| i64::from(cost.of(quota.unit()));
            let calls: Vec<_> = granted.iter().map(|(at, cost)| (*at, of(cost))).collect();
            holds(quota, &calls, &policy);
        }
    });
}

#[test]
fn p3_holds_as_time_really_passes_whoever_goes_first_in_a_suspension() {
    let first = std::cell::Cell::new(0);
    seeds(|rng| {
        let policy = policy(rng);
        let (mut slot, mut now) = (None, START);
        let mut calls = Vec::new();
        for _ in 0..300 {
            now += step(rng).min(2_000_000);
            match rng.u32(0..16) {
                0 => {
                    let for_us = rng.i64(1..1_000_000);
                    decide::suspend(&mut slot, for_us, patience(rng), Suspension::default(), now);
                }
                1 => drop(decide::probed(&mut slot, 0, now)),
                2 => drop(decide::resume(&mut slot, now)),
                _ => {
                    let ask = Ask { wait_max_us: 0, ..ask(rng, &policy) };
                    let decision = decide::take(&mut slot, &policy, ask, now);
                    if let Decision::Granted { wait_us, probe, .. } = decision {
                        assert_eq!(wait_us, 0);
                        first.set(first.get() + i32::from(probe));
                        calls.push((now, ask.cost));
                    }
                }
            }
        }
        for quota in policy.quotas() {
            let of = |cost: &Cost| i64::from(cost.of(quota.unit()));
            let calls: Vec<_> = calls.iter().map(|(at, cost)| (*at, of(cost))).collect();
            holds(quota, &calls, &policy);
        }
    });
    assert!(first.get() > 0, "some go first");
}

/// Every span of calls against one quota's promise.
fn holds(quota: &Quota, calls: &[(Micros, i64)], policy: &Policy) {
    let span_us = i64::try_from(quota.guarded().as_micros()).unwrap();
    for (first, &(from, _)) in calls.iter().enumerate() {
        let mut sum = 0;
        for &(until, cost) in &calls[first..] {
            sum += cost;
            let most = match quota.shape() {
                Shape::TokenBucket { burst } => {
                    let earned =
                        i128::from(quota.limit()) * i128::from(until - from) / i128::from(span_us);
                    i128::from(burst) + earned
                }
                Shape::Window if until - from < span_us => i128::from(quota.limit()),
                Shape::Window => break,
            };
            assert!(
                i128::from(sum) <= most,
                "{policy}: {sum} in {} us, at most {most}",
                until - from
            );
        }
    }
}

#[test]
fn p4_a_bucket_may_be_forgotten_exactly_when_a_new_one_would_be_no_fuller() {
    seeds(|rng| {
        let policy = policy(rng);
        let (mut slot, mut now) = (None, START);
        for _ in 0..60 {
            now += step(rng);
            let ask = ask(rng, &policy);
            decide::take(&mut slot, &policy, ask, now);
            if rng.u32(0..20) == 0 {
                decide::suspend(
                    &mut slot,
                    rng.i64(1..3_000_000),
                    patience(rng),
                    Suspension::default(),
                    now,
                );
            }
            let Some(bucket) = &slot else { continue };
            let gone = now + bucket.lifetime_us(now);
            assert!(gone - now >= bucket.keep_us);
            let kept = bucket.view(gone);
            assert!(kept.suspension.is_none() && kept.booked_us == 0);
            for quota in kept.quotas {
                assert_eq!(quota.remaining, quota.capacity, "{policy}");
            }
        }
    });
}

#[test]
fn a_window_with_a_large_limit_keeps_few_entries_and_wastes_at_most_a_64th() {
    seeds(|rng| {
        let limit = rng.i64(65..5_000);
        let policy: Arc<Policy> = Arc::new(format!("window {limit}/10s").parse().unwrap());
        let (mut slot, mut now) = (None, START);
        let mut taken: Vec<(Micros, i64)> = Vec::new();
        for _ in 0..2_000 {
            now += rng.i64(0..15_000);
            let cost = rng.u32(1..20);
            let ask = Ask { cost: cost.into(), wait_max_us: 0 };
            let cost = i64::from(cost);
            let live: i64 =
                taken.iter().filter(|(at, _)| at + 10_000_000 > now).map(|it| it.1).sum();
            match decide::take(&mut slot, &policy, ask, now) {
                Decision::Granted { .. } => {
                    taken.push((now, cost));
                    assert!(live + cost <= limit);
                }
                Decision::Denied { .. } => {
                    let unused = limit - live - cost;
                    assert!(unused * 64 <= limit, "{unused} of {limit} withheld");
                }
                Decision::Never { .. } => panic!("a cost below the limit"),
            }
            let entries = slot.as_ref().map(|bucket| match &bucket.state.levels[0] {
                paceline_core::Level::Window(window) => window.entries.len(),
                paceline_core::Level::Credit(_) => 0,
            });
            assert!(entries <= Some(64), "{entries:?}");
        }
    });
}

#[test]
fn a_batch_gives_what_asking_for_its_calls_one_by_one_would() {
    seeds(|rng| {
        let policy = policy(rng);
        let (mut slot, mut now) = (None, START);
        for _ in 0..60 {
            now += step(rng);
            if rng.u32(0..20) == 0 {
                decide::suspend(
                    &mut slot,
                    rng.i64(1..3_000_000),
                    patience(rng),
                    Suspension::default(),
                    now,
                );
            }
            let group = |_| Group { ask: ask(rng, &policy), calls: rng.i64(1..40) };
            let groups: Vec<Group> = (0..3).map(group).collect();
            let (mut one_by_one, mut given, mut stopped) = (slot.clone(), Vec::new(), None);
            let mut goes_first = false;
            for group in &groups {
                for _ in 0..group.calls {
                    if stopped.is_some() {
                        break;
                    }
                    match decide::take(&mut one_by_one, &policy, group.ask, now) {
                        Decision::Granted { booking, wait_us, probe } => {
                            assert!(!probe || given.is_empty() && wait_us == 0);
                            goes_first |= probe;
                            given.push((booking, wait_us));
                        }
                        refused => stopped = Some(refused),
                    }
                }
            }
            let batch = decide::batch(&mut slot, &policy, &groups, now);
            let of_batch = bookings(&batch, &groups).into_iter();
            assert_eq!(batch.probe, goes_first, "{policy}");
            let of_batch: Vec<_> = of_batch
                .enumerate()
                .map(|(index, booking)| match batch.sight.standing(&booking) {
                    Standing::Due(_) if index == 0 && goes_first => (booking, 0),
                    Standing::Due(wait_us) => (booking, wait_us),
                    Standing::Void => panic!("just booked"),
                })
                .collect();
            assert_eq!((of_batch, batch.stopped), (given, stopped), "{policy}");
            assert_eq!(slot, one_by_one, "{policy}");
        }
    });
}

#[test]
fn a_sight_tells_of_every_booking_whether_it_stands_and_when_it_is_due() {
    let policy: Arc<Policy> = Arc::new("1/s".parse().unwrap());
    let mut slot = None;
    let groups = [Group { ask: Ask { cost: 1.into(), wait_max_us: 5_000_000 }, calls: 2 }];
    let start = 10_000_000;
    let booked = bookings(&decide::batch(&mut slot, &policy, &groups, start), &groups);
    let standing = |slot: &mut Option<Bucket>, now| {
        decide::batch(slot, &policy, &[], now).sight.standing(&booked[1])
    };
    assert_eq!(standing(&mut slot, start), Standing::Due(1_000_000));
    assert_eq!(standing(&mut slot, start + 400_000), Standing::Due(600_000));
    assert_eq!(standing(&mut slot, start + 3_000_000), Standing::Due(0));
    decide::suspend(&mut slot, 2_000_000, 0, Suspension::default(), start + 400_000);
    assert_eq!(standing(&mut slot, start + 900_000), Standing::Due(2_100_000));
    decide::resume(&mut slot, start + 900_000);
    assert_eq!(standing(&mut slot, start + 900_000), Standing::Due(600_000));
    let other = Arc::new("2/s".parse().unwrap());
    decide::set(&mut slot, &other, false, start + 900_000);
    assert_eq!(standing(&mut slot, start + 900_000), Standing::Void);
    assert_eq!(standing(&mut None, start + 900_000), Standing::Void);
}
