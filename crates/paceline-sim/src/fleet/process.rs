//! One process of the fleet: its driver, and who waits in it.

use paceline_core::Micros;
use paceline_core::driver::{Driver, Settings, Ticket};

use super::checks::requests;
use crate::{Scenario, StoreKind};

/// One process. Who waits is known by its number.
pub(super) struct Process {
    pub(super) driver: Driver<usize>,
    /// Which of its lives this is; what was on its way to an earlier one is lost.
    pub(super) life: u64,
    /// Nothing runs in it until then.
    pub(super) stopped_until: Micros,
    /// The last moment its driver asked to be driven at, by number.
    pub(super) wish: u64,
    pub(super) flights: u64,
    /// The flight under way.
    pub(super) flight: Option<u64>,
    /// When each caller began to wait, and as whom.
    pub(super) came_at: Vec<Micros>,
    pub(super) tickets: Vec<Option<Ticket>>,
}

impl Process {
    pub(super) fn new(scenario: &Scenario, process: usize, seed: u64) -> Self {
        let callers = scenario.callers_of(process);
        Self {
            driver: driver(scenario, seed),
            life: 0,
            stopped_until: Micros::MIN,
            wish: 0,
            flights: 0,
            flight: None,
            came_at: vec![0; callers],
            tickets: vec![None; callers],
        }
    }

    pub(super) fn join(&mut self, caller: usize, cost: u32, deadline: Option<Micros>, now: Micros) {
        self.came_at[caller] = now;
        self.tickets[caller] = Some(self.driver.join(caller, cost.into(), deadline, now));
    }

    /// Tokens of the places it has, which are taken from it.
    pub(super) fn booked(&mut self) -> i64 {
        let stranded = self.driver.abandon().into_iter();
        stranded.filter_map(|it| it.booking).map(|booking| requests(booking.cost)).sum()
    }

    /// Ends this life, and says how many tokens it had booked.
    pub(super) fn kill(&mut self, scenario: &Scenario, seed: u64) -> i64 {
        let booked = self.booked();
        self.driver = driver(scenario, seed);
        self.life += 1;
        self.wish += 1;
        self.flight = None;
        self.stopped_until = Micros::MIN;
        self.tickets.fill(None);
        booked
    }
}

fn driver(scenario: &Scenario, seed: u64) -> Driver<usize> {
    let lookahead_us = scenario.lookahead_us;
    let mut driver = Driver::new(Settings { lookahead_us, seed });
    driver.told(scenario.store == StoreKind::Redis);
    driver
}
