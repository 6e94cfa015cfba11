//! What providers' answers do to a bucket: less that is left, refusals without a time, and limits
//! that they state. The seed of a failing run is printed; `PACELINE_SEED` repeats it.

use std::sync::Arc;

use paceline_core::decide;
use paceline_core::{
    Ask, Booking, Bucket, Decision, Lowered, Micros, Policy, Remaining, Suspension,
};

const START: Micros = 1_790_000_000_123_456;
const SECOND: Micros = 1_000_000;

fn policy(text: &str) -> Arc<Policy> {
    Arc::new(text.parse().unwrap())
}

fn take(slot: &mut Option<Bucket>, own: &Arc<Policy>, cost: u32, now: Micros) -> Option<Booking> {
    match decide::take(slot, own, Ask { cost: cost.into(), wait_max_us: 0 }, now) {
        Decision::Granted { booking, .. } => Some(booking),
        _ => None,
    }
}

/// When a call of `cost` would pass, from `now`.
fn wait(slot: &Option<Bucket>, own: &Arc<Policy>, cost: u32, now: Micros) -> Micros {
    match decide::take(&mut slot.clone(), own, Ask { cost: cost.into(), wait_max_us: 0 }, now) {
        Decision::Granted { .. } => 0,
        Decision::Denied { retry_after_us, .. } => retry_after_us,
        Decision::Never { .. } => Micros::MAX,
    }
}

fn left(slot: &Option<Bucket>, now: Micros) -> i64 {
    slot.as_ref().unwrap().view(now).quotas.last().unwrap().remaining
}

/// An answer about the only quota, or the last of a few.
fn said(own: &Policy, tokens: i64, resets_in_us: Micros) -> Remaining {
    let quota = own.quotas().len();
    let interval_us = i64::try_from(own.quotas()[quota - 1].interval().as_micros()).unwrap();
    Remaining {
        quota,
        interval_us,
        tokens,
        resets_in_us,
        blur_us: 0,
        sent: None,
        unstoppable_us: 0,
        is_shared: true,
    }
}

fn lower(slot: &mut Option<Bucket>, said: Remaining, now: Micros) -> Lowered {
    decide::lower(slot, said, Suspension::default(), now)
}

#[test]
fn what_others_have_spent_counts_until_the_providers_window_is_over() {
    let own = policy("window 10/m");
    let mut slot = None;
    assert!(take(&mut slot, &own, 3, START).is_some());
    let answer = said(&own, 4, 20 * SECOND);
    assert_eq!(lower(&mut slot, answer, START).tokens, 3);
    assert_eq!(left(&slot, START), 4);
    assert_eq!(wait(&slot, &own, 4, START), 0);
    // The fifth comes back with the provider's window, ours only when a minute is over.
    assert_eq!(wait(&slot, &own, 5, START), 20 * SECOND);
    assert_eq!(wait(&slot, &own, 8, START), 60 * SECOND);
}

#[test]
fn more_than_we_reckon_with_changes_nothing() {
    for text in ["window 10/m", "window 1000/m", "10/m"] {
        let own = policy(text);
        let mut slot = None;
        assert!(take(&mut slot, &own, 8, START).is_some());
        let before = slot.clone();
        for tokens in [i64::from(own.quotas()[0].limit()) - 8, 1_000_000_000] {
            assert_eq!(lower(&mut slot, said(&own, tokens, SECOND), START), Lowered::default());
            assert_eq!(slot, before, "{text}, {tokens} left");
        }
    }
}

#[test]
fn the_same_answer_again_and_again_lowers_once() {
    for text in ["window 10/m guard 1s", "window 1000/m", "window 70/m"] {
        let own = policy(text);
        let limit = i64::from(own.quotas()[0].limit());
        let mut slot = None;
        assert!(take(&mut slot, &own, 3, START).is_some());
        for step in 0..200 {
            // The moment of the reset stays, as told with a jitter of a few milliseconds.
            let now = START + step * 1_000;
            let jitter = step * 7_919 % 3_000;
            let answer =
                Remaining { blur_us: 5_000, ..said(&own, 4, 20 * SECOND - step * 1_000 + jitter) };
            let lowered = lower(&mut slot, answer, now).tokens;
            assert_eq!(lowered, if step == 0 { limit - 3 - 4 } else { 0 }, "{text}, {step}");
        }
        assert_eq!(left(&slot, START + SECOND), 4, "{text}");
    }
}

#[test]
fn only_what_was_taken_in_the_providers_own_window_is_compared() {
    let own = policy("window 10/m");
    let mut slot = None;
    assert!(take(&mut slot, &own, 6, START).is_some());
    // Its window began half a minute later: it has forgotten those six, we have not. Four others.
    let now = START + 31 * SECOND;
    let answer = said(&own, 6, 59 * SECOND);
    assert_eq!(lower(&mut slot, answer, now).tokens, 4);
    assert_eq!(left(&slot, now), 0);
    assert_eq!(wait(&slot, &own, 6, now), 29 * SECOND);
    assert_eq!(wait(&slot, &own, 7, now), 59 * SECOND);
}

#[test]
fn own_calls_under_way_are_reckoned_in() {
    let own = policy("window 10/m");
    let mut slot = None;
    let first = take(&mut slot, &own, 1, START).unwrap();
    for step in 1..4 {
        assert!(take(&mut slot, &own, 1, START + step * 1_000).is_some());
    }
    let now = START + 50_000;
    // Nine left after the first: the provider has not heard of the other three yet.
    let answer = Remaining { sent: Some(first), ..said(&own, 9, 60 * SECOND - 50_000) };
    assert_eq!(lower(&mut slot, answer, now).tokens, 0);
    assert_eq!(left(&slot, now), 6);
    // Seven left: two were taken by others.
    let answer = Remaining { tokens: 7, ..answer };
    assert_eq!(lower(&mut slot, answer, now).tokens, 2);
    assert_eq!(left(&slot, now), 4);
}

#[test]
fn an_answer_to_a_call_under_an_earlier_policy_or_about_another_quota_changes_nothing() {
    let own = policy("window 10/m");
    let mut slot = None;
    let sent = take(&mut slot, &own, 1, START).unwrap();
    let answer = said(&own, 0, 20 * SECOND);
    let before = slot.clone();
    for other in [
        Remaining { quota: 0, ..answer },
        Remaining { quota: 2, ..answer },
        Remaining { quota: usize::MAX, ..answer },
        Remaining { interval_us: 60 * SECOND + 1, ..answer },
    ] {
        assert_eq!(lower(&mut slot, other, START), Lowered::default(), "{other:?}");
    }
    assert_eq!(slot, before);
    assert_eq!(lower(&mut None, answer, START), Lowered::default());
    decide::set(&mut slot, &policy("window 20/m"), false, START + SECOND);
    let before = slot.clone();
    let straggler = Remaining { sent: Some(sent), ..answer };
    assert_eq!(lower(&mut slot, straggler, START + 2 * SECOND), Lowered::default());
    assert_eq!(slot, before);
}

#[test]
fn a_token_bucket_is_lowered_to_what_is_left_and_what_has_come_back_since() {
    let own = policy("2/s burst 39");
    let mut slot = None;
    let sent = take(&mut slot, &own, 1, START).unwrap();
    // 32 of 40 used, a second ago; one more was taken since.
    assert!(take(&mut slot, &own, 1, START + SECOND).is_some());
    let answer = Remaining { sent: Some(sent), ..said(&own, 8, 0) };
    assert_eq!(lower(&mut slot, answer, START + SECOND).tokens, 28);
    assert_eq!(left(&slot, START + SECOND), 10);
    assert_eq!(lower(&mut slot, answer, START + SECOND).tokens, 0);
}

#[test]
fn where_what_is_left_is_about_to_be_taken_the_bucket_stops_until_the_reset() {
    let own = policy("50/s burst 1, window 50/s");
    let mut slot = None;
    let sent = take(&mut slot, &own, 1, START).unwrap();
    for _ in 0..10 {
        decide::take(&mut slot, &own, Ask { cost: 1.into(), wait_max_us: SECOND }, START);
    }
    // Places every 20 ms; those of the next 50 ms go whatever is said.
    for (tokens, stops) in [(49, false), (5, false), (4, true), (0, true)] {
        let mut slot = slot.clone();
        let answer =
            Remaining { sent: Some(sent), unstoppable_us: 50_000, ..said(&own, tokens, 400_000) };
        let lowered = lower(&mut slot, answer, START + 5_000);
        assert_eq!(lowered.left_us, if stops { 400_000 } else { 0 }, "{tokens} left");
        // It is stopped once, and not a little longer by each further answer.
        assert_eq!(lower(&mut slot, answer, START + 6_000).left_us, 0);
    }
    // With nobody about to go, the last one may be taken.
    let mut slot = None;
    let sent = take(&mut slot, &own, 1, START);
    let answer = Remaining { sent, unstoppable_us: 50_000, ..said(&own, 1, 400_000) };
    assert_eq!(lower(&mut slot, answer, START + 5_000).left_us, 0);
}

#[test]
fn a_stop_for_others_ends_with_their_window_as_any_that_an_answer_causes() {
    let own = policy("window 10/10s");
    let mut slot = None;
    let sent = take(&mut slot, &own, 1, START);
    assert!(take(&mut slot, &own, 4, START + 1_000).is_some());
    let now = START + 2_000;
    let answer = Remaining { sent, unstoppable_us: 40_000, ..said(&own, 0, 5 * SECOND) };
    assert_eq!(lower(&mut slot, answer, now).left_us, 5 * SECOND);
    // What others took is over by then, and our own five are five seconds old.
    assert_eq!(wait(&slot, &own, 5, now), 5 * SECOND);
}

#[test]
fn a_fleet_that_has_the_quota_to_itself_is_never_stopped_by_how_little_is_left() {
    for text in ["strict 50/s", "strict 250/5s", "window 50/s guard 20ms"] {
        let own = policy(text);
        let limit = i64::from(own.quotas()[0].limit());
        let (mut slot, mut now) = (None, START);
        let (mut places, mut calls) = (std::collections::VecDeque::new(), Vec::new());
        for step in 0..2_000 {
            now += 5_000;
            let ask = Ask { cost: 1.into(), wait_max_us: SECOND };
            while let Decision::Granted { booking, .. } = decide::take(&mut slot, &own, ask, now) {
                places.push_back(booking);
                calls.push(booking.due);
            }
            // Each is answered 20 ms later, and the provider counts a window that began with it.
            while places.front().is_some_and(|it| it.due + 20_000 <= now) {
                let sent = places.pop_front().unwrap();
                let span = i64::try_from(own.quotas()[0].interval().as_micros()).unwrap();
                let began = sent.due - (sent.due - START) % span;
                let counts = |due: &&Micros| **due >= began && **due <= sent.due;
                let counted = i64::try_from(calls.iter().filter(counts).count()).unwrap();
                let answer = Remaining {
                    sent: Some(sent),
                    unstoppable_us: 20_000,
                    is_shared: false,
                    blur_us: 1_000_000,
                    ..said(&own, limit - counted, (began + span - now + 900_000).max(0))
                };
                let lowered = lower(&mut slot, answer, now);
                assert_eq!(lowered, Lowered::default(), "{text}, {step}");
            }
        }
    }
}

#[test]
fn lowering_never_lets_a_call_pass_sooner() {
    let first = fastrand::u64(..);
    let asked = std::env::var("PACELINE_SEED").ok().and_then(|text| text.parse().ok());
    let seeds =
        asked.map_or_else(|| (0..300).map(|n| first.wrapping_add(n)).collect(), |it| vec![it]);
    for seed in seeds {
        println!("PACELINE_SEED={seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        let texts =
            ["window 10/s", "window 300/s guard 50ms", "strict 20/s", "7/s", "2/s burst 40"];
        let own = policy(texts[rng.usize(0..texts.len())]);
        let limit = i64::from(own.quotas().last().unwrap().limit());
        let (mut slot, mut now, mut sent) = (None, START, None);
        for _ in 0..100 {
            now += rng.i64(0..200_000);
            sent = take(&mut slot, &own, 1, now).or(sent);
            let before = slot.clone();
            let answer = Remaining {
                sent: sent.filter(|_| rng.bool()),
                blur_us: rng.i64(0..100_000),
                ..said(&own, rng.i64(0..=limit), rng.i64(0..1_500_000))
            };
            lower(&mut slot, answer, now);
            for cost in 1..=u32::try_from(own.cost_max().min(12)).unwrap() {
                let at = now + rng.i64(0..2 * SECOND);
                let (was, is) = (wait(&before, &own, cost, at), wait(&slot, &own, cost, at));
                assert!(is >= was, "{own}: {cost} at {at} waits {is}, not {was}; {answer:?}");
            }
        }
    }
}

#[test]
fn c37_refusals_without_a_time_stop_the_bucket_only_where_several_are_refused_in_a_row() {
    let own = policy("50/s");
    let mut slot = None;
    let refuse = |slot: &mut Option<Bucket>, by, now| {
        decide::refused(slot, by, 2 * SECOND, 0, Suspension::default(), now).left_us
    };
    for step in 0..20 {
        // One with a name that is refused each time; others pass.
        assert_eq!(refuse(&mut slot, 7, START + step), 0);
        assert!(step % 2 == 0 || decide::passed(&mut slot));
    }
    assert_eq!(wait(&slot, &own, 1, START + 20), 0);
    decide::passed(&mut slot);
    assert!(!decide::passed(&mut slot));
    // Two within two minutes, and nobody has passed.
    assert_eq!(refuse(&mut slot, 7, START + 20), 0);
    let later = START + 120 * SECOND + 20;
    assert_eq!(refuse(&mut slot, 8, later), 2 * SECOND);
    assert_eq!(wait(&slot, &own, 1, later), 2 * SECOND);
    // Longer ago it has nothing to do with it.
    assert_eq!(refuse(&mut slot, 7, later + 120 * SECOND + 1), 0);
    for by in 0..10_000 {
        refuse(&mut slot, by, later + 121 * SECOND);
    }
    assert!(slot.unwrap().state.bare.by.len() <= 8, "no end of them is remembered");
}

#[test]
fn a_limit_is_learned_only_where_nobody_else_has_set_one() {
    let (own, learned, third) = (policy("50/s"), policy("25/s"), policy("10/s"));
    let mut slot = None;
    assert!(!decide::set_if(&mut slot, &own, &learned, START), "there is none");
    assert!(take(&mut slot, &own, 1, START).is_some());
    assert!(!decide::set_if(&mut slot, &third, &learned, START));
    assert!(decide::set_if(&mut slot, &own, &learned, START));
    assert_eq!(slot.as_ref().and_then(|bucket| bucket.policy.clone()), Some(learned.clone()));
    assert!(!decide::set_if(&mut slot, &own, &third, START), "another was quicker");
    decide::set(&mut slot, &learned, true, START);
    assert!(!decide::set_if(&mut slot, &learned, &third, START), "an operator has pinned it");
}
