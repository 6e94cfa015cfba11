//! Each kind of provider against a judge that knows nothing but the calls accepted so far and
//! reckons each time anew, by the definition. And whatever the kind: a refused call would pass at
//! the moment it is told, and not a microsecond sooner.

use paceline_sim::{Kind, Provider, ProviderSpec};
use proptest::prelude::*;

/// One random course of calls.
#[derive(Debug, Clone)]
struct Course {
    limit: u32,
    interval_us: i64,
    capacity: u32,
    age_us: i64,
    /// Time since the call before.
    gaps: Vec<i64>,
}

impl Course {
    fn arrivals(&self) -> impl Iterator<Item = i64> {
        self.gaps.iter().scan(0, |now, gap| {
            *now += gap;
            Some(*now)
        })
    }
}

fn course() -> impl Strategy<Value = Course> {
    // Intervals and limits that do not divide, and gaps from none to more than an interval.
    (1_u32..12, 1_000_i64..3_000, 1_u32..8, 0_i64..3_000)
        .prop_flat_map(|(limit, interval_us, capacity, age_us)| {
            let usual = 2 * interval_us / i64::from(limit);
            let gap = prop_oneof![
                2 => Just(0_i64),
                6 => 0..=usual.max(1),
                1 => 0..=interval_us,
                1 => 0..=3 * interval_us,
            ];
            (
                Just((limit, interval_us, capacity, age_us % interval_us)),
                prop::collection::vec(gap, 1..120),
            )
        })
        .prop_map(|((limit, interval_us, capacity, age_us), gaps)| Course {
            limit,
            interval_us,
            capacity,
            age_us,
            gaps,
        })
}

fn provider(kind: Kind, course: &Course) -> Provider {
    let spec = ProviderSpec::new(kind, course.limit, course.interval_us).unwrap();
    let spec =
        if kind.has_capacity() { spec.with_capacity(course.capacity).unwrap() } else { spec };
    Provider::new(&spec, course.age_us)
}

/// Runs the course and holds every verdict to `passes(calls accepted so far, now)`.
fn hold(
    kind: Kind,
    course: &Course,
    passes: impl Fn(&[i64], i64) -> bool,
) -> Result<(), TestCaseError> {
    let mut provider = provider(kind, course);
    let mut accepted = Vec::new();
    for at in course.arrivals() {
        let want = passes(&accepted, at);
        let got = provider.arrive(at);
        prop_assert_eq!(got.is_ok(), want, "{} at {} after {:?}", kind, at, accepted);
        match got {
            Ok(()) => accepted.push(at),
            Err(wait) => {
                let at = at + i64::try_from(wait).unwrap();
                prop_assert!(passes(&accepted, at), "{} at {}, as told", kind, at);
                prop_assert!(!passes(&accepted, at - 1), "{} before {}, as told", kind, at);
                prop_assert_eq!(provider.clone().arrive(at), Ok(()));
                prop_assert_eq!(provider.clone().arrive(at - 1), Err(1));
            }
        }
    }
    prop_assert_eq!(provider.accepted(), accepted.len() as u64);
    prop_assert_eq!(provider.refused(), (course.gaps.len() - accepted.len()) as u64);
    Ok(())
}

/// How many of the calls `holds` is true of.
fn count(accepted: &[i64], holds: impl Fn(i64) -> bool) -> i64 {
    i64::try_from(accepted.iter().filter(|at| holds(**at)).count()).unwrap()
}

/// Whether, from each earlier call on and from now, the calls with this one are at most `max`.
fn never_above(accepted: &[i64], now: i64, max: impl Fn(i64) -> i64) -> bool {
    let starts = accepted.iter().copied().chain([now]);
    starts
        .enumerate()
        .all(|(index, since)| i64::try_from(accepted.len() - index).unwrap() < max(since))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_span_of_a_sliding_window_holds_more_than_the_limit(course in course()) {
        let Course { limit, interval_us, .. } = course;
        hold(Kind::Sliding, &course, |accepted, now| {
            count(accepted, |at| at > now - interval_us) < i64::from(limit)
        })?;
    }

    #[test]
    fn no_window_of_a_fixed_one_holds_more_than_the_limit(course in course()) {
        let Course { limit, interval_us, age_us, .. } = course;
        let window = |at: i64| (at + age_us) / interval_us;
        hold(Kind::Fixed, &course, |accepted, now| {
            count(accepted, |at| window(at) == window(now)) < i64::from(limit)
        })?;
    }

    #[test]
    fn a_window_that_begins_with_its_first_call_holds_no_more_than_the_limit(course in course()) {
        let Course { limit, interval_us, .. } = course;
        hold(Kind::First, &course, |accepted, now| {
            // The beginnings of all windows so far, one after the other.
            let mut since = None;
            for at in accepted {
                if since.is_none_or(|since| at - since >= interval_us) {
                    since = Some(*at);
                }
            }
            since.is_none_or(|since| {
                now - since >= interval_us || count(accepted, |at| at >= since) < i64::from(limit)
            })
        })?;
    }

    #[test]
    fn a_counter_weighs_the_last_window_by_what_is_covered_of_it(course in course()) {
        let Course { limit, interval_us, age_us, .. } = course;
        let window = |at: i64| (at + age_us) / interval_us;
        // How many interval-ths of a call are counted at `now`.
        let weighed = |accepted: &[i64], now: i64| {
            let present = count(accepted, |at| window(at) == window(now));
            let last = count(accepted, |at| window(at) == window(now) - 1);
            last * (interval_us - (now + age_us) % interval_us) + present * interval_us
        };
        hold(Kind::Counter, &course, |accepted, now| {
            weighed(accepted, now) / interval_us < i64::from(limit)
        })?;
        hold(Kind::CounterUp, &course, |accepted, now| {
            weighed(accepted, now) + interval_us <= i64::from(limit) * interval_us
        })?;
    }

    #[test]
    fn no_span_of_a_bucket_holds_more_than_its_capacity_and_what_it_refills(course in course()) {
        let Course { limit, interval_us, capacity, .. } = course;
        hold(Kind::Bucket, &course, |accepted, now| {
            never_above(accepted, now, |since| {
                i64::from(capacity) + (now - since) * i64::from(limit) / interval_us
            })
        })?;
    }

    #[test]
    fn no_span_of_a_meter_holds_more_than_its_capacity_and_its_ticks(course in course()) {
        let Course { limit, interval_us, capacity, age_us, .. } = course;
        let ticks = |at: i64| (at + age_us) * i64::from(limit) / interval_us;
        hold(Kind::Leaky, &course, |accepted, now| {
            never_above(accepted, now, |since| i64::from(capacity) + ticks(now) - ticks(since))
        })?;
    }

    #[test]
    fn no_two_calls_are_closer_than_the_spacing(course in course()) {
        let Course { limit, interval_us, .. } = course;
        hold(Kind::Spacing, &course, |accepted, now| {
            accepted.iter().all(|at| (now - at) * i64::from(limit) >= interval_us)
        })?;
    }

    #[test]
    fn never_more_than_the_limit_are_under_way(course in course(), took_us in 1_i64..6_000) {
        let mut provider = provider(Kind::Concurrency, &course);
        let mut under_way: Vec<i64> = Vec::new();
        for at in course.arrivals() {
            let ended = count(&under_way, |since| since + took_us <= at);
            for _ in 0..ended {
                provider.done(at);
            }
            under_way.retain(|since| since + took_us > at);
            let passed = provider.arrive(at).is_ok();
            prop_assert_eq!(passed, under_way.len() < course.limit as usize);
            if passed {
                under_way.push(at);
            }
        }
    }

    #[test]
    fn a_ban_lets_nothing_pass_until_it_ends(course in course(), ban_us in 1_i64..9_000) {
        let spec = ProviderSpec::new(Kind::Sliding, course.limit, course.interval_us).unwrap();
        let mut provider = Provider::new(&spec.with_ban(ban_us).unwrap(), 0);
        let mut accepted: Vec<i64> = Vec::new();
        let mut banned_until = 0;
        for at in course.arrivals() {
            let full =
                count(&accepted, |past| past > at - course.interval_us) >= i64::from(course.limit);
            let passed = provider.arrive(at).is_ok();
            prop_assert_eq!(passed, at >= banned_until && !full);
            match passed {
                true => accepted.push(at),
                false if at >= banned_until => banned_until = at + ban_us,
                false => {}
            }
        }
    }
}
