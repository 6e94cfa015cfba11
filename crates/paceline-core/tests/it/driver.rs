//! The driver under given times, before a store that is a slot: who goes when, and who no more.

use std::sync::Arc;

use paceline_core::driver::{Driver, Event, Next, Settings};
use paceline_core::{Booking, Bucket, Cost, Group, Micros, Policy, Suspension, Unit, decide};

/// The store's time less the process's.
const APART: Micros = 1_790_000_000_000_000;
const MS: Micros = 1_000;

/// One process and the store.
struct Process {
    driver: Driver<u32>,
    policy: Arc<Policy>,
    slot: Option<Bucket>,
    now: Micros,
    /// There and back; half of it each way.
    trip: Micros,
    /// What the store's clock has stepped by.
    stepped: Micros,
    /// What was asked, and when it was sent.
    flight: Option<(Asked, Micros)>,
    /// Who went when.
    gone: Vec<(u32, Micros)>,
    /// Who went first in a suspension when.
    first: Vec<(u32, Micros)>,
}

/// What was asked.
enum Asked {
    Calls(Vec<Group>),
    Probe(Booking),
}

impl Process {
    fn new(policy: &str, trip: Micros, waiters: u32) -> Self {
        let settings = Settings { lookahead_us: 1_000_000, seed: 1 };
        let mut driver = Driver::new(settings);
        for waiter in 1..=waiters {
            driver.join(waiter, 1.into(), None, 0);
        }
        Self {
            driver,
            policy: Arc::new(policy.parse().unwrap()),
            slot: None,
            now: 0,
            trip,
            stepped: 0,
            flight: None,
            gone: Vec::new(),
            first: Vec::new(),
        }
    }

    /// Lives until `end`, waking on time.
    fn run(&mut self, end: Micros) -> &[(u32, Micros)] {
        while self.now < end {
            let wake_at = match self.driver.next(self.now) {
                Next::Ask(groups) => {
                    self.flight = Some((Asked::Calls(groups), self.now));
                    continue;
                }
                Next::Probe(booking) => {
                    self.flight = Some((Asked::Probe(booking), self.now));
                    continue;
                }
                Next::SleepUntil(at) => at,
                Next::Await(at) => at.unwrap_or(Micros::MAX),
                Next::Rest => end,
            };
            self.hear();
            let lands_at = self.flight.as_ref().map_or(Micros::MAX, |(_, sent)| sent + self.trip);
            self.now = wake_at.min(lands_at).min(end);
            if self.now == lands_at {
                self.land();
            }
        }
        &self.gone
    }

    /// The answer to what was asked comes now; the store decided half a trip after it was sent.
    fn land(&mut self) {
        let Some((asked, sent)) = self.flight.take() else { return };
        let time = APART + self.stepped + sent + self.trip / 2;
        match asked {
            Asked::Calls(groups) => {
                let batch = decide::batch(&mut self.slot, &self.policy, &groups, time);
                self.driver.answered(&batch, &self.policy, self.now);
            }
            Asked::Probe(booking) => {
                let probed = decide::probe(&mut self.slot, booking, time);
                self.driver.probed(&probed, &self.policy, self.now);
            }
        }
        self.hear();
    }

    /// Does not run for so long; what is under way comes meanwhile and is read afterwards.
    fn stops(&mut self, span: Micros) {
        self.now += span;
        if self.flight.as_ref().is_some_and(|(_, sent)| sent + self.trip <= self.now) {
            self.land();
        }
    }

    fn hear(&mut self) {
        for event in self.driver.events() {
            if let Event::Go { waiter, probe, .. } = event {
                self.gone.push((waiter, self.now));
                if probe {
                    self.first.push((waiter, self.now));
                }
            }
        }
    }
}

#[test]
fn nobody_goes_late_however_far_away_the_store_is() {
    for trip in [0, 20 * MS, 60 * MS, 90 * MS, 150 * MS, 240 * MS] {
        let mut process = Process::new("strict 20/s guard 60ms", trip, 60);
        let gone = process.run(4_500 * MS);
        // One every 53 ms, once it is known how far away it is.
        assert!(gone.len() == 60, "{trip}: {gone:?}");
        let gaps = gone[3..].windows(2).map(|pair| pair[1].1 - pair[0].1);
        let (least, most) = gaps.fold((Micros::MAX, 0), |(a, b), gap| (a.min(gap), b.max(gap)));
        assert!(least >= 42 * MS && most <= 150 * MS, "{trip}: gaps from {least} to {most}");
    }
}

#[test]
fn a_place_is_good_for_a_sixth_of_the_guard() {
    for (policy, good_us) in [
        ("10/s burst 1", 100_000),
        ("strict 10/s", 10_000),
        ("strict 10/s guard 120ms", 20_000),
        ("window 10/s guard 5s", 100_000),
    ] {
        let policy: Policy = policy.parse().unwrap();
        assert_eq!(policy.late_max_us(), good_us, "{policy}");
    }
    for (late, goes_at_once) in [(9 * MS, true), (12 * MS, false)] {
        let mut process = Process::new("strict 10/s guard 50ms", 0, 2);
        process.run(104 * MS);
        // The second is due 105 ms after the first.
        process.stops(MS + late);
        process.run(106 * MS + late);
        assert_eq!(process.gone.len() == 2, goes_at_once, "{late} us late");
        process.run(400 * MS);
        assert_eq!(process.gone.len(), 2);
    }
}

#[test]
fn an_answer_that_was_held_up_is_of_the_past() {
    let mut process = Process::new("strict 10/s guard 50ms", MS, 1);
    process.run(200 * MS);
    assert_eq!(process.gone, [(1, MS)]);
    process.driver.join(2, 1.into(), None, process.now);
    process.run(200 * MS + MS / 2);
    assert!(process.flight.is_some());
    // Granted for the moment the store was asked at, and read 90 ms later.
    process.stops(90 * MS);
    process.run(295 * MS);
    assert_eq!(process.gone.len(), 1, "its place is spent");
    process.run(500 * MS);
    assert!(process.gone[1].1 >= 305 * MS, "the next is 105 ms behind it: {:?}", process.gone);
}

#[test]
fn c04_places_are_void_when_the_stores_clock_steps_forward() {
    let mut process = Process::new("window 5/s", MS, 20);
    process.run(600 * MS);
    assert_eq!(process.gone.len(), 5);
    // Five more have places for when the window opens again.
    process.stepped = 3_600_000_000;
    process.run(1_500 * MS);
    let within_a_second = |from: Micros| {
        process.gone.iter().filter(|(_, at)| (from..from + 1_000 * MS).contains(at)).count()
    };
    let most = process.gone.iter().map(|(_, at)| within_a_second(*at)).max();
    assert_eq!(most, Some(10), "five, and five for what the step made it forget");
}

#[test]
fn c04_nobody_stands_still_when_the_stores_clock_steps_back() {
    // Refused calls may not book so far ahead as the window is long, sleepers only look.
    for policy in ["window 5/2s", "5/s burst 5"] {
        let mut process = Process::new(policy, MS, 40);
        process.run(700 * MS);
        process.stepped = -3_600_000_000;
        process.run(10_000 * MS);
        let gone = process.gone.len();
        assert!(gone >= 20, "{policy}: {gone}");
    }
}

#[test]
fn nobody_sleeps_for_a_place_of_a_bucket_that_was_forgotten_after_a_step_back() {
    let mut process = Process::new("10/s burst 1", MS, 40);
    process.run(300 * MS);
    process.stepped = -3_600_000_000;
    process.run(1_000 * MS);
    // The server restarts empty.
    process.slot = None;
    process.run(1_500 * MS);
    process.slot = None;
    process.run(6_000 * MS);
    assert_eq!(process.gone.len(), 40, "{:?}", process.gone);
}

#[test]
fn c38_a_suspension_that_was_told_of_stops_who_has_a_place_in_sight() {
    let mut process = Process::new("10/s burst 1", MS, 3);
    process.driver.told(true);
    process.run(100 * MS);
    let time = APART + process.now;
    decide::suspend(&mut process.slot, 500 * MS, 0, Suspension::default(), time);
    process.driver.changed(process.now);
    process.run(590 * MS);
    assert_eq!(process.gone.len(), 1);
    process.run(900 * MS);
    assert_eq!(process.gone.len(), 3);
}

/// Suspends for a second at 50 ms with a patience of five, and has one go first.
fn suspended(process: &mut Process, until: Micros) -> Micros {
    process.run(50 * MS);
    let time = APART + process.now;
    decide::suspend(&mut process.slot, 1_000 * MS, 5_000 * MS, Suspension::default(), time);
    process.run(1_049 * MS);
    assert!(process.first.is_empty(), "{:?}", process.first);
    let gone = process.gone.len();
    process.run(until);
    assert_eq!((process.first.len(), process.gone.len()), (1, gone + 1), "{:?}", process.gone);
    process.first[0].1
}

#[test]
fn one_sleeper_goes_first_at_its_place_and_the_others_soon_after_it_has_passed() {
    for (policy, due) in [("10/s burst 1", 1_100 * MS), ("window 3/2s", 2_000 * MS)] {
        let mut process = Process::new(policy, MS, 8);
        // When its place would have been due had the clock gone on.
        let at = suspended(&mut process, 4_000 * MS);
        assert!((due..=due + 25 * MS).contains(&at), "{policy}: {at}");
        assert!(decide::probed(&mut process.slot, 0, APART + process.now));
        process.run(9_000 * MS);
        assert_eq!((process.gone.len(), process.first.len()), (8, 1), "{policy}");
    }
}

#[test]
fn the_others_go_after_the_patience_where_the_first_is_never_heard_of() {
    let mut process = Process::new("10/s burst 1", MS, 8);
    suspended(&mut process, 2_500 * MS);
    let before = process.gone.len();
    process.run(6_049 * MS);
    assert_eq!(process.gone.len(), before);
    process.run(9_000 * MS);
    assert_eq!((process.gone.len(), process.first.len()), (8, 1));
    let paced = process.gone[before..].windows(2).all(|pair| pair[1].1 - pair[0].1 >= 90 * MS);
    assert!(paced, "{:?}", process.gone);
}

#[test]
fn the_place_of_a_first_that_leaves_meanwhile_goes_to_the_next_or_is_told() {
    for waiters in [3, 2] {
        let mut process = Process::new("2/s burst 1", 60 * MS, 1);
        process.run(150 * MS);
        let tickets: Vec<_> =
            (2..=waiters).map(|it| process.driver.join(it, 1.into(), None, process.now)).collect();
        process.run(500 * MS);
        let time = APART + process.now;
        decide::suspend(&mut process.slot, 1_000 * MS, 5_000 * MS, Suspension::default(), time);
        while !matches!(process.flight, Some((Asked::Probe(_), _))) {
            assert!(process.now < 3_000 * MS, "it asks: {:?}", process.gone);
            process.run(process.now + MS);
        }
        process.driver.leave(tickets[0], process.now);
        let told: Vec<_> = process.driver.events();
        let (_, sent) = process.flight.as_ref().unwrap();
        process.now = sent + process.trip;
        let Some((Asked::Probe(booking), sent)) = process.flight.take() else { panic!("it asked") };
        let probed = decide::probe(&mut process.slot, booking, APART + sent + process.trip / 2);
        assert!(probed.goes);
        let policy = Arc::clone(&process.policy);
        process.driver.probed(&probed, &policy, process.now);
        let events = process.driver.events();
        if waiters == 3 {
            assert!(matches!(events[..], [Event::Go { waiter: 3, probe: true, .. }]), "{events:?}");
        } else {
            assert!(matches!(told[..], [Event::GiveBack(_)]), "{told:?}");
            assert!(matches!(events[..], [Event::Unprobed(_)]), "{events:?}");
        }
    }
}

#[test]
fn a_deadline_that_may_be_met_when_the_first_has_passed_is_not_refused() {
    let mut process = Process::new("10/s burst 1", MS, 3);
    // Two seconds: after the suspension of one, and long before the patience of five is over.
    process.driver.join(4, 1.into(), Some(2_000 * MS), 0);
    process.run(50 * MS);
    let time = APART + process.now;
    decide::suspend(&mut process.slot, 1_000 * MS, 5_000 * MS, Suspension::default(), time);
    process.run(1_300 * MS);
    assert_eq!(process.first.len(), 1);
    assert!(decide::probed(&mut process.slot, 0, APART + process.now));
    process.run(2_000 * MS);
    assert!(process.gone.iter().any(|(waiter, _)| *waiter == 4), "{:?}", process.gone);
}
#[test]
fn calls_of_several_units_go_as_soon_as_all_their_quotas_let_them() {
    // By tokens one of them goes every 2 s, by requests ten a second would.
    for policy in ["10/s, 600/m burst 40 of tokens", "600/m burst 40 of tokens, window 10/s"] {
        let mut process = Process::new(policy, MS, 0);
        for waiter in 1..=6 {
            let cost = Cost::requests(1).and(Unit::Tokens, 20);
            process.driver.join(waiter, cost, None, 0);
        }
        process.run(20_000 * MS);
        let gone: Vec<_> = process.gone.iter().map(|(_, at)| at / (500 * MS)).collect();
        assert_eq!(gone, [0, 0, 4, 8, 12, 16], "{policy}: {:?}", process.gone);
    }
    // Each in its turn, whatever each takes; who takes no tokens waits for those before it alone.
    let mut process = Process::new("10/s, 600/m burst 40 of tokens", MS, 0);
    for waiter in 1..=8 {
        let tokens = if waiter % 2 == 0 { 20 } else { 0 };
        let cost = Cost::requests(1).and(Unit::Tokens, tokens);
        process.driver.join(waiter, cost, None, 0);
    }
    process.run(20_000 * MS);
    let order: Vec<_> = process.gone.iter().map(|(waiter, _)| *waiter).collect();
    assert_eq!(order, [1, 2, 3, 4, 5, 6, 7, 8]);
    let last = process.gone[7].1;
    assert!((4_000 * MS..4_100 * MS).contains(&last), "{:?}", process.gone);
}

#[test]
fn who_cannot_be_served_in_time_in_one_of_its_units_is_refused_at_once() {
    let mut process = Process::new("10/s, 600/m burst 40 of tokens", MS, 0);
    let cost = |tokens| Cost::requests(1).and(Unit::Tokens, tokens);
    for waiter in 1..=4 {
        process.driver.join(waiter, cost(40), None, 0);
    }
    process.run(100 * MS);
    assert_eq!(process.gone.len(), 1);
    // Three stand before it, for 4 s each; without tokens it could go in 12 s.
    process.driver.join(5, cost(40), Some(process.now + 15_000 * MS), process.now);
    process.driver.join(6, cost(0), Some(process.now + 13_000 * MS), process.now);
    let refused: Vec<_> = process
        .driver
        .events()
        .into_iter()
        .filter_map(|event| match event {
            Event::Refused { waiter, retry_after_us, .. } => Some((waiter, retry_after_us / MS)),
            _ => None,
        })
        .collect();
    assert!(matches!(refused[..], [(5, 15_800..=16_000)]), "{refused:?}");
    process.run(14_000 * MS);
    assert_eq!(process.gone.iter().map(|it| it.0).collect::<Vec<_>>(), [1, 2, 3, 4, 6]);
}

#[test]
fn processes_whose_calls_take_of_several_units_share_what_there_is_and_leave_little() {
    for (policy, by_tokens) in [
        ("50/s, 6000/m burst 400 of tokens", true),
        ("window 6000/m of tokens, 100/s burst 1", true),
        ("10/s burst 5, 60000/m of tokens", false),
        ("strict 10/s, window 60000/m of tokens", false),
    ] {
        let policy: Arc<Policy> = Arc::new(policy.parse().unwrap());
        let mut rng = fastrand::Rng::with_seed(3);
        let mut slot = None;
        let settings = |seed| Settings { lookahead_us: 1_000_000, seed };
        let mut drivers: Vec<Driver<Cost>> = (1..=4).map(|it| Driver::new(settings(it))).collect();
        let mut taken = [Cost::default(); 4];
        let call = |rng: &mut fastrand::Rng| Cost::requests(1).and(Unit::Tokens, rng.u32(5..=50));
        for driver in &mut drivers {
            for _ in 0..30 {
                let cost = call(&mut rng);
                driver.join(cost, cost, None, 0);
            }
        }
        let (mut now, end) = (0, 300_000 * MS);
        while now < end {
            let mut wake_at = end;
            for (driver, taken) in drivers.iter_mut().zip(&mut taken) {
                let mut asked = 0;
                let at = loop {
                    let next = driver.next(now);
                    asked += 1;
                    assert!(asked < 1_000, "{policy}: asks without end at {now}: {next:?}");
                    for event in driver.events() {
                        match event {
                            Event::Go { waiter, .. } => {
                                *taken = taken.plus(waiter);
                                let cost = call(&mut rng);
                                driver.join(cost, cost, None, now);
                            }
                            Event::GiveBack(booking) => {
                                decide::give_back(&mut slot, booking, APART + now);
                            }
                            other => panic!("{other:?}"),
                        }
                    }
                    match next {
                        Next::Ask(groups) => {
                            let batch = decide::batch(&mut slot, &policy, &groups, APART + now);
                            driver.answered(&batch, &policy, now);
                        }
                        Next::SleepUntil(at) | Next::Await(Some(at)) => break at,
                        Next::Probe(_) => panic!("nothing is suspended"),
                        Next::Await(None) | Next::Rest => break end,
                    }
                };
                wake_at = wake_at.min(at);
            }
            now = wake_at.max(now + 1);
        }
        let (unit, brought) =
            if by_tokens { (Unit::Tokens, 30_000) } else { (Unit::Requests, 3_000) };
        let shares: Vec<u32> = taken.iter().map(|it| it.of(unit)).collect();
        let sum: u32 = shares.iter().sum();
        println!("{policy}: {shares:?}, {sum} of {brought}");
        assert!(sum * 100 >= brought * 94, "{policy}: {shares:?}, {sum} of {brought}");
        let least = shares.iter().min().copied().unwrap_or(0);
        assert!(least * 4 * 100 >= sum * 70, "{policy}: {shares:?}");
    }
}
