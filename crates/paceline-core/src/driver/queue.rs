//! Who stands in line, in the order they came. Who leaves from the middle leaves a gap, so that
//! leaving costs nothing and those asked for stay where they are until the answer comes; gaps go
//! when the next flight is made up.

use std::collections::VecDeque;

use super::Ticket;
use crate::unit::Amounts;
use crate::{Cost, Micros};

/// One who waits.
#[derive(Debug)]
pub(super) struct Waiter<W> {
    pub(super) ticket: Ticket,
    pub(super) cost: Cost,
    pub(super) deadline_at: Option<Micros>,
    pub(super) who: W,
}

/// A place in the line; without a waiter it is a gap.
#[derive(Debug)]
pub(super) struct Slot<W> {
    ticket: Ticket,
    pub(super) cost: Cost,
    pub(super) waiter: Option<Waiter<W>>,
}

/// The waiters without a place.
#[derive(Debug)]
pub(super) struct Queue<W> {
    slots: VecDeque<Slot<W>>,
    /// Slots with a waiter.
    live: usize,
    /// What those want together.
    tokens: Amounts,
}

impl<W> Default for Queue<W> {
    fn default() -> Self {
        Self { slots: VecDeque::new(), live: 0, tokens: Amounts::default() }
    }
}

impl<W> Queue<W> {
    pub(super) fn len(&self) -> usize {
        self.live
    }

    pub(super) fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// What all in it want together.
    pub(super) fn tokens(&self) -> Amounts {
        self.tokens
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Waiter<W>> {
        self.slots.iter().filter_map(|slot| slot.waiter.as_ref())
    }

    pub(super) fn push_back(&mut self, waiter: Waiter<W>) {
        self.came(&waiter);
        self.slots.push_back(Slot::of(waiter));
    }

    /// Puts somebody back where it stood by its ticket. Not while a flight is under way.
    pub(super) fn insert(&mut self, waiter: Waiter<W>) {
        self.came(&waiter);
        let index = self.slots.partition_point(|slot| slot.ticket < waiter.ticket);
        self.slots.insert(index, Slot::of(waiter));
    }

    /// Takes somebody out, wherever it stands.
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Waiter<W>> {
        let index = self.slots.binary_search_by_key(&ticket, |slot| slot.ticket).ok()?;
        let waiter = self.slots[index].waiter.take()?;
        self.went(&waiter);
        Some(waiter)
    }

    /// The first who is there.
    pub(super) fn pop_front(&mut self) -> Option<Waiter<W>> {
        loop {
            if let Some(waiter) = self.slots.pop_front()?.waiter {
                self.went(&waiter);
                return Some(waiter);
            }
        }
    }

    /// The first slot, be it a gap: what was asked for comes back in this order.
    pub(super) fn pop_slot(&mut self) -> Option<Slot<W>> {
        let slot = self.slots.pop_front()?;
        if let Some(waiter) = &slot.waiter {
            self.live -= 1;
            self.tokens.take(waiter.cost);
        }
        Some(slot)
    }

    /// Closes the gaps.
    pub(super) fn close_up(&mut self) {
        if self.live < self.slots.len() {
            self.slots.retain(|slot| slot.waiter.is_some());
        }
    }

    fn came(&mut self, waiter: &Waiter<W>) {
        self.live += 1;
        self.tokens.add(waiter.cost);
    }

    fn went(&mut self, waiter: &Waiter<W>) {
        self.live -= 1;
        self.tokens.take(waiter.cost);
    }
}

impl<W> Slot<W> {
    fn of(waiter: Waiter<W>) -> Self {
        Self { ticket: waiter.ticket, cost: waiter.cost, waiter: Some(waiter) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unit;

    fn line(costs: &[u32]) -> Queue<u64> {
        let mut line = Queue::default();
        for (number, &cost) in (0..).zip(costs) {
            let cost = Cost::requests(cost);
            line.push_back(Waiter { ticket: Ticket(number), cost, deadline_at: None, who: number });
        }
        line
    }

    #[test]
    fn who_leaves_from_the_middle_leaves_a_gap_that_is_closed_later() {
        let mut line = line(&[1, 2, 3]);
        assert_eq!(line.remove(Ticket(1)).map(|it| it.who), Some(1));
        assert!(line.remove(Ticket(1)).is_none());
        assert_eq!((line.len(), line.tokens().of(Unit::Requests)), (2, 4));
        assert!(line.pop_slot().is_some_and(|slot| slot.waiter.is_some()));
        assert!(line.pop_slot().is_some_and(|slot| slot.waiter.is_none() && slot.cost == 2.into()));
        line.close_up();
        assert_eq!(line.pop_front().map(|it| it.who), Some(2));
        assert!(line.is_empty() && line.tokens() == Amounts::default());
    }

    #[test]
    fn who_comes_back_stands_where_it_stood() {
        let mut line = line(&[1, 1, 1]);
        let first = line.pop_front().expect("somebody");
        line.insert(first);
        assert_eq!(line.iter().map(|it| it.who).collect::<Vec<_>>(), [0, 1, 2]);
    }
}
