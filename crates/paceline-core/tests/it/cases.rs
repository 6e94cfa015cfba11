//! Failures people reported of limiters like ours, by their number in the collection they come
//! from; each right result, as far as the decision alone decides it.

use std::sync::Arc;

use paceline_core::decide;
use paceline_core::{Ask, Bucket, Cause, Cost, Decision, Micros, Policy, Unit};

const START: Micros = 1_790_000_000_123_456;
const S: Micros = 1_000_000;

/// One bucket under a clock that counts from [`START`].
struct Case {
    policy: Arc<Policy>,
    slot: Option<Bucket>,
}

impl Case {
    fn new(policy: &str) -> Self {
        Self { policy: Arc::new(policy.parse().unwrap()), slot: None }
    }

    fn take(&mut self, cost: impl Into<Cost>, at: Micros) -> Decision {
        let ask = Ask { cost: cost.into(), wait_max_us: 0 };
        decide::take(&mut self.slot, &self.policy, ask, START + at)
    }

    #[track_caller]
    fn allowed(&mut self, cost: impl Into<Cost>, at: Micros) {
        let decision = self.take(cost, at);
        assert!(matches!(decision, Decision::Granted { wait_us: 0, .. }), "{decision:?}");
    }

    #[track_caller]
    fn denied(&mut self, cost: impl Into<Cost>, at: Micros, retry_after_us: Micros) {
        let cause = match self.take(cost, at) {
            Decision::Denied { retry_after_us: told, cause } if told == retry_after_us => cause,
            other => panic!("{other:?}"),
        };
        assert!(matches!(cause, Cause::Quota(_)));
    }

    #[track_caller]
    fn set(&mut self, policy: &str, at: Micros) {
        decide::set(&mut self.slot, &Arc::new(policy.parse().unwrap()), false, START + at);
    }

    fn left(&self, at: Micros) -> Vec<i64> {
        let view = self.slot.as_ref().unwrap().view(START + at);
        view.quotas.iter().map(|quota| quota.remaining).collect()
    }

    fn count(&mut self, calls: usize, at: Micros) -> usize {
        (0..calls).filter(|_| matches!(self.take(1, at), Decision::Granted { .. })).count()
    }
}

#[test]
fn c01_waits_under_a_second_stay_what_they_are() {
    let mut case = Case::new("1/s");
    case.allowed(1, 0);
    case.denied(1, 400_000, 600_000);
    let mut case = Case::new("1/s burst 2");
    case.allowed(2, 0);
    case.denied(2, 500_000, 1_500_000);
}

#[test]
fn c03_rates_above_a_thousand_a_second_hold() {
    let mut case = Case::new("2000/s burst 1");
    case.allowed(1, 0);
    for _ in 0..9 {
        case.denied(1, 0, 500);
    }
    let mut case = Case::new("1000/m burst 1001");
    for left in [1_000, 999, 998] {
        case.allowed(1, 0);
        assert_eq!(case.left(0), [left]);
    }
    assert_eq!(Case::new("6000/s").count(12_000, 0), 6_000);
}

#[test]
fn c04_a_full_bucket_goes_on_after_a_long_step_back() {
    for policy in ["window 5/s", "5/s burst 5"] {
        let mut case = Case::new(policy);
        assert_eq!(case.count(9, 0), 5);
        // The first that is refused makes the step good; it earns nothing.
        assert_eq!(case.count(9, -3_600 * S), 0);
        assert_eq!(case.count(9, -3_599 * S), 5, "{policy}");
    }
}

#[test]
fn c04_a_clock_that_steps_back_earns_nothing_twice() {
    let mut case = Case::new("2/s burst 4");
    assert_eq!(case.count(5, 0), 4);
    assert_eq!(case.count(5, -10 * S), 0);
    assert_eq!(case.count(5, -10 * S + 1), 0);
    let mut case = Case::new("1/s burst 5");
    assert_eq!(case.count(3, 100 * S), 3);
    case.allowed(1, 89 * S);
    assert_eq!(case.left(89 * S), [1]);
    // Refill goes on from there: nothing stalls for the size of the step.
    assert_eq!(case.left(90 * S), [2]);
}

#[test]
fn c06_an_idle_spell_is_credited_once_and_up_to_the_burst() {
    let mut case = Case::new("1/s");
    case.allowed(1, 0);
    assert_eq!(case.count(40, 30 * S), 1);
    // Ten in a row, each waiting for its token, take at least nine tenths of a second.
    let mut case = Case::new("10/s burst 1");
    let mut now = 0;
    for _ in 0..10 {
        if let Decision::Denied { retry_after_us, .. } = case.take(1, now) {
            now += retry_after_us;
            case.allowed(1, now);
        }
    }
    assert_eq!(now, 900_000);
}

#[test]
fn c12_a_bucket_is_kept_until_it_is_full() {
    let mut case = Case::new("1/15s burst 3");
    case.allowed(3, 0);
    assert!(case.slot.as_ref().unwrap().lifetime_us(START) >= 45 * S);
    case.denied(3, 7 * S, 38 * S);
}

#[test]
fn c13_a_lifetime_is_always_a_whole_positive_time_below_the_cap() {
    for limit in [1, 7, 1_000_000] {
        for interval in ["1ms", "1s", "1h", "30d"] {
            for burst in [1, 1_000, 1_000_000_000] {
                let Ok(policy) = format!("{limit}/{interval} burst {burst}").parse::<Policy>()
                else {
                    continue;
                };
                let mut case = Case { policy: Arc::new(policy), slot: None };
                case.allowed(burst, 0);
                let lifetime = case.slot.as_ref().unwrap().lifetime_us(START);
                assert!(
                    (S..=36_500 * 86_400 * S).contains(&lifetime),
                    "{limit}/{interval}: {lifetime}"
                );
            }
        }
    }
}

#[test]
fn c16_setting_the_same_limit_again_changes_nothing() {
    let mut case = Case::new("5/m");
    for _ in 0..5 {
        case.set("5/m", 0);
        case.allowed(1, 0);
    }
    case.set("5/60s burst 5", 0);
    case.denied(1, 0, 12 * S);
    case.set("10/m", 0);
    assert_eq!(case.left(0), [0]);
}

#[test]
fn c17_a_new_limit_binds_the_next_call() {
    let mut case = Case::new("100/m");
    case.allowed(1, 0);
    case.set("10/m", 0);
    case.allowed(1, 0);
    assert_eq!(case.left(0), [9]);
    let mut case = Case::new("30/m");
    case.allowed(1, 0);
    case.set("0/m", 0);
    assert_eq!(case.take(1, S), Decision::Never { cost_max: 0, quota: 1 });
    case.set("150/m", S);
    case.denied(1, S, 400_000);
    case.allowed(1, S + 400_000);
}

#[test]
fn c19_limit_zero_lets_nothing_pass() {
    for policy in ["0/m", "0/m burst 5", "window 0/s", "5/s, 0/h"] {
        let mut case = Case::new(policy);
        let decision = case.take(1, 0);
        assert!(matches!(decision, Decision::Never { cost_max: 0, .. }), "{policy}: {decision:?}");
        assert_eq!(case.slot, None);
    }
}

#[test]
fn c20_a_cost_above_capacity_is_refused_at_once_and_takes_nothing() {
    let mut case = Case::new("200/s, 100/m, window 150/h");
    assert_eq!(case.take(101, 0), Decision::Never { cost_max: 100, quota: 2 });
    assert_eq!(case.slot, None);
    case.allowed(100, 0);
    case.set("200/s, 10/m, window 150/h", 0);
    assert_eq!(case.take(11, 0), Decision::Never { cost_max: 10, quota: 2 });
}

#[test]
fn c20_of_several_units_the_quota_that_is_too_small_is_named() {
    let mut case = Case::new("500/m, 30000/m of tokens, window 40000/m of tokens");
    let call = |requests, tokens| Cost::requests(requests).and(Unit::Tokens, tokens);
    assert_eq!(case.take(call(1, 30_001), 0), Decision::Never { cost_max: 30_000, quota: 2 });
    assert_eq!(case.take(call(501, 1), 0), Decision::Never { cost_max: 500, quota: 1 });
    assert_eq!(case.take(call(501, 50_000), 0), Decision::Never { cost_max: 500, quota: 1 });
    assert_eq!(case.slot, None);
    case.allowed(call(500, 30_000), 0);
    // What no quota counts is nobody's.
    case.allowed(Cost::only(Unit::Bytes, u32::MAX), 0);
    // A limit of 0 stops who takes something of it, and nobody else.
    let mut case = Case::new("0/m of tokens, 5/s");
    assert_eq!(case.take(call(1, 1), 0), Decision::Never { cost_max: 0, quota: 1 });
    case.allowed(5, 0);
    case.denied(1, 0, S / 5);
}

#[test]
fn c21_a_denial_changes_nothing_and_a_fast_poller_gets_its_token() {
    let mut case = Case::new("1/10s burst 10");
    case.allowed(8, 0);
    let lifetime = case.slot.as_ref().unwrap().lifetime_us(START);
    case.denied(5, 0, 30 * S);
    assert_eq!(case.slot.as_ref().unwrap().lifetime_us(START), lifetime);
    assert_eq!(case.left(0), [2]);
    case.allowed(1, 0);
    let mut case = Case::new("1/s");
    let passed: Vec<Micros> = (0..=6)
        .map(|poll| poll * 600_000)
        .filter(|at| matches!(case.take(1, *at), Decision::Granted { .. }))
        .collect();
    assert_eq!(passed, [0, 1_200_000, 2_400_000, 3_600_000]);
}

#[test]
fn c22_all_quotas_or_none_whatever_their_order() {
    for policy in ["10/m, 30/30m", "30/30m, 10/m"] {
        let mut case = Case::new(policy);
        assert_eq!(case.count(31, 0), 10);
        let mut left = case.left(0);
        left.sort_unstable();
        assert_eq!(left, [0, 20], "{policy}");
    }
    let mut case = Case::new("10/m, 30/30m");
    assert_eq!(case.count(10, 0), 10);
    let decision = case.take(1, 0);
    assert!(matches!(decision, Decision::Denied { cause: Cause::Quota(1), .. }), "{decision:?}");
}

#[test]
fn c22_a_call_passes_in_all_its_units_or_takes_nothing_of_any() {
    for policy in [
        "500/m, 30000/m of tokens",
        "30000/m of tokens, 500/m",
        "window 500/m, window 30000/m of tokens",
    ] {
        let mut case = Case::new(policy);
        let call = Cost::requests(1).and(Unit::Tokens, 4_000);
        for _ in 0..7 {
            case.allowed(call, 0);
        }
        let quota = if policy.starts_with("30000") { 1 } else { 2 };
        let tokens = quota - 1;
        // Held up by tokens, while requests have room.
        let denied = case.take(call, 0);
        assert!(
            matches!(denied, Decision::Denied { cause: Cause::Quota(it), .. } if it == quota),
            "{policy}: {denied:?}"
        );
        let left = case.left(0);
        assert_eq!((left[1 - tokens], left[tokens]), (493, 2_000), "{policy}");
        case.allowed(Cost::requests(1).and(Unit::Tokens, 2_000), 0);
        // Nothing of tokens, so nothing to wait for; and those are held up by requests alone.
        assert_eq!(case.count(500, 0), 492, "{policy}");
        let denied = case.take(1, 0);
        assert!(matches!(denied, Decision::Denied { cause: Cause::Quota(it), .. } if it != quota));
        assert_eq!(case.left(0), [0, 0], "{policy}");
    }
    let mut case = Case::new("500/m, 30000/m of tokens");
    case.allowed(Cost::requests(1).and(Unit::Tokens, 30_000), 0);
    case.denied(Cost::requests(1).and(Unit::Tokens, 4_000), 0, 8 * S);
    case.allowed(Cost::requests(1).and(Unit::Tokens, 4_000), 8 * S);
}

#[test]
fn c29_quotas_of_one_limit_and_interval_count_each_their_own_unit() {
    let mut case = Case::new("5/h of input-tokens, 5/h of output-tokens, window 5/h of points");
    let only = |unit| Cost::only(unit, 5);
    for unit in [Unit::OutputTokens, Unit::Points, Unit::InputTokens] {
        case.allowed(only(unit), 0);
        assert!(matches!(case.take(only(unit), 0), Decision::Denied { .. }));
    }
    // A new policy goes on from the quota of the same unit, wherever that stands.
    let mut case = Case::new("5/h of input-tokens, 5/h of output-tokens");
    case.allowed(Cost::only(Unit::OutputTokens, 4), 0);
    case.set("6/h, 5/h of output-tokens, 5/h of input-tokens", 0);
    assert_eq!(case.left(0), [6, 1, 5]);
}

#[test]
fn a_call_that_takes_nothing_of_a_quota_is_not_held_up_by_it() {
    // A new policy may find a window above its limit, and a level below nothing.
    let mut case = Case::new("window 100/m of tokens, 50/s");
    case.allowed(Cost::only(Unit::Tokens, 90), 0);
    case.set("window 20/m of tokens, 50/s", 0);
    case.allowed(1, 0);
    assert_eq!(case.left(0), [0, 49]);
    case.denied(Cost::only(Unit::Tokens, 1), 0, 60 * S);
    // It keeps its turn behind what is booked, all the same.
    let mut case = Case::new("10/s, 60/m burst 5 of tokens");
    case.allowed(Cost::only(Unit::Tokens, 5), 0);
    let ask = Ask { cost: Cost::only(Unit::Tokens, 2), wait_max_us: 5 * S };
    let booked = decide::take(&mut case.slot, &case.policy, ask, START);
    assert!(matches!(booked, Decision::Granted { wait_us, .. } if wait_us == 2 * S));
    case.denied(1, 0, 2 * S);
}

#[test]
fn c30_a_token_bucket_promises_burst_and_refill_and_a_window_only_the_limit() {
    let greedy = |policy: &str| {
        let mut case = Case::new(policy);
        (0..600).map(|tenth| case.count(20, tenth * S / 10)).sum::<usize>()
    };
    assert_eq!(greedy("15/m"), 29);
    assert_eq!(greedy("window 15/m"), 15);
    // Paced one at a time, and never more than the limit in a minute and its guard.
    assert_eq!(greedy("strict 15/m"), 15);
}
