//! Who sleeps for which booking. A sleeper that is dropped leaves its place to those behind it:
//! each moves up by one, and only the last place goes back to the bucket, where the last one can
//! be given back whole.

use std::sync::{Arc, Mutex, PoisonError};

use paceline_core::{Booking, Micros};
use tokio::sync::Notify;

/// A booking and the moment to wake for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) booking: Booking,
    /// On the process's steady clock.
    pub(crate) wake_at: Micros,
}

/// All sleepers of one bucket in this process.
#[derive(Debug, Default)]
pub(crate) struct Places {
    sleepers: Mutex<Vec<Arc<Sleeper>>>,
}

/// One sleeper. Its place may become an earlier one while it sleeps.
#[derive(Debug)]
pub(crate) struct Sleeper {
    place: Mutex<Place>,
    /// Told when the place has changed.
    pub(crate) moved: Notify,
}

impl Sleeper {
    pub(crate) fn place(&self) -> Place {
        *self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn swap(&self, other: &mut Place) {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut *place, other);
        self.moved.notify_one();
    }
}

impl Places {
    /// Lies down with a place.
    pub(crate) fn enter(&self, place: Place) -> Arc<Sleeper> {
        let sleeper = Arc::new(Sleeper { place: Mutex::new(place), moved: Notify::new() });
        self.locked().push(Arc::clone(&sleeper));
        sleeper
    }

    /// Gets up with the place it has by now.
    pub(crate) fn rise(&self, sleeper: &Arc<Sleeper>) -> Place {
        self.remove(&mut self.locked(), sleeper);
        sleeper.place()
    }

    /// Leaves for good: those behind move up, and the booking that is left over comes back.
    pub(crate) fn leave(&self, sleeper: &Arc<Sleeper>) -> Booking {
        let mut sleepers = self.locked();
        self.remove(&mut sleepers, sleeper);
        let mut place = sleeper.place();
        let behind = |other: &&Arc<Sleeper>| {
            let booking = other.place().booking;
            booking.cost == place.booking.cost && booking.due > place.booking.due
        };
        let mut moving: Vec<_> = sleepers.iter().filter(behind).cloned().collect();
        moving.sort_by_key(|other| other.place().booking.due);
        for other in moving {
            other.swap(&mut place);
        }
        place.booking
    }

    fn remove(&self, sleepers: &mut Vec<Arc<Sleeper>>, sleeper: &Arc<Sleeper>) {
        if let Some(index) = sleepers.iter().position(|other| Arc::ptr_eq(other, sleeper)) {
            sleepers.swap_remove(index);
        }
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Sleeper>>> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(cost: i64, due: Micros) -> Place {
        Place { booking: Booking { cost, granted_at: 0, due, before: 0 }, wake_at: due }
    }

    #[test]
    fn who_leaves_lets_those_behind_move_up_and_the_last_place_comes_back() {
        let places = Places::default();
        let sleepers = [30, 10, 20].map(|due| places.enter(place(1, due)));
        let other_cost = places.enter(place(2, 25));
        assert_eq!(places.leave(&sleepers[1]).due, 30);
        assert_eq!(sleepers[2].place().booking.due, 10);
        assert_eq!(sleepers[0].place().booking.due, 20);
        assert_eq!(other_cost.place().booking.due, 25);
    }

    #[test]
    fn who_has_risen_is_not_moved_any_more() {
        let places = Places::default();
        let (first, second) = (places.enter(place(1, 10)), places.enter(place(1, 20)));
        assert_eq!(places.rise(&second).booking.due, 20);
        assert_eq!(places.leave(&first).due, 10);
        assert_eq!(second.place().booking.due, 20);
    }
}
