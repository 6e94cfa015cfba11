//! Whole fleets in virtual time. What a run is held to is in the simulator itself; here is what
//! must come of certain ones.

use paceline_sim::soak::soak;
use paceline_sim::{Demand, Faults, Report, Scenario, StoreKind, simulate};

/// A fleet that always wants more, whose callers hear from the provider within milliseconds.
fn scenario(policy: &str, provider: &str, processes: usize, seconds: i64) -> Scenario {
    Scenario {
        processes,
        duration_us: seconds * 1_000_000,
        answer_us: 1_000,
        seed: 7,
        ..Scenario::new(policy.parse().unwrap(), provider.parse().unwrap())
    }
}

fn run(scenario: &Scenario) -> Report {
    simulate(scenario).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_few_hundred_seeds_hold_the_design_whatever_goes_wrong() {
    let first = fastrand::u64(..1 << 40);
    for seed in first..first + 300 {
        if let Err(error) = soak(seed) {
            panic!("{error}; again: cargo xtask soak --from {seed} --seeds 1");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let faults = Faults { kills: 3, suspensions: 3, lost_replies: 0.02, ..Faults::default() };
    let scenario = Scenario { faults, ..scenario("strict 50/s", "sliding 50/s", 8, 20) };
    assert_eq!(run(&scenario), run(&scenario));
}

#[test]
fn strict_is_never_refused_and_uses_the_quota_whatever_way_the_provider_counts() {
    let kinds = ["sliding", "fixed", "first", "counter", "bucket", "leaky"];
    for (quota, least) in [("100/m", 0.98), ("5/s", 0.90)] {
        for kind in kinds {
            // The smallest capacity it claims.
            let capacity = if matches!(kind, "bucket" | "leaky") { " capacity 2" } else { "" };
            let on_off = Demand::OnOff { on_us: 7_000_000, off_us: 9_000_000 };
            for demand in [Demand::Saturated, on_off] {
                for seed in 0..12 {
                    let provider = format!("{kind} {quota}{capacity}");
                    let report = run(&Scenario {
                        demand,
                        jitter_us: 50_000,
                        seed,
                        ..scenario(&format!("strict {quota}"), &provider, 8, 180)
                    });
                    assert_eq!(report.refused, 0, "{provider}, {demand}, seed {seed}");
                    let used = demand != Demand::Saturated || report.share >= least;
                    assert!(used, "{provider}: {}", report.share);
                }
            }
        }
    }
}

#[test]
fn a_provider_that_wants_a_gap_is_never_refused_a_strict_quota_of_one() {
    for provider in ["spacing 5/s", "bucket 5/s capacity 1"] {
        for seed in 0..12 {
            let strict = scenario("strict 1/200ms", provider, 8, 60);
            let report = run(&Scenario { jitter_us: 50_000, seed, ..strict });
            assert_eq!(report.refused, 0, "{provider}, seed {seed}");
            assert!(report.share > 0.75, "{provider}: {}", report.share);
        }
    }
}

#[test]
fn a_window_that_counts_from_the_answer_needs_no_estimate_of_the_network() {
    // Calls take up to two seconds to arrive, forty times what the default guard covers.
    let mut refused_paced = 0;
    for kind in ["sliding", "fixed", "first"] {
        let run = |policy: &str, answers| {
            let fleet = scenario(policy, &format!("{kind} 100/m"), 8, 600);
            run(&Scenario { jitter_us: 2_000_000, answers, ..fleet })
        };
        refused_paced += run("strict 100/m", false).refused;
        let told = run("100/m burst 1, window 100/m guard 30s", true);
        assert_eq!(told.refused, 0, "{kind}");
        let untold = run("100/m burst 1, window 100/m guard 30s", false);
        assert!(told.share > 0.93 && untold.share < 0.72, "{} {}", told.share, untold.share);
    }
    assert!(refused_paced > 0, "the network is slow");
}

#[test]
fn a_plain_token_bucket_is_refused_by_those_that_count_windows() {
    // The simulator must be able to say no.
    for provider in ["sliding 50/s", "fixed 50/s", "counter 50/s"] {
        assert!(run(&scenario("50/s", provider, 8, 30)).refused > 0, "{provider}");
    }
}

#[test]
fn processes_that_always_want_more_get_the_same() {
    for (quota, processes) in [("50/s", 8), ("50/s", 20), ("50/s", 50), ("50/s", 100), ("5/s", 8)] {
        for store in [StoreKind::Redis, StoreKind::Host] {
            // The first seconds, in which they find out how many they are, are part of it at 50/s.
            let seconds = if quota == "5/s" { 60 } else { 10 };
            let fleet = scenario(&format!("strict {quota}"), "sliding 50/s", processes, seconds);
            let report = run(&Scenario { store, ..fleet });
            let fairness = report.fairness;
            assert!(fairness >= 0.93, "{quota}, {processes} processes: {fairness}");
            let mean = report.calls / processes as u64;
            assert!(report.fewest * 3 >= mean, "{} of {mean}", report.fewest);
        }
    }
}

#[test]
fn processes_get_the_same_of_a_window_that_opens_for_many_at_once() {
    for (quota, seconds) in [("1000/10s", 60), ("200/2s", 60), ("100/m", 600)] {
        for processes in [8, 20] {
            let (policy, provider) =
                (format!("window {quota} guard 30ms"), format!("sliding {quota}"));
            let report = run(&scenario(&policy, &provider, processes, seconds));
            assert!(report.fairness >= 0.95, "{quota}, {processes}: {}", report.fairness);
            assert!(report.share > 0.97 && report.refused == 0, "{quota}: {}", report.share);
        }
    }
}

#[test]
fn a_crowd_of_ten_thousand_in_one_process_does_not_starve_the_one_waiter_of_another() {
    let fleet = scenario("strict 50/s", "sliding 50/s", 2, 60);
    let report = run(&Scenario { crowd: Some(10_000), callers: 1, ..fleet });
    assert!(report.share > 0.93, "{}", report.share);
    // Alone it would wait 21 ms for each; beside the crowd it is served within half a second.
    assert!(report.fewest >= 120, "{} calls in a minute", report.fewest);
}

#[test]
fn c24_the_work_on_the_store_does_not_grow_with_the_waiters() {
    let work = |callers| {
        let fleet = scenario("strict 50/s", "sliding 50/s", 8, 30);
        run(&Scenario { callers, ..fleet }).operations_per_call
    };
    let (few, many) = (work(20), work(2_000));
    assert!(few <= 1.5 && many <= 1.5, "{few} and {many} operations a call");
}

#[test]
fn costs_from_one_to_the_burst_in_one_queue_starve_nobody() {
    let fleet = scenario("50/s burst 50", "bucket 50/s", 4, 120);
    let report = run(&Scenario { cost_max: 50, ..fleet });
    // 80 callers want 25.5 tokens on average: a round takes 41 s.
    assert!(report.waits.max_us < 3 * 41_000_000, "{} us", report.waits.max_us);
    assert!(report.fewest > 0 && report.fairness > 0.9, "{}", report.fairness);
}

#[test]
fn after_a_suspension_the_fleet_goes_on_as_the_bucket_allows() {
    let faults = Faults { suspensions: 8, lost_words: 0.5, ..Faults::default() };
    let fleet = scenario("strict 50/s", "sliding 50/s", 8, 60);
    let report = run(&Scenario { faults, ..fleet });
    assert!(report.share > 0.3, "{}", report.share);
}

#[test]
fn one_call_goes_first_after_a_suspension_and_the_others_wait_for_its_answer() {
    for store in [StoreKind::Redis, StoreKind::Host] {
        let run = |patience_us, answer_us| {
            let faults = Faults { suspensions: 8, patience_us, ..Faults::default() };
            let fleet = scenario("strict 50/s", "sliding 50/s", 8, 60);
            run(&Scenario { faults, answer_us, callers: 40, store, ..fleet })
        };
        let (plain, quick) = (run(0, 1_000).share, run(4_000_000, 1_000).share);
        // What it waits for is an answer, on its way back for hardly more than a look.
        assert!(quick > plain - 0.06, "{quick} {plain}");
        // The same suspensions, and each some 800 ms longer.
        let slow = run(4_000_000, 800_000).share;
        assert!(slow < quick - 0.04 && slow > 0.3, "{slow} {quick}");
    }
}

#[test]
fn who_is_killed_while_it_goes_first_holds_the_others_no_longer_than_the_patience() {
    // Calls last three seconds and every second somebody dies: hardly an answer is told of.
    let faults = Faults { suspensions: 8, kills: 60, patience_us: 2_000_000, ..Faults::default() };
    let fleet = scenario("strict 50/s", "sliding 50/s", 3, 60);
    let report = run(&Scenario { faults, answer_us: 3_000_000, callers: 100, ..fleet });
    assert!(report.share > 0.15, "{}", report.share);
}

#[test]
fn ten_minutes_of_fifty_processes_take_few_operations() {
    let report = run(&scenario("strict 50/s", "sliding 50/s", 50, 600));
    assert!(report.refused == 0 && report.share > 0.93, "{}", report.share);
    assert!(report.operations_per_call <= 3.0, "{}", report.operations_per_call);
}

#[test]
fn c38_nobody_in_a_fleet_starts_a_call_once_a_suspension_may_be_known() {
    // Every run is held to it: a call that goes more than 100 ms into a suspension breaks P1.
    for store in [StoreKind::Redis, StoreKind::Host] {
        for seed in 0..12 {
            let quiet = scenario("strict 50/s", "sliding 50/s", 4, 60);
            let fleet = Scenario { callers: 5, store, seed, ..quiet };
            let faults = Faults { suspensions: 20, lost_words: 0.3, ..Faults::default() };
            let (with, without) = (run(&Scenario { faults, ..fleet.clone() }), run(&fleet));
            assert!(with.calls < without.calls, "they do stop, seed {seed}");
        }
    }
}
