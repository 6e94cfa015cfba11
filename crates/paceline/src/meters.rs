//! What is measured through the [`metrics`] facade, for whichever recorder the program has
//! installed. Install it before the limiter is opened: a meter made earlier counts for nobody.
//!
//! | name | kind | labels | what |
//! |---|---|---|---|
//! | `paceline_permits_total` | counter | `bucket`, `by` (`store`, `local`, `allowed`) | permits given |
//! | `paceline_refusals_total` | counter | `bucket`, `cause` (`quota`, `suspended`, `crowd`, `never`, `away`) | calls that got none |
//! | `paceline_wait_seconds` | histogram | `bucket` | what granted calls waited |
//! | `paceline_waiters` | gauge | `bucket` | calls waiting now in this process |
//! | `paceline_suspended_seconds` | gauge | `bucket` | what was left of a suspension when last looked |
//! | `paceline_store_seconds` | histogram | `store` (`host`, `redis`) | what one operation took |
//! | `paceline_store_errors_total` | counter | `store` (and `memory`), `kind` (`unavailable`, `forbidden`, `incompatible`) | operations that failed |
//!
//! Labels are bounded: the first hundred buckets of a process go by their own names, all later ones
//! by `other`.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use ::metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use crate::error::{Error, Kind};

/// Buckets that go by their own names.
const NAMES_MAX: usize = 100;
/// What all others go by.
const OTHER: &str = "other";

/// The meters of one bucket.
#[derive(Debug)]
pub(crate) struct Meters {
    pub(crate) by_store: Counter,
    pub(crate) by_local: Counter,
    pub(crate) by_allowed: Counter,
    pub(crate) refused_by_quota: Counter,
    pub(crate) refused_by_suspension: Counter,
    pub(crate) refused_by_crowd: Counter,
    pub(crate) never: Counter,
    pub(crate) away: Counter,
    pub(crate) wait: Histogram,
    pub(crate) waiters: Gauge,
    pub(crate) suspended: Gauge,
}

/// The meters of one store.
#[derive(Debug)]
pub(crate) struct StoreMeters {
    took: Histogram,
    unavailable: Counter,
    forbidden: Counter,
    incompatible: Counter,
}

impl Meters {
    pub(crate) fn new(bucket: &str) -> Self {
        let bucket = label(bucket);
        let permits = |by: &'static str| counter!("paceline_permits_total", "bucket" => bucket.clone(), "by" => by);
        let refusals = |cause: &'static str| counter!("paceline_refusals_total", "bucket" => bucket.clone(), "cause" => cause);
        Self {
            by_store: permits("store"),
            by_local: permits("local"),
            by_allowed: permits("allowed"),
            refused_by_quota: refusals("quota"),
            refused_by_suspension: refusals("suspended"),
            refused_by_crowd: refusals("crowd"),
            never: refusals("never"),
            away: refusals("away"),
            wait: histogram!("paceline_wait_seconds", "bucket" => bucket.clone()),
            waiters: gauge!("paceline_waiters", "bucket" => bucket.clone()),
            suspended: gauge!("paceline_suspended_seconds", "bucket" => bucket.clone()),
        }
    }
}

impl StoreMeters {
    pub(crate) fn new(store: &'static str) -> Self {
        let errors = |kind: &'static str| counter!("paceline_store_errors_total", "store" => store, "kind" => kind);
        Self {
            took: histogram!("paceline_store_seconds", "store" => store),
            unavailable: errors("unavailable"),
            forbidden: errors("forbidden"),
            incompatible: errors("incompatible"),
        }
    }

    pub(crate) fn took(&self, took: Duration) {
        self.took.record(took.as_secs_f64());
    }

    pub(crate) fn failed(&self, error: &Error) {
        match error.kind() {
            Kind::Unavailable | Kind::Unable => self.unavailable.increment(1),
            Kind::Forbidden => self.forbidden.increment(1),
            Kind::Incompatible => self.incompatible.increment(1),
            // Not the store's.
            Kind::Input | Kind::Never | Kind::Crowded => {}
        }
    }
}

/// A bucket's name as a label.
fn label(bucket: &str) -> String {
    static NAMES: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if names.contains(bucket) || names.len() < NAMES_MAX && names.insert(bucket.to_owned()) {
        bucket.to_owned()
    } else {
        OTHER.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_bounded() {
        let labels: HashSet<String> =
            (0..3 * NAMES_MAX).map(|number| label(&format!("meters {number}"))).collect();
        assert!(labels.contains(OTHER) && labels.len() <= NAMES_MAX + 1, "{}", labels.len());
        let first = labels.iter().find(|it| *it != OTHER).expect("one by its own name");
        assert_eq!(label(first), *first);
    }
}
