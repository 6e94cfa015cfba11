//! Policies: the text form there and back, what is refused and with which words, and that all of
//! the promised range can be counted.

use std::time::Duration;

use paceline_core::{Cost, Policy, Quota, Shape, Unit};
use proptest::prelude::*;

#[test]
fn a_policy_is_printed_as_it_is_best_written() {
    for (written, printed) in [
        ("50/s burst 10, window 1000/m guard 50ms", "50/s burst 10, window 1000/m guard 50ms"),
        ("  5/1s  burst 5 ,7/60s", "5/s, 7/m"),
        ("100/10s", "100/10s"),
        ("1/7200s", "1/2h"),
        ("1/30d", "1/30d"),
        ("10/s guard 50ms burst 1", "10/s burst 1 guard 50ms"),
        ("3/1500ms guard 1us", "3/1500ms guard 1us"),
        ("0/m", "0/m"),
        ("5/s, idle 10m", "5/s, idle 10m"),
        ("5/s, idle 3s", "5/s"),
        ("strict 100/m", "100/m burst 1 guard 60ms, window 100/m guard 60ms"),
        ("strict 5/s guard 20ms", "5/s burst 1 guard 20ms, window 5/s guard 20ms"),
        ("500/m of requests, 30000/m of tokens", "500/m, 30000/m of tokens"),
        ("window 90000/m guard 1s of input-tokens", "window 90000/m guard 1s of input-tokens"),
        ("9/s burst 2 of points, idle 10m", "9/s burst 2 of points, idle 10m"),
        ("strict 5/s guard 20ms of requests", "5/s burst 1 guard 20ms, window 5/s guard 20ms"),
    ] {
        let policy: Policy = written.parse().unwrap();
        assert_eq!(policy.to_string(), printed, "{written}");
        assert_eq!(printed.parse::<Policy>().unwrap(), policy, "{written}");
    }
}

#[test]
fn a_bad_policy_is_refused_with_the_value_and_what_is_allowed() {
    for (text, words) in [
        ("", "LIMIT/INTERVAL"),
        (",", "LIMIT/INTERVAL"),
        ("5/s,", "LIMIT/INTERVAL"),
        ("fast", "LIMIT/INTERVAL"),
        ("5", "LIMIT/INTERVAL"),
        ("5/s 10", "LIMIT/INTERVAL"),
        ("5/s burst", "LIMIT/INTERVAL"),
        ("5/s burst 1 burst 2", "LIMIT/INTERVAL"),
        ("5/s speed 3", "LIMIT/INTERVAL"),
        ("-5/s", "whole number"),
        ("+5/s", "whole number"),
        ("5.5/s", "whole number"),
        ("1e3/s", "whole number"),
        ("٥/s", "whole number"),
        ("99999999999/s", "1000000000"),
        ("5/s burst 0", "1 to 1000000000"),
        ("5/s burst -1", "whole number"),
        ("5/s burst 2000000000", "1000000000"),
        ("5/0s", "1ms to 3650d"),
        ("5/10us", "1ms to 3650d"),
        ("5/3651d", "3650d"),
        ("5/11000d", "3650d"),
        ("5/week", "us, ms, s, m, h, d"),
        ("5/-1s", "us, ms, s, m, h, d"),
        ("5/3650d guard 1s", "at most 3650d"),
        ("5/s guard soon", "us, ms, s, m, h, d"),
        ("window 5/s burst 3", "no burst"),
        ("1/s,1/s,1/s,1/s,1/s,1/s,1/s,1/s,1/s", "1 to 8 quotas"),
        ("5/s, idle 0s", "1ms to 3650d"),
        ("idle 5s", "1 to 8 quotas"),
        ("5/s, idle 5s, 6/s", "last part"),
        ("1/30d burst 1000000000", "within 36500d"),
        ("strict 5/s burst 2", "no burst"),
        ("5/s of", "LIMIT/INTERVAL"),
        ("5/s of words", "\"words\": a unit is one of requests, tokens, input-tokens"),
        ("5/s of Tokens", "a unit is one of"),
        ("5/s of tokens guard 1s", "LIMIT/INTERVAL"),
        ("5/s of tokens of bytes", "LIMIT/INTERVAL"),
        ("idle 5s of tokens", "LIMIT/INTERVAL"),
        ("strict 30000/m of tokens", "paces one at a time, and no call could take more than one"),
        ("strict 30000/m of tokens", "write `window 30000/m of tokens`"),
        ("9/s, strict 5/s guard 20ms of bytes", "write `window 5/s guard 20ms of bytes`"),
    ] {
        let message = text.parse::<Policy>().unwrap_err().to_string();
        assert!(message.contains(words), "{text:?}: {message}");
        assert!(message.starts_with("policy \""), "{text:?}: {message}");
    }
}

#[test]
fn quotas_in_code_are_checked_when_they_become_a_policy() {
    let minute = Duration::from_secs(60);
    assert!(Policy::new([]).is_err());
    assert!(Policy::new([Quota::per(5, Duration::ZERO)]).is_err());
    assert!(Policy::new([Quota::per(5, Duration::MAX)]).is_err());
    assert!(Policy::new([Quota::per_second(5).guard(Duration::MAX)]).is_err());
    assert!(Policy::new([Quota::per_second(5).burst(0)]).is_err());
    let message = Policy::new([Quota::window(5, minute).burst(2)]).unwrap_err().to_string();
    assert!(message.contains("no burst"), "{message}");
    let policy = Policy::new([Quota::per_second(7).burst(3), Quota::window(9, minute)]).unwrap();
    assert_eq!(policy, "7/s burst 3, window 9/m".parse().unwrap());
    assert_eq!(policy.quotas()[0].shape(), Shape::TokenBucket { burst: 3 });
}

#[test]
fn the_whole_promised_range_is_counted_or_refused_by_name() {
    let limits = [1, 2, 3, 7, 60, 999, 1_000, 4_999, 999_983, 1_000_000];
    let intervals = ["1ms", "7ms", "1s", "7s", "1m", "1h", "1d", "30d"];
    let bursts = [1, 2, 3, 10, 97, 1_000, 999_983, 1_000_000, 999_999_937, 1_000_000_000];
    let (mut counted, mut refused) = (0, 0);
    for limit in limits {
        for interval in intervals {
            for burst in bursts {
                match format!("{limit}/{interval} burst {burst}").parse::<Policy>() {
                    Ok(policy) => {
                        counted += 1;
                        assert_eq!(policy.cost_max(), burst);
                    }
                    Err(error) => {
                        refused += 1;
                        let message = error.to_string();
                        assert!(message.contains("lower the burst"), "{message}");
                    }
                }
            }
        }
    }
    assert!(counted > 600 && refused > 20, "{counted} counted, {refused} refused");
}

#[test]
fn a_share_of_a_policy_lets_all_processes_together_pass_no_more_than_the_whole() {
    let share = |text: &str, n: u32| {
        let policy: Policy = text.parse().unwrap();
        policy.share_of(n.try_into().unwrap()).unwrap().to_string()
    };
    assert_eq!(share("50/s burst 10", 8), "50/8s burst 1");
    assert_eq!(share("50/s burst 16", 8), "50/8s burst 2");
    assert_eq!(share("window 1000/m", 8), "window 125/m");
    assert_eq!(share("window 3/s", 8), "window 1/2666667us");
    assert_eq!(share("0/m, 10/s", 2), "0/m, 10/2s burst 5");
    assert_eq!(share("5/s", 1), "5/s");
}

#[test]
fn a_policy_says_how_much_of_each_unit_can_pass_at_once() {
    let policy: Policy = "500/m, 30000/m of tokens, window 20000/m of tokens".parse().unwrap();
    let cost = Cost::requests(600).and(Unit::Tokens, 50_000).and(Unit::Bytes, 9);
    let part = Cost::requests(500).and(Unit::Tokens, 20_000).and(Unit::Bytes, 9);
    assert_eq!(policy.part_of(cost), part, "what nothing counts always passes");
    assert!(policy.counts(cost) && !policy.counts(Cost::only(Unit::Bytes, 9)));
    assert_eq!((policy.cost_max(), policy.is_plain()), (500, false));
    assert_ne!(policy, "500/m, 30000/m, window 20000/m".parse().unwrap());
    let share = policy.share_of(2.try_into().unwrap()).unwrap().to_string();
    assert_eq!(share, "500/2m burst 250, 30000/2m burst 15000 of tokens, window 10000/m of tokens");
}

fn quota() -> impl Strategy<Value = Quota> {
    let interval = prop_oneof![1_u64..5_000, (1_u64..100).prop_map(|s| s * 60_000)];
    (any::<bool>(), 0_u32..5_000, interval, 1_u32..5_000, 0_u64..100_000, 0_usize..6).prop_map(
        |(window, limit, interval_ms, burst, guard_us, unit)| {
            let interval = Duration::from_millis(interval_ms);
            let quota = if window {
                Quota::window(limit, interval)
            } else {
                Quota::per(limit, interval).burst(burst)
            };
            quota.guard(Duration::from_micros(guard_us)).of(Unit::ALL[unit])
        },
    )
}

proptest! {
    #[test]
    fn what_is_printed_parses_to_the_same_policy(
        quotas in prop::collection::vec(quota(), 1..=8),
        idle_ms in 1_u64..100_000_000,
    ) {
        if let Ok(policy) = Policy::new(quotas) {
            let policy = policy.with_idle(Duration::from_millis(idle_ms)).unwrap();
            prop_assert_eq!(policy.to_string().parse::<Policy>().unwrap(), policy);
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in ".{0,60}") {
        let _ = text.parse::<Policy>();
    }
}
