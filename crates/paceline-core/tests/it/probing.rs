//! One call goes first at the end of a suspension that a refusal caused: tables under given times.

use std::sync::Arc;

use paceline_core::decide;
use paceline_core::{
    Ask, Booking, Bucket, Cause, Decision, Group, Micros, Policy, Probing, Suspension,
};

const START: Micros = 1_790_000_000_000_000;
const S: Micros = 1_000_000;
const MS: Micros = 1_000;

/// A bucket, and the time it is.
struct World {
    slot: Option<Bucket>,
    policy: Arc<Policy>,
    now: Micros,
}

impl World {
    fn new(policy: &str) -> Self {
        Self { slot: None, policy: Arc::new(policy.parse().unwrap()), now: START }
    }

    fn at(&mut self, since_start: Micros) -> &mut Self {
        self.now = START + since_start;
        self
    }

    fn suspend(&mut self, for_us: Micros, patience_us: Micros) -> Micros {
        let why = Suspension { reason: format!("{for_us} {patience_us}"), by: String::new() };
        decide::suspend(&mut self.slot, for_us, patience_us, why, self.now)
    }

    fn take(&mut self, wait_max_us: Micros) -> Decision {
        decide::take(&mut self.slot, &self.policy, Ask { cost: 1.into(), wait_max_us }, self.now)
    }

    /// The wait of a grant and whether it goes first, or the told time of a refusal.
    fn takes(&mut self, wait_max_us: Micros) -> Result<(Micros, bool), Micros> {
        match self.take(wait_max_us) {
            Decision::Granted { wait_us, probe, .. } => Ok((wait_us, probe)),
            Decision::Denied { retry_after_us, cause } => {
                assert_eq!(cause, Cause::Suspended);
                Err(retry_after_us)
            }
            never => panic!("{never:?}"),
        }
    }

    fn books(&mut self, wait_max_us: Micros) -> Booking {
        match self.take(wait_max_us) {
            Decision::Granted { booking, .. } => booking,
            refused => panic!("{refused:?}"),
        }
    }

    fn probe(&mut self, booking: Booking) -> bool {
        decide::probe(&mut self.slot, booking, self.now).goes
    }

    fn passed(&mut self) -> bool {
        decide::probed(&mut self.slot, 0, self.now)
    }

    /// From when one may go first and until when the others wait, since the start.
    fn ends(&self) -> (Option<Micros>, Micros) {
        let clock = self.slot.as_ref().unwrap().state.clock;
        let probe = (clock.probe != 0).then(|| clock.probe - START);
        (probe, clock.until - START)
    }
}

/// Somebody suspends for so long at such a moment, with so much patience or none. Then there is left
/// so much until the end that is told, one may go first from so long after the start or not at all,
/// and all go at such a moment at the latest.
type Line = (Micros, Micros, Micros, Micros, Option<Micros>, Micros);

#[test]
fn c38_a_suspension_never_ends_sooner_than_told_with_and_without_one_who_goes_first() {
    let tables: &[(&str, &[Line])] = &[
        ("a refusal", &[(0, 30, 5, 30, Some(30), 35)]),
        ("an operator", &[(0, 30, 0, 30, None, 30)]),
        (
            "no refusal breaks through an operator's",
            &[
                (0, 30, 0, 30, None, 30),
                (1, 10, 5, 29, None, 30),
                (2, 28, 5, 28, None, 30),
                (3, 40, 5, 40, Some(43), 48),
            ],
        ),
        (
            "the later end of two refusals",
            &[
                (0, 30, 5, 30, Some(30), 35),
                (1, 10, 5, 29, Some(30), 35),
                (2, 40, 5, 40, Some(42), 47),
                // More patience, and no later end.
                (3, 1, 9, 39, Some(42), 51),
            ],
        ),
        (
            "an operator after a refusal, longer than all",
            &[(0, 30, 5, 30, Some(30), 35), (1, 60, 0, 60, None, 61)],
        ),
        (
            "an operator after a refusal, to the microsecond",
            &[(0, 30, 5, 30, Some(30), 35), (1, 34, 0, 34, None, 35)],
        ),
        (
            "an operator after a refusal, longer than it",
            &[(0, 30, 5, 30, Some(30), 35), (1, 31, 0, 31, Some(32), 35)],
        ),
        (
            "an operator after a refusal, shorter",
            &[(0, 30, 5, 30, Some(30), 35), (1, 10, 0, 29, Some(30), 35)],
        ),
        ("while one is awaited", &[(0, 30, 5, 30, Some(30), 35), (31, 2, 5, 2, Some(33), 38)]),
    ];
    for (name, lines) in tables {
        let mut world = World::new("5/s");
        for (at, for_us, patience_us, left, probe, until) in *lines {
            let told = world.at(at * S).suspend(for_us * S, patience_us * S);
            let got = (told / S, world.ends().0.map(|it| it / S), world.ends().1 / S);
            assert_eq!(got, (*left, *probe, *until), "{name}, {for_us} s at {at} s");
        }
    }
}

#[test]
fn c38_a_suspension_while_the_first_is_under_way_takes_back_what_it_would_have_told() {
    // For how long and with what patience; what is left, and the ends after that.
    for (for_us, patience_us, ends) in [
        (10 * S, 5 * S, (Some(41 * S), 46 * S)),
        (1, 5 * S, (Some(31 * S + 1), 36 * S + 1)),
        (1, S, (Some(31 * S + 1), 35 * S)),
        (10 * S, 0, (None, 41 * S)),
        (4 * S, 0, (None, 35 * S)),
        // It must not end before that, be the first answered as it may.
        (2 * S, 0, (Some(33 * S), 35 * S)),
    ] {
        let mut world = World::new("5/s");
        world.suspend(30 * S, 5 * S);
        assert_eq!(world.at(30 * S).takes(0), Ok((0, true)));
        assert_eq!(world.ends(), (Some(35 * S), 35 * S));
        assert_eq!(world.at(31 * S).suspend(for_us, patience_us), for_us);
        assert_eq!(world.ends(), ends, "{for_us} {patience_us}");
        assert!(!world.at(31 * S + 1).passed(), "{for_us} {patience_us}");
        assert_eq!(world.ends(), ends);
        let why = world.slot.as_ref().unwrap().state.suspension.clone().unwrap();
        assert_eq!(why.reason, format!("{for_us} {patience_us}"));
    }
}

#[test]
fn one_goes_first_exactly_when_it_was_told_and_the_others_when_it_has_passed() {
    let mut world = World::new("5/s");
    world.suspend(30 * S, 5 * S);
    assert_eq!(world.at(S).takes(0), Err(29 * S));
    assert_eq!(world.at(30 * S - 1).takes(0), Err(1));
    assert_eq!(world.at(30 * S).takes(0), Ok((0, true)));
    // The others book behind the patience, or are told of it.
    assert_eq!(world.takes(0), Err(5 * S));
    assert_eq!(world.takes(5 * S), Ok((5 * S, false)));
    assert_eq!(world.at(31 * S).takes(0), Err(4 * S));
    assert!(world.at(31 * S + 200).passed());
    assert!(!world.passed());
    // The burst of five less those two; then one each 200 ms.
    let got: Vec<_> = (0..5).map(|_| world.takes(S)).collect();
    assert_eq!(got[..3], [Ok((0, false)); 3]);
    assert_eq!(got[3..], [Ok((200 * MS, false)), Ok((400 * MS, false))]);
}

#[test]
fn who_went_first_and_vanished_holds_the_others_for_the_patience() {
    let mut world = World::new("1/s");
    world.suspend(30 * S, 5 * S);
    assert_eq!(world.at(32 * S).takes(0), Ok((0, true)));
    assert_eq!(world.at(32 * S).takes(0), Err(4 * S), "until the patience is over, and a second");
}

#[test]
fn a_bucket_that_has_nothing_left_has_a_first_call_all_the_same() {
    // The suspension comes 100 ms after a call: 900 ms to the next token, on a clock that stands.
    let mut world = World::new("1/s burst 1");
    assert!(matches!(world.take(0), Decision::Granted { .. }));
    world.at(100 * MS).suspend(30 * S, 5 * S);
    assert_eq!(world.at(S).takes(0), Err(30 * S));
    assert_eq!(world.at(31 * S - 1).takes(0), Err(1));
    assert_eq!(world.at(31 * S).takes(0), Ok((0, true)));
    assert!(world.at(31 * S + 100).passed());
    // Paced after it: its own token is there 900 ms from now, and one more a second later.
    let denied = world.take(0);
    let wanted = Decision::Denied { retry_after_us: 1_900 * MS, cause: Cause::Quota(1) };
    assert_eq!(denied, wanted);
    // Farther ahead than the patience, it passes when all do.
    let mut far = World::new("1/m burst 1");
    assert!(matches!(far.take(0), Decision::Granted { .. }));
    far.suspend(30 * S, 5 * S);
    assert_eq!(far.at(S).takes(0), Err(94 * S));
}

#[test]
fn the_earliest_place_goes_first_and_only_if_it_stands() {
    let mut world = World::new("10/s burst 1");
    let [first, second, third] = [0, 100, 200].map(|ms| world.books(ms * MS));
    assert!(first.due < second.due && second.due < third.due);
    world.at(50 * MS).suspend(30 * S, 5 * S);
    assert!(!world.at(30 * S).probe(second), "too soon");
    // 50 ms after the moment one may, and the next 100 ms later.
    assert!(!world.at(30_100 * MS - 1).probe(second));
    assert!(!world.at(30_149 * MS).probe(third));
    assert_eq!(world.at(30_149 * MS).takes(0), Err(151 * MS), "behind both");
    let mut void = World { slot: world.slot.clone(), policy: Arc::clone(&world.policy), ..world };
    assert!(world.at(30_100 * MS).probe(second));
    assert!(!world.at(30_300 * MS).probe(third), "one has gone");
    assert!(world.at(30_400 * MS).passed());
    let other = Arc::new("20/s".parse().unwrap());
    decide::set(&mut void.slot, &other, false, void.now);
    assert!(!void.at(31 * S).probe(second), "of a policy that is no more");
}

#[test]
fn a_call_that_was_not_made_leaves_it_to_another() {
    let mut world = World::new("5/s");
    world.suspend(30 * S, 5 * S);
    assert_eq!(world.at(30 * S).takes(0), Ok((0, true)));
    assert!(decide::probed(&mut world.at(33 * S).slot, 5 * S, START + 33 * S));
    assert_eq!(world.ends(), (Some(33 * S), 38 * S));
    assert_eq!(world.at(33 * S).takes(0), Ok((0, true)));
    assert_eq!(world.takes(0), Err(5 * S));
}

#[test]
fn of_many_calls_asked_for_at_once_the_first_goes_and_the_others_wait() {
    let mut world = World::new("5/s");
    world.suspend(30 * S, 5 * S);
    let group = |calls, wait_max_us| Group { ask: Ask { cost: 1.into(), wait_max_us }, calls };
    let batch = |world: &mut World, groups: &[Group]| {
        decide::batch(&mut world.slot, &world.policy, groups, world.now)
    };
    let early = batch(world.at(29 * S), &[group(3, S)]);
    assert_eq!((early.sight.probing, early.probe), (Probing::Open(S), false));
    assert!(early.runs.is_empty());
    let first = batch(world.at(31 * S), &[group(3, S)]);
    assert!(first.probe && first.sight.probing == Probing::Taken);
    assert_eq!(first.runs.iter().map(|run| run.calls).sum::<i64>(), 1);
    let wanted = Decision::Denied { retry_after_us: 4 * S, cause: Cause::Suspended };
    assert_eq!(first.stopped, Some(wanted));
    // Who would wait as long as it takes has places behind.
    let all = batch(&mut world, &[group(3, 10 * S)]);
    assert!(!all.probe && all.runs.iter().map(|run| run.calls).sum::<i64>() == 3);
}

#[test]
fn c04_a_step_back_of_the_clock_moves_it_and_an_end_takes_it_along() {
    let mut world = World::new("5/s");
    world.suspend(30 * S, 5 * S);
    world.at(-3_600 * S).suspend(1, 1);
    assert_eq!(world.ends(), (Some(-3_570 * S), -3_565 * S));
    world.at(-3_565 * S);
    assert!(matches!(world.take(0), Decision::Granted { probe: false, .. }));
    let clock = world.slot.as_ref().unwrap().state.clock;
    assert_eq!((clock.probe, clock.since, clock.until), (0, 0, 0));
    world.suspend(30 * S, 5 * S);
    assert!(decide::resume(&mut world.slot, world.now + S));
    assert_eq!(world.slot.as_ref().unwrap().state.clock.probe, 0);
}
