//! The rule for refusals that tell no limit, before providers that count in their own ways: refusals
//! until it holds, whether any come afterwards, and what of the quota is used. A fleet that always
//! wants more, as a provider sees it: calls at an even pace, up to 20 ms on their way, answers as
//! long on theirs. Two refusals with no success in between stop it for a second or longer each time,
//! and one call goes ahead to find out.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use paceline_core::Micros;
use paceline_core::ease::{Ease, WHOLE};
use paceline_sim::Provider;

const S: Micros = 1_000_000;
const WAY_US: Micros = 20_000;

/// What became of a fleet.
#[derive(Debug, Default)]
struct Seen {
    /// Refusals in the first half.
    learning: usize,
    /// Refusals in the second half, and what of the quota was used in it.
    after: usize,
    share: f64,
}

struct Run {
    /// The policy's calls in the provider's interval, and the provider's.
    policy: i64,
    limit: i64,
    interval_us: Micros,
    kind: &'static str,
    /// The second client's part of the quota.
    rival: f64,
    /// Whether refusals state a time, in whole seconds, and nothing else.
    states: bool,
    eases: bool,
    seconds: i64,
    seed: u64,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Starts,
    Arrives {
        is_rival: bool,
        probes: bool,
    },
    /// With how long to stay away, where it was refused and says so.
    Answered {
        accepted: bool,
        probes: bool,
        stated: Option<Micros>,
    },
}

fn run(run: &Run) -> Seen {
    let mut rng = fastrand::Rng::with_seed(run.seed);
    let spec = format!("{} {}/{}s", run.kind, run.limit, run.interval_us / S);
    let mut provider = Provider::new(&spec.parse().unwrap(), rng.i64(0..run.interval_us));
    let mut ease = Ease::new(run.interval_us);
    let mut to_come = BinaryHeap::from([Reverse((0, Happening::Starts))]);
    #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "a span")]
    let rival_us = (run.interval_us as f64 / (run.limit as f64 * run.rival).max(1e-9)) as Micros;
    if run.rival > 0.0 {
        to_come.push(Reverse((0, Happening::Arrives { is_rival: true, probes: false })));
    }
    let (end, middle) = (run.seconds * S, run.seconds * S / 2);
    // Refusals with no success in between, stops in a row, the end of the present one, the sum.
    let (mut refusals, mut in_a_row, mut until, mut paused) = (0, 0, 0, 0);
    let (mut accepted_after, mut rival_after) = (0, 0);
    let mut probing = false;
    let mut seen = Seen::default();
    while let Some(Reverse((now, what))) = to_come.pop() {
        if now > end {
            break;
        }
        match what {
            Happening::Starts if now < until => {
                to_come.push(Reverse((until, Happening::Starts)));
            }
            Happening::Starts => {
                let arrives = now + rng.i64(0..WAY_US);
                let call = Happening::Arrives { is_rival: false, probes: probing };
                to_come.push(Reverse((arrives, call)));
                if !probing {
                    let pace = if run.eases { ease.pace(now) } else { WHOLE };
                    let gap = run.interval_us * WHOLE / (run.policy * pace);
                    to_come.push(Reverse((now + gap, Happening::Starts)));
                }
            }
            Happening::Arrives { is_rival, probes } => {
                let answer = provider.arrive(now);
                let accepted = answer.is_ok();
                let whole_seconds = |us: u64| i64::try_from(us.div_ceil(1_000_000)).unwrap() * S;
                let stated = answer.err().filter(|_| run.states).map(whole_seconds);
                if is_rival {
                    rival_after += i64::from(accepted && now >= middle);
                    let next = now + rng.i64(0..2 * rival_us);
                    to_come.push(Reverse((next, Happening::Arrives { is_rival, probes })));
                    continue;
                }
                accepted_after += i64::from(accepted && now >= middle);
                seen.learning += usize::from(!accepted && now < middle);
                seen.after += usize::from(!accepted && now >= middle);
                let answered = now + rng.i64(0..WAY_US);
                to_come.push(Reverse((answered, Happening::Answered { accepted, probes, stated })));
            }
            Happening::Answered { accepted: true, probes, .. } => {
                // What was in flight when it stopped proves nothing; what went to find out does.
                if probes || !probing {
                    (refusals, in_a_row) = (0, 0);
                    ease.passed(now);
                }
                if probes {
                    probing = false;
                    to_come.push(Reverse((now, Happening::Starts)));
                }
            }
            Happening::Answered { accepted: false, probes, stated } => {
                refusals += 1;
                ease.refused(now, paused);
                let stops = probes || (refusals >= 2 || stated.is_some()) && !probing;
                if stops {
                    let guessed = (S << in_a_row.min(6)).min(60 * S);
                    let pause = stated.unwrap_or(guessed + rng.i64(0..guessed / 2));
                    (in_a_row, until) = (in_a_row + 1, now + pause);
                    paused += pause;
                    if probes {
                        to_come.push(Reverse((until, Happening::Starts)));
                    }
                    probing = true;
                }
            }
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    let allowed = (run.limit * (end - middle)) as f64 / run.interval_us as f64;
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    let share = accepted_after as f64 / (allowed - rival_after as f64);
    Seen { share, ..seen }
}

/// Quotas of short and long windows, as a limit and seconds.
const QUOTAS: [(i64, i64); 3] = [(250, 5), (50, 1), (100, 60)];

/// How long a run of it lasts; half of it is for learning, and its patience is longer than the rest.
fn seconds_of(interval_s: i64) -> i64 {
    if interval_s > 5 { 2_400 } else { 300 }
}

/// A fleet that believes in so many tenths of the quota, before each kind of provider.
fn runs(tenths: i64, rival: f64, eases: bool) -> Vec<(String, Seen)> {
    runs_that(tenths, rival, eases, false)
}

fn runs_that(tenths: i64, rival: f64, eases: bool, states: bool) -> Vec<(String, Seen)> {
    let mut runs = Vec::new();
    for (limit, interval_s) in QUOTAS {
        for kind in ["fixed", "sliding", "bucket"] {
            for seed in 0..12 {
                let seen = run(&Run {
                    policy: limit * tenths / 10,
                    limit,
                    interval_us: interval_s * S,
                    kind,
                    rival,
                    states,
                    eases,
                    seconds: seconds_of(interval_s),
                    seed,
                });
                runs.push((format!("{kind} {limit}/{interval_s}s, seed {seed}"), seen));
            }
        }
    }
    runs
}

/// Mean refusals of the second halves.
#[expect(clippy::cast_precision_loss, reason = "a mean")]
fn mean_after(runs: &[(String, Seen)]) -> f64 {
    runs.iter().map(|(_, seen)| seen.after).sum::<usize>() as f64 / runs.len() as f64
}

#[test]
fn a_fleet_at_twice_the_quota_holds_it_after_few_refusals_whatever_way_the_provider_counts() {
    let runs = runs(20, 0.0, true);
    for (name, Seen { learning, after, share }) in &runs {
        assert!(
            *learning <= 40 && *after <= 2 && *share >= 0.9,
            "{name}: {learning} {after} {share}"
        );
    }
    assert!(mean_after(&runs) < 0.7, "{}", mean_after(&runs));
}

#[test]
fn without_it_a_fleet_at_twice_the_quota_never_holds() {
    // The trial must be able to say no.
    for (name, Seen { learning, after, .. }) in runs(20, 0.0, false) {
        assert!(learning > 80 && after > 80, "{name}: {learning} {after}");
    }
}

#[test]
fn a_fleet_at_ten_times_the_quota_needs_not_many_more() {
    for (name, Seen { learning, after, share }) in runs(100, 0.0, true) {
        assert!(learning <= 60 && after <= 3 && share >= 0.9, "{name}: {learning} {after} {share}");
    }
}

#[test]
fn a_fleet_at_the_quota_makes_room_for_a_second_client_that_takes_a_third_of_it() {
    // What is left of a small window differs from one to the next; to be refused by none is to use
    // what the worst of them leaves.
    let runs = runs(10, 0.3, true);
    for (name, Seen { learning, after, share }) in &runs {
        assert!(
            *learning <= 40 && *after <= 6 && *share >= 0.65,
            "{name}: {learning} {after} {share}"
        );
    }
    assert!(mean_after(&runs) < 2.0, "{}", mean_after(&runs));
}

#[test]
fn trying_whether_more_is_let_pass_costs_a_few_refusals_an_hour() {
    for kind in ["fixed", "sliding", "bucket"] {
        let fleet = |policy| {
            let (limit, interval_us, rival, seconds) = (250, 5 * S, 0.0, 7_200);
            let (states, eases, seed) = (false, true, 3);
            run(&Run { policy, limit, interval_us, kind, rival, states, eases, seconds, seed })
        };
        let Seen { after, share, .. } = fleet(500);
        assert!(after <= 20 && share >= 0.9, "{kind}: {after} {share}");
    }
}

#[test]
fn where_refusals_state_a_time_and_no_limit_it_takes_fewer_still() {
    for (tenths, most) in [(20, 20), (100, 40)] {
        let runs = runs_that(tenths, 0.0, true, true);
        for (name, Seen { learning, after, share }) in &runs {
            let holds = *learning <= most && *after <= 4 && *share >= 0.9;
            assert!(holds, "{tenths} tenths, {name}: {learning} {after} {share}");
        }
        assert!(mean_after(&runs) < 1.0, "{}", mean_after(&runs));
    }
}
