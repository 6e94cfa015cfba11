//! How the waiters of one bucket in one process are served: as a machine without clock, I/O or
//! tasks. It is told what happened and when; it says what to ask the store next, who goes, and when
//! it wants to be asked again. The library drives it with real time and a real store, the simulator
//! with a thousand others in virtual time.
//!
//! All waiters stand in one line. One flight to the store at a time asks for many of them at once,
//! and brings back a sight of the bucket's clock, which says of every place booked before whether
//! it still stands. A waiter that slept for its place goes only on a sight that is fresh; so no
//! call starts in a suspension that is older than [`FRESH_US`] (or than twice the way to a store far
//! away), even where nobody was told of it.
//! How far ahead a process may book, and how much at once, is decided by turns: they make processes
//! share by max-min without knowing of each other.
//!
//! Times are microseconds on the process's steady clock, except those of bookings.

mod outcome;
mod outlook;
mod queue;
mod trips;
mod turn;

use std::collections::{BTreeSet, VecDeque};

pub use self::outcome::{Event, Next, Stranded};
use self::outlook::Outlook;
use self::queue::{Queue, Slot, Waiter};
use self::trips::Trips;
use self::turn::Turn;
use crate::decide::{Ask, Batch, Booking, Cause, Decision, Group, Probed, Run, Sight, Standing};
use crate::policy::LATE_MAX_US;
use crate::state::Probing;
use crate::unit::Amounts;
use crate::{Cost, Micros, Policy, SPAN_MAX_US};

/// Oldest sight on which a waiter that slept may go, from when it was asked for. Below the 100 ms
/// within which a suspension reaches everybody, by what a task may take to be run.
pub const FRESH_US: Micros = 95_000;
/// The least step of the store's clock that is taken for one.
const STEP_MIN_US: Micros = 50_000;
/// What an answer may take beyond what others take.
const TRIP_SLACK_US: Micros = 10_000;
/// How often a process with waiters looks where nothing tells it of changes.
const LOOK_UNTOLD_US: Micros = 90_000;
/// How often it looks where it is told of them, in case a word was lost.
const LOOK_TOLD_US: Micros = 2_000_000;
/// Most jitter added to the time a refused process comes back at.
const JITTER_MAX_US: Micros = 20_000;
/// A word of a change lets every process look; they spread their looks over this.
const CHANGE_SPREAD_US: Micros = 30_000;
/// Most that is added to the moment at which one asks to go first, where many places share one.
const PROBE_SPREAD_US: Micros = 10_000;
/// Between a flight that failed and the next.
const AFTER_FAILURE_US: Micros = 5_000;
/// Most groups of equal calls in one flight, and most calls: what takes the store well under a
/// millisecond.
const GROUPS_MAX: usize = 256;
const CALLS_MAX: usize = 4_096;

/// What a driver may be told to do otherwise.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// How far ahead places are booked.
    pub lookahead_us: Micros,
    /// Seeds the jitter.
    pub seed: u64,
}

/// One waiter, in the order they came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// Somebody who came to a driver at rest, and asks the store without standing in line first.
#[derive(Debug)]
pub struct Alone {
    ticket: Ticket,
    /// The longest wait it may ask for.
    pub wait_max_us: Micros,
}

/// The waiters of one bucket in one process. `W` is whatever tells one its answer.
#[derive(Debug)]
pub struct Driver<W> {
    settings: Settings,
    queue: Queue<W>,
    /// Who has a place, by when it is due.
    placed: VecDeque<Placed<W>>,
    /// Waiters of both kinds that have a deadline.
    deadlines: BTreeSet<(Micros, Ticket)>,
    next_ticket: u64,
    flight: Option<Flight>,
    turn: Turn,
    outlook: Outlook,
    /// When the last sight came, and until when sleepers may go on it.
    seen_at: Option<Micros>,
    fresh_until: Micros,
    /// How long the store takes to answer.
    trips: Trips,
    /// A place missed by more than this is spent; see [`Policy::late_max_us`].
    late_max_us: Micros,
    /// When somebody told of a change last: what was asked before does not know of it.
    changed_at: Micros,
    /// When the last sight was asked for, and the store's time that it told.
    store_clock: Option<(Micros, Micros)>,
    /// When to ask for those in the line.
    ask_at: Micros,
    /// When to look because something may have changed.
    look_at: Option<Micros>,
    /// Whether one call may go first in a suspension, as last seen, and when to ask for the first
    /// that sleeps here to be it.
    probing: Probing,
    probe_at: Option<Micros>,
    /// No flight before this.
    not_before: Micros,
    /// Whether changes are told to us.
    told: bool,
    events: Vec<Event<W>>,
    rng: fastrand::Rng,
}

#[derive(Debug)]
struct Placed<W> {
    waiter: Waiter<W>,
    booking: Booking,
    due_at: Micros,
}

#[derive(Debug)]
struct Flight {
    sent_at: Micros,
    /// Calls asked for: so many from the front of the line.
    calls: usize,
    /// The place that asks to go first.
    probe: Option<Booking>,
}

impl<W> Driver<W> {
    /// A driver without waiters.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            queue: Queue::default(),
            placed: VecDeque::new(),
            deadlines: BTreeSet::new(),
            next_ticket: 0,
            flight: None,
            turn: Turn::new(settings.lookahead_us),
            outlook: Outlook::default(),
            seen_at: None,
            fresh_until: Micros::MIN,
            trips: Trips::default(),
            late_max_us: LATE_MAX_US,
            changed_at: Micros::MIN,
            store_clock: None,
            ask_at: Micros::MIN,
            look_at: None,
            probing: Probing::No,
            probe_at: None,
            not_before: Micros::MIN,
            told: false,
            events: Vec::new(),
            rng: fastrand::Rng::with_seed(settings.seed),
        }
    }

    /// The quick way for who comes to a driver at rest: it asks the store on its own, as one
    /// flight, and says what came of it by one of the three calls below.
    pub fn alone(&mut self, deadline_at: Option<Micros>, now: Micros) -> Option<Alone> {
        if !self.is_at_rest() {
            return None;
        }
        let ticket = self.ticket();
        self.flight = Some(Flight { sent_at: now, calls: 1, probe: None });
        let left = deadline_at.map_or(SPAN_MAX_US, |it| (it - now).max(0));
        Some(Alone { ticket, wait_max_us: self.turn.wait_max(now, self.outlook.pace()).min(left) })
    }

    /// It has its answer and need not wait, or it has gone.
    pub fn alone_done(&mut self) {
        self.flight = None;
    }

    /// It has to wait: for the place it was granted, or for one.
    #[allow(clippy::too_many_arguments, reason = "a waiter, and an answer")]
    pub fn alone_answered(
        &mut self,
        alone: Alone,
        waiter: W,
        cost: Cost,
        deadline_at: Option<Micros>,
        batch: &Batch,
        policy: &Policy,
        now: Micros,
    ) -> Ticket {
        let ticket = alone.ticket;
        if let Some(deadline_at) = deadline_at {
            self.deadlines.insert((deadline_at, ticket));
        }
        self.queue.insert(Waiter { ticket, cost, deadline_at, who: waiter });
        self.answered(batch, policy, now);
        ticket
    }

    /// Somebody wants to make a call of `cost`, by `deadline_at` where there is one.
    pub fn join(
        &mut self,
        waiter: W,
        cost: Cost,
        deadline_at: Option<Micros>,
        now: Micros,
    ) -> Ticket {
        let ticket = self.ticket();
        let behind_all = self.queue.tokens();
        let first = self.queue.is_empty();
        if let (Some(deadline_at), false) = (deadline_at, first || self.probing == Probing::Taken)
            && let Some((due_at, cause)) = self.outlook.due_behind(behind_all, cost)
            && due_at > deadline_at
        {
            self.events.push(Event::Refused { waiter, retry_after_us: due_at - now, cause });
            return ticket;
        }
        if let Some(deadline_at) = deadline_at {
            self.deadlines.insert((deadline_at, ticket));
        }
        if first && self.placed.is_empty() {
            // What was known of the bucket is old by now.
            self.outlook.forget();
            self.ask_at = now;
        } else if first {
            self.plan_ask(now);
        }
        self.queue.push_back(Waiter { ticket, cost, deadline_at, who: waiter });
        ticket
    }

    fn ticket(&mut self) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        ticket
    }

    /// A waiter has gone. Its place goes to those behind it.
    pub fn leave(&mut self, ticket: Ticket, now: Micros) {
        if let Some(waiter) = self.queue.remove(ticket) {
            self.forget_deadline(&waiter);
        } else if let Some(index) = self.placed.iter().position(|it| it.waiter.ticket == ticket) {
            let Some(left) = self.placed.remove(index) else { return };
            self.forget_deadline(&left.waiter);
            self.pass_on(left.booking, left.due_at, index, now);
        }
    }

    /// A place that was given out and not used: somebody else here may have it while its moment is
    /// hardly over. Else it is the caller's to give back.
    pub fn reuse(&mut self, booking: Booking, due_at: Micros, now: Micros) -> Option<Booking> {
        if now - due_at > self.late_max_us {
            return Some(booking);
        }
        let index = self.placed.partition_point(|it| it.booking.due < booking.due);
        let given = self.events.len();
        self.pass_on(booking, due_at, index, now);
        match self.events.pop() {
            Some(Event::GiveBack(booking)) if self.events.len() == given => Some(booking),
            Some(other) => {
                self.events.push(other);
                None
            }
            None => None,
        }
    }

    /// The bucket was suspended, resumed, deleted or given a policy, as somebody has heard.
    pub fn changed(&mut self, now: Micros) {
        let at = now + self.rng.i64(0..=CHANGE_SPREAD_US);
        self.look_at = Some(self.look_at.map_or(at, |other| other.min(at)));
        self.ask_at = self.ask_at.min(at);
        // Nobody goes on what was seen before.
        self.fresh_until = Micros::MIN;
        self.changed_at = now;
    }

    /// Whether [`changed`](Self::changed) will be called when something changes.
    pub fn told(&mut self, told: bool) {
        self.told = told;
    }

    /// How many wait, with a place or without.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len() + self.placed.len()
    }

    /// Whether nobody waits and nothing is asked.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.flight.is_none() && self.waiting() == 0
    }

    /// What has become of waiters since it was last asked.
    pub fn events(&mut self) -> Vec<Event<W>> {
        std::mem::take(&mut self.events)
    }

    /// What to do at `now`. Lets those go whose moment has come.
    pub fn next(&mut self, now: Micros) -> Next {
        self.expire(now);
        self.let_go(now);
        if self.flight.is_some() {
            let due = self.placed.iter().map(|it| it.due_at).find(|due_at| *due_at > now);
            let goes = due.filter(|due_at| *due_at <= self.fresh_until);
            let deadline = self.deadlines.first().map(|(deadline_at, _)| *deadline_at + 1);
            return Next::Await(goes.into_iter().chain(deadline).min());
        }
        if self.waiting() == 0 {
            return Next::Rest;
        }
        let at = self.flight_at(now).max(self.not_before);
        if at <= now {
            let probes = self.probe_at.take_if(|probe_at| *probe_at <= now);
            if let (Some(_), Some(first)) = (probes, self.placed.front()) {
                let booking = first.booking;
                self.flight = Some(Flight { sent_at: now, calls: 0, probe: Some(booking) });
                return Next::Probe(booking);
            }
            return Next::Ask(self.take_off(now));
        }
        let due = self.placed.front().map(|it| it.due_at).filter(|due_at| *due_at > now);
        let deadline = self.deadlines.first().map(|(deadline_at, _)| *deadline_at);
        let wake_at = [due, deadline].into_iter().flatten().fold(at, Micros::min);
        Next::SleepUntil(wake_at.max(now + 1))
    }

    /// The store answered whether the place that asked for it goes first in a suspension. Where that
    /// is somebody else's by now, they go; where nobody here has it, another process may.
    pub fn probed(&mut self, probed: &Probed, policy: &Policy, now: Micros) {
        let sight = probed.sight;
        // Later the others go, too, and it goes among them.
        let in_time = |flight: &Flight| now - flight.sent_at <= sight.left;
        let flight = self.flight.as_ref().filter(|flight| probed.goes && in_time(flight));
        if let Some(booking) = flight.and_then(|flight| flight.probe) {
            match self.placed.iter().position(|it| it.booking == booking) {
                Some(index) => self.goes_first(index, now),
                None => self.events.push(Event::Unprobed(booking)),
            }
        }
        let before = sight.bucket_time;
        let looked = Batch { sight, before, runs: Vec::new(), probe: false, stopped: None };
        self.answered(&looked, policy, now);
    }

    /// Lets one with a place go at once, first in a suspension.
    fn goes_first(&mut self, index: usize, now: Micros) {
        let Some(Placed { waiter, booking, .. }) = self.placed.remove(index) else { return };
        self.forget_deadline(&waiter);
        let good_until = now + self.late_max_us;
        let waiter = waiter.who;
        self.events.push(Event::Go { waiter, booking, due_at: now, good_until, probe: true });
    }

    /// The store answered what was asked, under `policy`.
    pub fn answered(&mut self, batch: &Batch, policy: &Policy, now: Micros) {
        let Some(flight) = self.flight.take() else { return };
        let trip_us = now - flight.sent_at;
        self.late_max_us = policy.late_max_us();
        // An answer that took much longer than others was held up, or this process was stopped before
        // it read it. Then it is of the past: what was due when it should have come is late.
        let usual_max_us = self.trips.least().map(|least| 2 * least + TRIP_SLACK_US);
        let held_up = usual_max_us.filter(|most| trip_us > *most);
        let as_of = held_up.map_or(now, |most| flight.sent_at + most);
        if flight.sent_at >= self.changed_at {
            // Where the store is so far away that answers come less often than sights grow old, one
            // holds until the next can be there.
            let until_next = match (usual_max_us, held_up) {
                (Some(_), None) => 2 * trip_us + TRIP_SLACK_US,
                _ => 0,
            };
            self.fresh_until = flight.sent_at + until_next.max(FRESH_US);
            self.look_at = None;
        }
        self.trips.add(trip_us);
        self.turn.trip(self.trips.longest());
        let stepped = self.stepped(&batch.sight, flight.sent_at, now);
        self.seen_at = Some(now);
        // Who asked alone and was refused brings no sight.
        self.probing = batch.sight.probing;
        self.outlook.keep(policy);
        let goes_first = batch.probe && now - flight.sent_at <= batch.sight.left;
        self.place(batch, flight.calls, goes_first, as_of, now);
        self.see(&batch.sight, stepped, as_of);
        self.let_go(now);
        self.expire(now);
    }

    /// The flight failed. Who was asked for, who stands in line, and who was about to go without
    /// it being known that its place stands are the caller's now.
    pub fn failed(&mut self, now: Micros) -> Vec<Stranded<W>> {
        self.flight = None;
        self.not_before = now + AFTER_FAILURE_US;
        self.outlook.forget();
        let mut stranded = Vec::new();
        while self.placed.front().is_some_and(|it| it.due_at <= now) {
            let Some(Placed { waiter, booking, .. }) = self.placed.pop_front() else { break };
            self.forget_deadline(&waiter);
            stranded.push(Stranded { waiter: waiter.who, booking: Some(booking) });
        }
        while let Some(waiter) = self.queue.pop_front() {
            self.forget_deadline(&waiter);
            stranded.push(Stranded { waiter: waiter.who, booking: None });
        }
        stranded
    }

    /// Takes everybody out, with or without a place: whoever drives this has gone.
    pub fn abandon(&mut self) -> Vec<Stranded<W>> {
        self.flight = None;
        self.deadlines.clear();
        let placed = std::mem::take(&mut self.placed);
        let placed = placed.into_iter().map(|it| (it.waiter, Some(it.booking)));
        let line = std::iter::from_fn(|| self.queue.pop_front()).map(|waiter| (waiter, None));
        let all = placed.chain(line);
        all.map(|(waiter, booking)| Stranded { waiter: waiter.who, booking }).collect()
    }

    /// When the next flight leaves, if nothing happens before.
    fn flight_at(&self, now: Micros) -> Micros {
        let mut at = Micros::MAX;
        if !self.queue.is_empty() {
            at = at.min(self.ask_at);
        }
        if let Some(look_at) = self.look_at {
            at = at.min(look_at);
        }
        let stale = |it: &&Placed<W>| it.due_at > self.fresh_until || it.due_at <= now;
        if let Some(first) = self.placed.iter().find(stale) {
            // Early enough that the answer is there by then, late enough to hold for those behind.
            at = at.min(first.due_at - self.margin_us());
        }
        if let Some(probe_at) = self.probe_at.filter(|_| !self.placed.is_empty()) {
            at = at.min(probe_at);
        }
        let pause = if self.told { LOOK_TOLD_US } else { LOOK_UNTOLD_US };
        at.min(self.seen_at.map_or(now, |seen_at| seen_at + pause))
    }

    /// How long before a moment the store is asked, for the answer to be there by then.
    fn margin_us(&self) -> Micros {
        let trip_us = self.trips.longest();
        (trip_us + trip_us / 2 + 2_000).min(self.settings.lookahead_us.max(10_000))
    }

    /// Lets those go whose moment has come, on a fresh sight. Who woke too late asks anew, once no
    /// flight is under way that asks for those in line.
    fn let_go(&mut self, now: Micros) {
        let fresh = now <= self.fresh_until;
        let mut kept = 0;
        while let Some(placed) = self.placed.get(kept) {
            if placed.due_at > now {
                return;
            }
            let late = now - placed.due_at > self.late_max_us;
            if late && self.flight.is_some() || !late && !fresh {
                kept += 1;
                continue;
            }
            let Some(Placed { waiter, booking, due_at }) = self.placed.remove(kept) else { return };
            if late {
                // Its place counts as spent.
                self.ask_at = self.ask_at.min(now);
                self.queue.insert(waiter);
                continue;
            }
            self.forget_deadline(&waiter);
            let good_until = due_at + self.late_max_us;
            let waiter = waiter.who;
            self.events.push(Event::Go { waiter, booking, due_at, good_until, probe: false });
        }
    }

    /// Refuses whose deadline has passed.
    fn expire(&mut self, now: Micros) {
        while let Some(&(deadline_at, ticket)) = self.deadlines.first() {
            if deadline_at >= now {
                return;
            }
            self.deadlines.pop_first();
            let (retry, cause) = match self.outlook.due_behind(Amounts::default(), Cost::default())
            {
                Some((due_at, cause)) => ((due_at - now).max(1), cause),
                None => (1, Cause::Quota(1)),
            };
            if let Some(waiter) = self.queue.remove(ticket) {
                self.refuse(waiter, retry, cause);
            } else if let Some(index) = self.placed.iter().position(|it| it.waiter.ticket == ticket)
                && self.placed[index].due_at > deadline_at
                && let Some(left) = self.placed.remove(index)
            {
                self.refuse(left.waiter, left.due_at - now, Cause::Suspended);
                self.pass_on(left.booking, left.due_at, index, now);
            }
        }
    }

    fn refuse(&mut self, waiter: Waiter<W>, retry_after_us: Micros, cause: Cause) {
        self.forget_deadline(&waiter);
        self.events.push(Event::Refused { waiter: waiter.who, retry_after_us, cause });
    }

    fn forget_deadline(&mut self, waiter: &Waiter<W>) {
        if let Some(deadline_at) = waiter.deadline_at {
            self.deadlines.remove(&(deadline_at, waiter.ticket));
        }
    }

    /// Builds what the next flight asks.
    fn take_off(&mut self, now: Micros) -> Vec<Group> {
        self.queue.close_up();
        let mut groups: Vec<Group> = Vec::new();
        let mut calls = 0;
        let (mut tokens, most) = (0, self.turn.tokens(now, self.outlook.pace()));
        let alone = self.turn.is_alone();
        let first_wait = self.turn.wait_max(now, self.outlook.pace());
        for waiter in self.queue.iter() {
            let weight = self.outlook.weight(waiter.cost);
            let wait_max_us = match calls {
                0 => first_wait,
                _ if tokens + weight <= most => self.settings.lookahead_us,
                // Beyond its turn it takes what nobody has to wait for.
                _ if alone => 0,
                _ => break,
            };
            let left = waiter.deadline_at.map_or(SPAN_MAX_US, |it| (it - now).max(0));
            let ask = Ask { cost: waiter.cost, wait_max_us: wait_max_us.min(left) };
            let full = groups.len() == GROUPS_MAX;
            match groups.last_mut() {
                Some(group) if group.ask == ask => group.calls += 1,
                _ if full => break,
                _ => groups.push(Group { ask, calls: 1 }),
            }
            tokens += weight;
            calls += 1;
            if calls == CALLS_MAX {
                break;
            }
        }
        self.flight = Some(Flight { sent_at: now, calls, probe: None });
        groups
    }

    /// Whether the store's clock has stepped forward since the last sight: it is farther on than the
    /// time that has passed here from when that was asked for. As after a failover.
    fn stepped(&mut self, sight: &Sight, sent_at: Micros, now: Micros) -> bool {
        // Who asked alone and was refused brings no sight.
        if sight.made.is_none() {
            return false;
        }
        let before = self.store_clock.replace((sent_at, sight.now));
        before.is_some_and(|(sent_before, then)| sight.now - then > now - sent_before + STEP_MIN_US)
    }

    /// Moves the places booked before to when they are due by this sight. Where the store's clock
    /// has stepped forward they would all be due at once, and the bucket may have forgotten them:
    /// they are void.
    fn see(&mut self, sight: &Sight, stepped: bool, now: Micros) {
        let mut void = false;
        for placed in &mut self.placed {
            if stepped && placed.booking.granted_at < sight.granted_at() {
                void = true;
                placed.due_at = Micros::MAX;
                continue;
            }
            // Nobody books farther ahead than the lookahead: such a place is of a bucket that was
            // forgotten, under a clock that has stepped back since.
            let ahead = placed.booking.due - sight.bucket_time;
            let standing = match sight.standing(&placed.booking) {
                Standing::Due(_) if ahead > self.settings.lookahead_us => Standing::Void,
                standing => standing,
            };
            match standing {
                // Of one whose moment has come only the past knows when it came.
                Standing::Due(0) => placed.due_at = placed.due_at.min(now),
                Standing::Due(wait_us) => placed.due_at = now + wait_us,
                Standing::Void => {
                    void = true;
                    placed.due_at = Micros::MAX;
                }
            }
        }
        if void {
            // Places of a policy or a time that is no more: who held them stands in line again.
            for placed in std::mem::take(&mut self.placed) {
                if placed.due_at == Micros::MAX {
                    self.queue.insert(placed.waiter);
                } else {
                    self.placed.push_back(placed);
                }
            }
            self.ask_at = now;
        }
        self.plan_probe(sight, now);
        // Who cannot keep its deadline any more learns it at once. Where one call goes first, the
        // others may go right after it.
        let sooner_us = match sight.probing {
            Probing::No => 0,
            Probing::Open(open_us) => sight.left - open_us.max(0),
            Probing::Taken => sight.left,
        };
        let hopeless =
            |it: &Placed<W>| it.waiter.deadline_at.is_some_and(|at| it.due_at - sooner_us > at);
        while let Some(index) = self.placed.iter().position(hopeless) {
            let Some(left) = self.placed.remove(index) else { return };
            self.refuse(left.waiter, left.due_at - now, Cause::Suspended);
            self.pass_on(left.booking, left.due_at, index, now);
        }
    }

    /// Plans when to ask for the first with a place to go first in a suspension: in the order of the
    /// places, so that the earliest in the fleet asks first.
    fn plan_probe(&mut self, sight: &Sight, now: Micros) {
        self.probe_at = match (sight.probing, self.placed.front()) {
            (Probing::Open(open_us), Some(first)) => {
                let ahead = (first.booking.due - sight.bucket_time).max(0);
                let ties = self.outlook.pace().is_none_or(|pace| !pace.is_even);
                let spread = if ties { self.rng.i64(0..=PROBE_SPREAD_US) } else { 0 };
                Some(now + open_us + ahead + spread)
            }
            _ => None,
        };
    }

    /// Gives those asked for the places they were granted, and plans when to ask for the rest.
    /// The first of them may go first in a suspension. The answer is as of an earlier moment where it
    /// was held up.
    fn place(&mut self, batch: &Batch, asked: usize, goes_first: bool, as_of: Micros, now: Micros) {
        let Batch { sight, runs, stopped, .. } = batch;
        let wait_of = |due: Micros| due - sight.bucket_time + sight.left;
        // How far ahead others have booked: not at all, or until where there is no place.
        let first = match (runs.first(), *stopped) {
            (Some(run), _) if wait_of(run.due) == 0 => Some(now),
            (None, Some(Decision::Denied { retry_after_us, .. })) => Some(now + retry_after_us),
            _ => None,
        };
        if let Some(first) = first {
            let own = self.placed.back().map_or(now, |it| it.due_at);
            let head = self.queue.iter().next().map_or(Cost::default(), |head| head.cost);
            let step = self.outlook.step(head);
            self.turn.saw(first, now, own, step, self.outlook.pace());
        }
        let mut before = batch.before;
        let mut goes_first = goes_first;
        let (mut tokens, mut granted) = (0, 0);
        for &Run { due, calls } in runs {
            for _ in 0..calls {
                let Some(Slot { cost, waiter, .. }) = self.queue.pop_slot() else { break };
                let booking = Booking { cost, granted_at: sight.granted_at(), due, before };
                let weight = self.outlook.weight(cost);
                (before, tokens, granted) = (due, tokens + weight, granted + 1);
                let due_at = as_of + wait_of(due);
                if std::mem::take(&mut goes_first) {
                    match waiter {
                        Some(waiter) => {
                            self.placed.push_front(Placed { waiter, booking, due_at: now });
                            self.goes_first(0, now);
                        }
                        None => self.events.push(Event::Unprobed(booking)),
                    }
                    continue;
                }
                match waiter {
                    Some(waiter) => self.placed.push_back(Placed { waiter, booking, due_at }),
                    // It left meanwhile.
                    None => self.pass_on(booking, due_at, self.placed.len(), now),
                }
            }
        }
        self.turn.granted(tokens, now, self.outlook.pace());
        if let Some(run) = runs.last() {
            self.outlook.granted(now, wait_of(run.due));
        }
        match *stopped {
            Some(Decision::Denied { retry_after_us, cause }) => {
                let tokens = self.queue.iter().next().map_or(Cost::default(), |head| head.cost);
                self.outlook.denied(as_of + retry_after_us, cause, tokens);
                self.refuse_hopeless(now);
                self.plan_ask(now);
            }
            Some(Decision::Never { cost_max, quota }) => {
                // If it has left meanwhile, nobody is told.
                if let Some(Slot { waiter: Some(waiter), .. }) = self.queue.pop_slot() {
                    self.forget_deadline(&waiter);
                    let Waiter { who: waiter, cost, .. } = waiter;
                    self.events.push(Event::Never { waiter, cost, cost_max, quota });
                }
                self.ask_at = now;
            }
            _ if granted < asked => self.ask_at = now,
            _ => self.plan_ask(now),
        }
    }

    /// Refuses those in line who cannot be served by their deadline even if no other process calls.
    fn refuse_hopeless(&mut self, now: Micros) {
        // While one call has gone first, the others may go at any time.
        if self.deadlines.is_empty() || self.probing == Probing::Taken {
            return;
        }
        let (mut ahead, mut hopeless) = (Amounts::default(), Vec::new());
        for waiter in self.queue.iter() {
            match (waiter.deadline_at, self.outlook.due_behind(ahead, waiter.cost)) {
                (Some(deadline_at), Some((due_at, cause))) if due_at > deadline_at => {
                    hopeless.push((waiter.ticket, due_at - now, cause));
                }
                _ => ahead.add(waiter.cost),
            }
        }
        for (ticket, retry_after_us, cause) in hopeless {
            if let Some(waiter) = self.queue.remove(ticket) {
                self.refuse(waiter, retry_after_us, cause);
            }
        }
    }

    /// Plans when to ask for those in line, from when the head would be due.
    fn plan_ask(&mut self, now: Micros) {
        let Some(head_due) = self.outlook.head_due() else {
            self.ask_at = now;
            return;
        };
        let at = match self.probing {
            // Nobody is granted a place before one may go first.
            Probing::Open(_) => head_due.max(now),
            _ => self.turn.ask_at(head_due, now, self.outlook.pace(), self.rng.f64()),
        };
        let jitter_max = JITTER_MAX_US.min((at - now) / 4);
        self.ask_at = if jitter_max > 0 { at + self.rng.i64(0..=jitter_max) } else { at.max(now) };
    }

    /// Hands a place that has become free to those behind `index` with the same cost: each moves
    /// up by one, and the last place goes to the first in line, or back to the bucket.
    fn pass_on(&mut self, booking: Booking, due_at: Micros, index: usize, now: Micros) {
        let (mut booking, mut due_at) = (booking, due_at);
        for placed in self.placed.iter_mut().skip(index) {
            if placed.booking.cost == booking.cost {
                std::mem::swap(&mut placed.booking, &mut booking);
                std::mem::swap(&mut placed.due_at, &mut due_at);
            }
        }
        // Those of another cost that stood between have kept theirs.
        self.placed.make_contiguous().sort_by_key(|it| it.booking.due);
        let fits = |waiter: &Waiter<W>| {
            waiter.cost == booking.cost && waiter.deadline_at.is_none_or(|at| due_at <= at)
        };
        let in_time = now - due_at <= self.late_max_us;
        let head = self.queue.iter().next().filter(|head| in_time && fits(head));
        match head.map(|head| head.ticket).and_then(|ticket| self.queue.remove(ticket)) {
            Some(waiter) => {
                let index = self.placed.partition_point(|it| it.booking.due <= booking.due);
                self.placed.insert(index, Placed { waiter, booking, due_at });
            }
            None => self.events.push(Event::GiveBack(booking)),
        }
    }
}
